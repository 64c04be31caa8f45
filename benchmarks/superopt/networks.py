"""What algebra gains, network by network.

Each network is compiled without any rules of algebra, with those that always run (`superopt="off"`), and with the
search (`superopt="max"`); the three are run in turns. Printed are medians of ratios over the turns, how long the search
took, and its rules. `--estimate`: by the whole costs of graphs, without running anything.
`--onnxruntime`: the networks in ONNX Runtime, before and after a search by its times. `--rules FILE ...`: the search
goes by those instead, and those that always run. `--models FOLDER`: what searches find is kept there as ONNX models,
and a network whose model is there is not searched again, so that the times of all can be measured in a quiet minute.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from pathlib import Path
from statistics import geometric_mean

import onnx

from benchmarks.networks import ZOO
from tilewright.base.numerics import Math
from tilewright.base.settings import Settings
from tilewright.base.store import Store
from tilewright.base.superopt import Superopt
from tilewright.cli.rule_files import read_rules
from tilewright.compilation import Compiled, Options, Services, compile_prepared, prepare
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.onnxruntime import prepared
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Graph
from tilewright.measure.turns import Plan, measure, ratio
from tilewright.passes.normalize import eliminate_dead_code, normalize
from tilewright.passes.recognize import recognize
from tilewright.passes.rules import ALGEBRA, load_rules
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.superopt.costs.onnxruntime_timing import OnnxRuntimeCosts
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import Applied
from tilewright.superopt.validate.validation import random_feeds
from tilewright.superoptimizer import costs_of, folded, optimize_for, superoptimize
from tilewright.target.target import Target

from .variants import KNOWN, REDUNDANT, load

PLAN = Plan(rounds=8, slot=0.15, rest=0.03)


@dataclass(frozen=True, slots=True)
class Gain:
    """Times without any rules, and with those that always run, as multiples of the time with the search."""

    none: float
    off: float


@dataclass(frozen=True, slots=True)
class Found:
    """The graph that a search found, the one that was given if it found none, and the seconds it took.

    ``rules``: as text, empty if it found none.
    """

    graph: Graph
    rules: str
    seconds: float

    def row(self, name: str, gain: Gain) -> str:
        none = "" if gain.none != gain.none else f"{gain.none:.3f}"
        return f"| {name} | {none} | {gain.off:.3f} | {self.seconds:.1f} | {self.rules or 'none'} |"

    def save(self, path: Path) -> None:
        model = exporter.export(self.graph)
        onnx.helper.set_model_props(model, {"rules": self.rules, "seconds": str(self.seconds)})
        path.write_bytes(model.SerializeToString())

    @staticmethod
    def load(path: Path, given: Graph) -> "Found":
        model = onnx.load_from_string(path.read_bytes())
        kept = {one.key: one.value for one in model.metadata_props}
        graph = importer.load(model) if kept["rules"] else given
        return Found(graph, kept["rules"], float(kept["seconds"]))


@dataclass(frozen=True, slots=True)
class Way:
    """How a better graph is searched, and what it gains in the place of the given one, on a number of threads."""

    name: str
    find: Callable[[Graph, int, Search], Found]
    gain: Callable[[Graph, Found, int], Gain]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"default: {', '.join(REDUNDANT)}")
    parser.add_argument("--all", action="store_true", help=f"all of {', '.join(KNOWN)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rules", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="keep what is found there")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--estimate", action="store_true", help="by the cost model, without running anything")
    how.add_argument("--onnxruntime", action="store_true", help="in ONNX Runtime")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Print the table, a row at a time."""
    search = Search.at(Superopt.MAX)
    if given.rules is not None:
        search = replace(search, rules=(*load_rules(ALGEBRA), *read_rules(given.rules)))
    way = ESTIMATED if given.estimate else IN_ONNXRUNTIME if given.onnxruntime else COMPILED
    print("| network | no rules / max | off / max | search, s | rules |\n|---|---:|---:|---:|---|", flush=True)
    gains: list[float] = []
    for name in given.names or (KNOWN if given.all else REDUNDANT):
        graph = load(name, given.zoo)
        kept = None if given.models is None else given.models / f"{name}.{way.name}.{given.threads}.onnx"
        found = _found(graph, kept, partial(way.find, graph, given.threads, search))
        gain = way.gain(graph, found, given.threads)
        gains.append(gain.off)
        print(found.row(name, gain), flush=True)
    print(f"| geometric mean | | {geometric_mean(gains):.3f} | | |")


def _found(given: Graph, kept: Path | None, find: Callable[[], Found]) -> Found:
    if kept is not None and kept.exists():
        return Found.load(kept, given)
    found = find()
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        found.save(kept)
    return found


def _graph_of(steps: Sequence[Applied], found: Callable[[], Graph], given: Graph, begin: float) -> Found:
    """What a search that began at ``begin`` found by ``steps``."""
    seconds = time.perf_counter() - begin
    return Found(found() if steps else given, told(steps), seconds)


def told(steps: Sequence[Applied]) -> str:
    """The rules of a search, each with how often it was applied."""
    counts = Counter(step.rule.name for step in steps)
    return ", ".join(f"{rule} {times}" for rule, times in counts.items())


def found_here(graph: Graph, threads: int, search: Search) -> Found:
    """By the times of compiled graphs."""
    begin, options = time.perf_counter(), Options(Target.host(), threads, superopt=Superopt.MAX)
    found = superoptimize(prepare(graph), options, search=search).optimized
    return _graph_of(found.steps, lambda: folded(found.after), graph, begin)


def gained_here(graph: Graph, found: Found, threads: int) -> Gain:
    """As measured, in turns."""
    options, services = Options(Target.host(), threads), Services(cache=Store.open(Settings.from_environment()))
    off = compile_graph(graph, options, services)
    best = compile_graph(found.graph, options, services) if found.rules else off
    models = {"none": without_algebra(graph, options, services), "off": off, "max": best}
    feeds = random_feeds(graph, 0)
    timings = measure({name: lambda m=model: m.executable.run(feeds) for name, model in models.items()}, PLAN)
    gain = ratio(timings["off"], timings["max"]) if found.rules else 1.0
    return Gain(ratio(timings["none"], timings["max"]), gain)


def without_algebra(graph: Graph, options: Options, services: Services) -> Compiled:
    """Constants are folded and composites recognized; no rule is applied."""
    return compile_prepared(eliminate_dead_code(recognize(normalize(graph))), options, services)


def found_by_estimates(graph: Graph, threads: int, search: Search) -> Found:
    """By the costs of whole graphs."""
    begin, given = time.perf_counter(), prepare(graph)
    best = min(search.optimize(given, _costs(given, threads)), key=lambda one: one.cost_after)
    return _graph_of(best.steps, lambda: folded(best.after), graph, begin)


def estimated(graph: Graph, found: Found, threads: int) -> Gain:
    """By the costs of whole graphs."""
    given = prepare(graph)
    costs = _costs(given, threads)
    return Gain(nan, costs.of_graph(given) / costs.of_graph(prepare(found.graph)))


def _costs(prepared_: Graph, threads: int) -> KernelCosts:
    return costs_of(prepared_, Options(Target.host(), threads))


def found_for_onnxruntime(graph: Graph, threads: int, search: Search) -> Found:
    """By its times."""
    begin = time.perf_counter()
    found = optimize_for(graph, OnnxRuntimeCosts(threads), search, Math.DEFAULT).optimized
    return _graph_of(found.steps, lambda: normalize(found.after), graph, begin)


def gained_in_onnxruntime(graph: Graph, found: Found, threads: int) -> Gain:
    """In turns with the graph as it was given, with all that ONNX Runtime optimizes itself."""
    feeds = random_feeds(graph, 0)
    models = {"off": graph, "max": found.graph}
    runs = {name: prepared(exporter.export(one), feeds, threads) for name, one in models.items()}
    timings = measure(runs, PLAN)
    return Gain(nan, ratio(timings["off"], timings["max"]))


COMPILED = Way("compiled", found_here, gained_here)
ESTIMATED = Way("estimated", found_by_estimates, estimated)
IN_ONNXRUNTIME = Way("onnxruntime", found_for_onnxruntime, gained_in_onnxruntime)
