"""The two error measures, against float64: relative in the norm, and relative to the largest element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Largest error over all outputs; no unit."""

    norm: float
    """max over outputs of |y - r|_2 / |r|_2"""
    element: float
    """max over outputs of max|y - r| / max|r|"""


def accuracy(outputs: Sequence[NDArray[np.floating]], references: Sequence[NDArray[np.float64]]) -> Accuracy:
    """Compare outputs with float64 references. Raises ValueError when numbers or shapes of outputs differ."""
    if not references or [output.shape for output in outputs] != [reference.shape for reference in references]:
        raise ValueError(f"{[o.shape for o in outputs]} can't be compared with {[r.shape for r in references]}")
    both = zip(outputs, references, strict=True)
    pairs = [(np.asarray(output, np.float64) - reference, reference) for output, reference in both]
    norms = [_divide(np.linalg.norm(error), np.linalg.norm(exact)) for error, exact in pairs]
    elements = [_divide(np.abs(error).max(), np.abs(exact).max()) for error, exact in pairs]
    return Accuracy(float(np.max(norms)), float(np.max(elements)))  # unlike max(), np.max lets no NaN disappear


def _divide(error: np.floating, scale: np.floating) -> float:
    """error / scale; an exact zero reference is met exactly or not at all."""
    if scale == 0.0:
        return 0.0 if error == 0.0 else float("inf")
    return float(error / scale)


LEAST_DEVIATION, MOST_DEVIATION = 0.1, 10.0


def out_of_scale(deviations: Mapping[str, float]) -> dict[str, float]:
    """Standard deviations, by layer, outside of [0.1, 10]: errors of such layers would hide, or hide others'."""
    return {name: value for name, value in deviations.items() if not LEAST_DEVIATION <= value <= MOST_DEVIATION}
