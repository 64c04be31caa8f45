"""What Tilewright makes of a case, judged by both oracles.

Where the oracles agree with each other, Tilewright must agree with them; where they do not, nothing is decided.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

import tilewright
from tests.random_graphs import onnx_runtime
from tests.random_graphs.case import Array, Case
from tests.random_graphs.reference import Estimate, NotEvaluated, evaluate, same
from tilewright.base.errors import UnsupportedModel
from tilewright.base.settings import Settings


class Kind(Enum):
    """How a case came out."""

    RIGHT = "right"
    UNDECIDED = "undecided"
    """Tilewright differs where the oracles differ as well, or an oracle can't run the model."""
    UNSUPPORTED = "unsupported"
    WRONG = "wrong"
    ERROR = "error"
    """An exception that is no ``UnsupportedModel``, or a bounds violation."""
    CRASH = "crash"
    HANG = "hang"

    @property
    def is_failure(self) -> bool:
        return self in (Kind.WRONG, Kind.ERROR, Kind.CRASH, Kind.HANG)


@dataclass(frozen=True)
class Verdict:
    """How a case came out, and the first thing to know about it."""

    kind: Kind
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}" if self.text else self.kind.value


def judge(case: Case, watch: Callable[[str], None] = lambda _: None) -> Verdict:
    """Run the case by Tilewright and by both oracles. ``watch`` hears what comes next."""
    watch("ONNX Runtime")
    try:
        expected = onnx_runtime.run(case)
    except Exception as error:  # noqa: BLE001  its own kinds of errors have no common base
        return Verdict(Kind.UNDECIDED, f"ONNX Runtime: {_first_line(error)}")
    watch("reference")
    try:
        estimates = evaluate(case)
    except NotEvaluated as error:
        return Verdict(Kind.UNDECIDED, f"reference: {_first_line(error)}")
    watch("Tilewright")
    try:
        results = run_tilewright(case)
    except UnsupportedModel as error:
        return Verdict(Kind.UNSUPPORTED, _first_line(error))
    except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
        return Verdict(Kind.ERROR, f"{type(error).__name__}: {_first_line(error)}")
    return compare(case.outputs, results, expected, estimates)


def run_tilewright(case: Case) -> Sequence[Array]:
    """All outputs."""
    settings = Settings(bounds_check=case.checked)
    model = tilewright.compile(case.model(), threads=case.threads, settings=settings)
    return model.run(None, {spec.name: case.inputs[spec.name] for spec in model.inputs})


def compare(
    names: Sequence[str], results: Sequence[Array], expected: Sequence[Array], estimates: Mapping[str, Estimate]
) -> Verdict:
    """``results`` against those of ONNX Runtime and the estimates."""
    doubt = Verdict(Kind.RIGHT)
    for name, found, wanted in zip(names, results, expected, strict=True):
        estimate = estimates[name]
        kinds = [f"{a.dtype}{list(a.shape)}" for a in (found, wanted, np.empty(estimate.exact.shape, estimate.dtype))]
        if kinds[1] != kinds[2]:
            doubt = Verdict(Kind.UNDECIDED, f"{name}: ONNX Runtime gives {kinds[1]}, the reference {kinds[2]}")
            continue
        if kinds[0] != kinds[1]:
            return Verdict(Kind.WRONG, f"{name} is {kinds[0]}, not {kinds[1]}")
        off, oracle_off = far(found, estimate), far(wanted, estimate)
        wrong = off & ~oracle_off
        if wrong.any():
            return Verdict(Kind.WRONG, f"{name}: {_worst(wrong, found, wanted, estimate)}")
        if off.any() and not np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f"):
            doubt = Verdict(Kind.UNDECIDED, f"{name}: {_worst(off, found, wanted, estimate)}")
    return doubt


def far(found: Array, estimate: Estimate) -> Array:
    """Where ``found`` is not what a right implementation may give. Nowhere that rounding decides what comes out."""
    return _differs(found, estimate) & ~estimate.undefined()


def _differs(found: Array, estimate: Estimate) -> Array:
    if not estimate.is_float:
        return (found != estimate.exact) & ~estimate.unstable()
    wide, exact = found.astype(np.float64), estimate.exact
    finite = np.isfinite(exact) & np.all([np.isfinite(sample) for sample in estimate.noisy], axis=0)
    finite &= np.abs(exact) < np.finfo(estimate.dtype).max / 2
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(wide - exact) <= estimate.budget())
    settled = ~np.isfinite(exact) & np.all([same(sample, exact) for sample in estimate.noisy], axis=0)
    return (finite & off) | (settled & ~same(wide, exact))


def _worst(where: Array, found: Array, wanted: Array, estimate: Estimate) -> str:
    """The place of the largest difference."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(found.astype(np.float64) - estimate.exact.astype(np.float64))
    place = np.unravel_index(int(np.argmax(np.where(where, np.nan_to_num(distance, nan=np.inf), -1))), where.shape)
    allowed = f", +- {estimate.budget()[place]:.3g}" if estimate.is_float else ""
    return (
        f"{np.count_nonzero(where)} of {where.size} are off; at {[int(p) for p in place]} {found[place]!r}, "
        f"ONNX Runtime {wanted[place]!r}, float64 {estimate.exact[place]!r}{allowed}"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
