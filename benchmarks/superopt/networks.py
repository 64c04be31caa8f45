"""What algebra gains, network by network.

Each network is compiled without any rules of algebra, with those that always run (`superopt="off"`), and with the
search (`superopt="max"`); the three are run in turns. Printed are medians of ratios over the turns, how long the search
and compiling took, and its rules. `--estimate`: by the whole costs of graphs, without running anything.
`--onnxruntime`: the networks in ONNX Runtime, before and after a search by its times. `--rules FILE ...`: the search
goes by those instead, and those that always run.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from statistics import geometric_mean

from benchmarks.networks import ZOO
from tilewright.base.numerics import Math
from tilewright.base.superopt import Superopt
from tilewright.cli.rule_files import read_rules
from tilewright.compilation import Compiled, Options, compile_prepared, prepare
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.onnxruntime import prepared
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Graph
from tilewright.measure.turns import Plan, Timing, measure, ratio
from tilewright.passes.normalize import eliminate_dead_code, normalize
from tilewright.passes.recognize import recognize
from tilewright.passes.rules import ALGEBRA, load_rules
from tilewright.superopt.costs.onnxruntime_timing import OnnxRuntimeCosts
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import Applied
from tilewright.superopt.validate.validation import random_feeds
from tilewright.superoptimizer import costs_of, optimize_for, superoptimize
from tilewright.target.target import Target

from .variants import KNOWN, REDUNDANT, load

PLAN = Plan(rounds=8, slot=0.25, rest=0.05)


@dataclass(frozen=True, slots=True)
class Gain:
    """Times without any rules, and with those that always run, as multiples of the time with the search."""

    none: float
    off: float
    seconds: float
    rules: str

    def row(self, name: str) -> str:
        return f"| {name} | {_number(self.none)} | {self.off:.3f} | {self.seconds:.1f} | {self.rules} |"


def _number(ratio: float) -> str:
    return "" if ratio != ratio else f"{ratio:.3f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"default: {', '.join(REDUNDANT)}")
    parser.add_argument("--all", action="store_true", help=f"all of {', '.join(KNOWN)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rules", type=Path, nargs="+", metavar="FILE")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--estimate", action="store_true", help="by the cost model, without running anything")
    how.add_argument("--onnxruntime", action="store_true", help="in ONNX Runtime")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Print the table, a row at a time."""
    search = Search.at(Superopt.MAX)
    if given.rules is not None:
        search = replace(search, rules=(*load_rules(ALGEBRA), *read_rules(given.rules)))
    gain_of: Callable[[Graph, int, Search], Gain] = measured
    if given.estimate or given.onnxruntime:
        gain_of = estimated if given.estimate else in_onnxruntime
    print("| network | no rules / max | off / max | search, s | rules |\n|---|---:|---:|---:|---|", flush=True)
    gains: list[float] = []
    for name in given.names or (KNOWN if given.all else REDUNDANT):
        gain = gain_of(load(name, given.zoo), given.threads, search)
        gains.append(gain.off)
        print(gain.row(name), flush=True)
    print(f"| geometric mean | | {geometric_mean(gains):.3f} | | |")


def without_algebra(graph: Graph, options: Options) -> Compiled:
    """Constants are folded and composites recognized; no rule is applied."""
    return compile_prepared(eliminate_dead_code(recognize(normalize(graph))), options)


def measured(graph: Graph, threads: int, search: Search) -> Gain:
    """Gains as measured, in turns."""
    options = Options(Target.host(), threads)
    begin = time.perf_counter()
    found = superoptimize(prepare(graph), replace(options, superopt=Superopt.MAX), search=search)
    seconds = time.perf_counter() - begin
    off, steps = compile_graph(graph, options), found.optimized.steps
    models = {"none": without_algebra(graph, options), "off": off, "max": found.compiled if steps else off}
    feeds = random_feeds(graph, 0)
    timings: dict[str, Timing] = measure({k: lambda m=m: m.executable.run(feeds) for k, m in models.items()}, PLAN)
    gain = ratio(timings["off"], timings["max"]) if steps else 1.0
    return Gain(ratio(timings["none"], timings["max"]), gain, seconds, told(steps))


def estimated(graph: Graph, threads: int, search: Search) -> Gain:
    """Gains by the costs of whole graphs."""
    given = prepare(graph)
    costs = costs_of(given, Options(Target.host(), threads))
    begin = time.perf_counter()
    best = min(search.optimize(given, costs), key=lambda one: one.cost_after)
    seconds = time.perf_counter() - begin
    return Gain(nan, best.cost_before / best.cost_after if best.steps else 1.0, seconds, told(best.steps))


def in_onnxruntime(graph: Graph, threads: int, search: Search) -> Gain:
    """Gains in ONNX Runtime, in turns with the graph as it was given, with all that ONNX Runtime optimizes itself."""
    begin = time.perf_counter()
    found, _ = optimize_for(graph, OnnxRuntimeCosts(threads), search, Math.DEFAULT)
    seconds = time.perf_counter() - begin
    feeds = random_feeds(graph, 0)
    models = {"off": graph, "max": found.after}
    runs = {name: prepared(exporter.export(one), feeds, threads) for name, one in models.items()}
    timings = measure(runs, PLAN)
    return Gain(nan, ratio(timings["off"], timings["max"]), seconds, told(found.steps))


def told(steps: Sequence[Applied]) -> str:
    """The rules of a search, each with how often it was applied."""
    counts = Counter(step.rule.name for step in steps)
    return ", ".join(f"{rule} {times}" for rule, times in counts.items()) or "none"
