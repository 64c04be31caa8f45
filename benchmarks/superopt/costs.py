"""The whole costs of graphs beside measured times.

Each graph is compiled and run; the clock of its native code tells the time of each kernel, and a loop of dependent
additions the frequency. A kernel's time is its fastest run of all rounds and of all places of the graph where the same
code is called, and the frequency is the highest one, as other programs only slow them down; a graph's time is the sum
over its kernels. `tilewright doctor --measure` before it
measures the bandwidths, which a target does not tell. Printed are both for each graph, the rank correlation over the
graphs, and the errors: of the graphs, and of kernels by what they are.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, geometric_mean, median

import numpy as np
from numpy.typing import NDArray

from benchmarks.networks import ZOO
from tilewright.base.store import Recent
from tilewright.compilation import ALONE, Compiled, Options, Services, compile_prepared, prepare
from tilewright.graph import Array, Graph
from tilewright.insight.places import calls_of
from tilewright.insight.probes import Probe, clock_probe
from tilewright.superopt.costs.pricing import price
from tilewright.superopt.validate.validation import random_feeds
from tilewright.superoptimizer import costs_of
from tilewright.target.target import Target

from .variants import KNOWN, variants

_ROUNDS, _PROBES = 6, 5
_KERNELS = 8192
"""Kernels in memory: graphs have many in common."""
_CLOCK_SECONDS = 2e-4


@dataclass(frozen=True, slots=True)
class Pair:
    """Estimated and measured cycles. ``name``: of a graph; of a kernel, the operators of its nodes."""

    name: str
    estimated: float
    measured: float

    @property
    def ratio(self) -> float:
        """Above 1 where the estimate is too high."""
        return self.estimated / self.measured


@dataclass(frozen=True, slots=True)
class Compared:
    """A graph, its kernels, and the frequency in GHz."""

    whole: Pair
    kernels: tuple[Pair, ...]
    ghz: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    known = f"default: planted, and those that are there of {', '.join(KNOWN)}"
    parser.add_argument("names", nargs="*", metavar="GRAPHS", help=known)
    parser.add_argument("--zoo", type=Path, default=ZOO, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring each graph, default %(default)s")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Print the tables, a row at a time."""
    options, cache = Options(Target.host(), given.threads), Recent(_KERNELS)
    clock = clock_probe(options.target, _CLOCK_SECONDS)
    print("| graph | estimated, us | measured, us | estimated / measured |\n|---|---:|---:|---:|", flush=True)
    found: list[Compared] = []
    for name, load in variants(given.names or _present(given.zoo), given.zoo):
        one = compared(name, load(), options, replace(ALONE, cache=cache), clock, given.seconds)
        found.append(one)
        times = (cycles / one.ghz / 1e3 for cycles in (one.whole.estimated, one.whole.measured))
        print(f"| {name} | {' | '.join(f'{t:.1f}' for t in times)} | {one.whole.ratio:.2f} |", flush=True)
    print(
        "\n".join(("", *summary([one.whole for one in found]), "", *by_kind([k for one in found for k in one.kernels])))
    )


def _present(zoo: Path) -> list[str]:
    built = [name for name in KNOWN if not (zoo / f"{name}.onnx").exists()]
    return ["planted", *(name for name in KNOWN if name not in built)]


def compared(name: str, graph: Graph, options: Options, services: Services, clock: Probe, seconds: float) -> Compared:
    """The costs of ``graph`` as a whole, and of its kernels."""
    prepared = prepare(graph)
    costs = costs_of(prepared, options)
    compiled = compile_prepared(prepared, options, services)
    calls = tuple(calls_of(compiled))
    every, ghz = _measured(compiled, random_feeds(prepared, 0), clock, seconds)
    cycles = _of_equal_code([call.kernel.program.name for call in calls], every)
    target = replace(options.target, cores=min(options.target.cores, compiled.executable.threads))
    kernels = [
        Pair(
            "+".join(node.op.name for node in call.group.nodes),
            price(call.kernel.naive, target, call.kernel.constants, costs.rates),
            float(measured),
        )
        for call, measured in zip(calls, cycles, strict=True)
    ]
    return Compared(Pair(name, costs.of_graph(prepared), float(cycles.sum())), tuple(kernels), ghz)


def _of_equal_code(kernels: Sequence[str], cycles: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each call, the fewest cycles of all calls of its kernel."""
    fewest: dict[str, float] = {}
    for kernel, measured in zip(kernels, cycles, strict=True):
        fewest[kernel] = min(fewest.get(kernel, measured), measured)
    return np.array([fewest[kernel] for kernel in kernels])


def _measured(
    compiled: Compiled, feeds: Mapping[str, Array], clock: Probe, seconds: float
) -> tuple[NDArray[np.float64], float]:
    """Cycles of each call of a kernel in its fastest run, and the highest frequency."""
    executable = compiled.executable
    bound = executable.bind(feeds)
    out = {spec.name: array for spec, array in zip(executable.manifest.outputs, bound.outputs, strict=True)}
    times: list[list[float]] = []
    frequencies: list[float] = []
    executable.timed_run(feeds, out)
    for _ in range(_ROUNDS):
        frequencies += [clock() for _ in range(_PROBES)]
        end = time.perf_counter() + seconds / _ROUNDS
        while not times or time.perf_counter() < end:
            times.append(executable.timed_run(feeds, out)[1])
    return np.min(np.array(times), axis=0) * max(frequencies) * 1e9, max(frequencies)


def summary(graphs: Sequence[Pair]) -> Iterator[str]:
    """How well the estimates of graphs agree with what was measured."""
    errors = [abs(one.ratio - 1) for one in graphs]
    yield f"{len(graphs)} graphs; rank correlation {rank_correlation(graphs):.3f}" if len(graphs) > 1 else "1 graph"
    yield f"error: median {median(errors):.0%}, mean {fmean(errors):.0%}, most {max(errors):.0%}"


def rank_correlation(pairs: Sequence[Pair]) -> float:
    """Spearman's: the correlation of the places of estimates and of measured values, each in order."""
    estimated, measured = ([one.estimated for one in pairs], [one.measured for one in pairs])
    return float(np.corrcoef(_places(estimated), _places(measured))[0, 1])


def _places(numbers: Sequence[float]) -> NDArray[np.float64]:
    return np.argsort(np.argsort(numbers)).astype(np.float64)


def by_kind(kernels: Sequence[Pair]) -> Iterator[str]:
    """A table of kernels by their first and last operators that compute: those that take most of the time first."""
    kinds: dict[str, list[Pair]] = {}
    for one in kernels:
        kinds.setdefault(_kind(one.name), []).append(one)
    yield "| kernels | calls | part of the time | estimated / measured | least | most |"
    yield "|---|---:|---:|---:|---:|---:|"
    total = sum(one.measured for one in kernels)
    for kind, found in sorted(kinds.items(), key=lambda item: -sum(one.measured for one in item[1])):
        ratios, part = [one.ratio for one in found], sum(one.measured for one in found) / total
        numbers = " | ".join(f"{ratio:.2f}" for ratio in (geometric_mean(ratios), min(ratios), max(ratios)))
        yield f"| {kind} | {len(found)} | {part:.1%} | {numbers} |"


_PASSED_BY = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Relu", "Add", "Copy"})
"""What is fused into anything."""


def _kind(name: str) -> str:
    words = name.split("+")
    return next((word for word in words if word not in _PASSED_BY), words[0])
