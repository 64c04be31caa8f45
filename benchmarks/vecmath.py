"""Vector math next to NumPy and SciPy: one thread, arrays that fit in the L2 cache, preallocated results.

`python -m benchmarks.vecmath` prints nanoseconds per element and how many times faster Tilewright is, as the median
and quartiles over interleaved rounds. NumPy's kernels are its own for this CPU (AVX-512, where there is).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.typing import NDArray

from benchmarks.harness import Local, Plan, Spread, measure, ratio
from benchmarks.mathkernel import compile_kernel
from tilewright.backend.cpu.vecmath import MathFunction
from tilewright.base.dtypes import f32
from tilewright.target.target import Target

COUNT = 1 << 16  # 256 KiB in, 256 KiB out
LANES = (16, 32, 64)
PLAN = Plan(rounds=15, slot=0.02, warm_up=0.005)
NANO = 1e9

Floats = NDArray[np.float32]
Peer = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Case:
    """A function, what computes it elsewhere, and the range of its arguments."""

    function: MathFunction
    peer: Peer
    peer_name: str
    low: float
    high: float


CASES = (
    Case(MathFunction.EXP, np.exp, "numpy", -10, 10),
    Case(MathFunction.LOG, np.log, "numpy", 1e-3, 100),
    Case(MathFunction.TANH, np.tanh, "numpy", -5, 5),
    Case(MathFunction.ERF, scipy.special.erf, "scipy", -3, 3),
    Case(MathFunction.SIGMOID, scipy.special.expit, "scipy", -8, 8),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds per element of the peer and of Tilewright, and how many times longer the peer takes."""

    case: Case
    lanes: int
    peer: float
    ours: float
    speedup: Spread


def measure_case(case: Case, lanes: Sequence[int], plan: Plan) -> list[Row]:
    """Run the peer and a kernel for each number of lanes in turns."""
    x = np.random.default_rng(0).uniform(case.low, case.high, COUNT).astype(np.float32)
    out = np.empty_like(x)
    kernels = {count: compile_kernel(case.function, f32, count, Target.host()) for count in lanes}
    ours = [Local(str(count), kernel.bound([x], out)) for count, kernel in kernels.items()]
    samples = measure([Local("peer", lambda: case.peer(x, out=out)), *ours], plan)
    peer = samples["peer"]
    return [
        Row(case, count, peer.median / COUNT, samples[str(count)].median / COUNT, ratio(peer, samples[str(count)]))
        for count in lanes
    ]


def main() -> None:
    print(f"float32, {COUNT} elements, one thread, {Target.host()}")
    print(f"{'function':10}{'peer':8}{'ns/element':>12}{'lanes':>8}{'ns/element':>12}   times faster (quartiles)")
    for case in CASES:
        for row in measure_case(case, LANES, PLAN):
            peer, ours = row.peer * NANO, row.ours * NANO
            name = f"{case.function.value:10}{case.peer_name:8}"
            print(f"{name}{peer:12.3f}{row.lanes:8}{ours:12.3f}   {row.speedup}")


if __name__ == "__main__":
    main()
