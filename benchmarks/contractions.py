"""Contractions scheduled by the analytic model, against the FMA rate of a probe that runs alternately with them.

`python -m benchmarks.contractions [--rounds N] [--trace]` prints a table: GFLOP/s of each case and of the probe.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.compilation import build_program
from tilewright.cost.analytic import schedule
from tilewright.cost.model import panel_width
from tilewright.insight.probes import fma_probe
from tilewright.kernels.packing import Matrix
from tilewright.kernels.relayout import relayout
from tilewright.loops.lower import lower
from tilewright.runtime.memory import aligned_copy
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor

SLOT = 0.02
"""Seconds of each measuring slot."""


@dataclass(frozen=True, slots=True)
class Case:
    """A contraction: its te program, and how many floating-point operations it has."""

    name: str
    outputs: Tensor
    inputs: tuple[Tensor, ...]
    flops: float
    threads: int = 1
    restricted: bool = False


def matmul(size: int, packed_for: Target | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
    """``C = A B``; B in panels if ``packed_for`` is given, else row-major."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    if packed_for is None:
        return c, (a, b)
    lanes = panel_width(Matrix(size, size, size, f32, size * size), packed_for)
    made = relayout([c], {b: IndexMap.parse(f"k, j -> j // {lanes}, k, j % {lanes}")})
    return made[c], (a, made[b])


def conv2d(channels: int, filters: int, size: int, kernel: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A convolution of stride 1 that keeps the size, over blocks of 16 channels; zero padding included."""
    block, pad = 16, kernel // 2
    data = te.placeholder((channels // block, size, size, block), name="data")
    weight = te.placeholder((filters // block, channels // block, kernel, kernel, block, block), name="weight")
    source = data
    if pad:

        def padded(c: Expr, y: Expr, x: Expr, ci: Expr) -> Expr:
            inside = (y >= pad) & (y < size + pad) & (x >= pad) & (x < size + pad)
            return te.select(inside, data[c, y - pad, x - pad, ci], 0.0)

        source = te.compute((channels // block, size + 2 * pad, size + 2 * pad, block), padded, name="padded")
    co, ci = te.reduce_axis((0, channels // block), name="co"), te.reduce_axis((0, block), name="ci")
    ky, kx = te.reduce_axis((0, kernel), name="ky"), te.reduce_axis((0, kernel), name="kx")
    out = te.compute(
        (filters // block, size, size, block),
        lambda f, y, x, fi: te.sum(
            source[co, y + ky, x + kx, ci] * weight[f, co, ky, kx, ci, fi], axis=(co, ky, kx, ci)
        ),
        name="conv",
    )
    return out, (data, weight)


def cases(target: Target) -> Iterator[Case]:
    """All cases of the table."""
    for size in (512, 1024):
        flops = 2.0 * size**3
        yield Case(f"matmul {size}, B row-major", *matmul(size), flops)
        yield Case(f"matmul {size}, B packed", *matmul(size, target), flops)
    yield Case("matmul 1024, B row-major, 2 threads", *matmul(1024), 2.0 * 1024**3, threads=2)
    yield Case("conv 3x3, 64 to 64 channels, 56x56", *conv2d(64, 64, 56, 3), 2.0 * 56 * 56 * 64 * 64 * 9)
    yield Case("conv 1x1, 256 to 64 channels, 56x56", *conv2d(256, 64, 56, 1), 2.0 * 56 * 56 * 256 * 64)
    yield Case("matmul 512, B row-major, AVX2", *matmul(512), 2.0 * 512**3, restricted=True)


def run(case: Case, target: Target, rounds: int, trace: bool) -> tuple[float, float]:
    """GFLOP/s of the case and of the probe: medians over alternating slots."""
    chosen = schedule(Schedule(lower([case.outputs], name="kernel", inputs=case.inputs)), target)
    if trace:
        print(f"--- {case.name}\n{chosen.trace}\n")
    executable = build_program(chosen.program, target, threads=case.threads)
    random = np.random.default_rng(0)
    feeds = {
        spec.name: aligned_copy(random.standard_normal(spec.static_shape, np.float32))
        for spec in executable.manifest.inputs
    }
    out = {spec.name: np.empty(spec.static_shape, np.float32) for spec in executable.manifest.outputs}
    probe = fma_probe(target)
    ours, peak = [], []
    for _ in range(rounds):
        ours.append(case.flops / _seconds(lambda: executable.run(feeds, out)) / 1e9)
        peak.append(probe())
    return median(ours), median(peak)


def _seconds(call: Callable[[], object]) -> float:
    """The median time of a call within one slot."""
    samples: list[float] = []
    start = perf_counter()
    while perf_counter() - start < SLOT:
        before = perf_counter()
        call()
        samples.append(perf_counter() - before)
    return median(samples)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--trace", action="store_true", help="print the schedules")
    arguments = parser.parse_args()
    host = Target.host()
    print("| case | GFLOP/s | probe | ratio |\n|---|---:|---:|---:|")
    for case in cases(host):
        target = host.restricted("avx2") if case.restricted else host
        ours, peak = run(case, target, arguments.rounds, arguments.trace)
        print(f"| {case.name} | {ours:.0f} | {peak:.0f} | {ours / peak:.3f} |", flush=True)


if __name__ == "__main__":
    main()
