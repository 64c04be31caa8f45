"""NAME.npz of the zoo: inputs by name and float64 reference outputs, several samples. Needs NumPy only.

The arrays are called `in0.NAME`, `out0.NAME` for the first sample, `in1.NAME` ... for the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs, and what a network computes from them exactly (in float64), both by name."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, NDArray[np.float64]]


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write the samples to one npz file."""
    arrays: dict[str, Array] = {}
    for index, sample in enumerate(samples):
        arrays |= {f"in{index}.{name}": array for name, array in sample.inputs.items()}
        arrays |= {f"out{index}.{name}": array for name, array in sample.outputs.items()}
    np.savez(path, allow_pickle=False, **arrays)


def load_samples(path: Path) -> list[Sample]:
    """Read what `save_samples` wrote."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    count = 1 + max(int(name.partition(".")[0].removeprefix("in")) for name in arrays if name.startswith("in"))
    return [Sample(_named(arrays, f"in{index}."), _named(arrays, f"out{index}.")) for index in range(count)]


def _named(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
