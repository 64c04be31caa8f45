"""What algebra gains: `python -m benchmarks.superopt [NETWORK ...]`.

Each network is compiled without any rules of algebra, with those that always run (`superopt="off"`), and with the
search (`superopt="max"`); the three are run in turns. Printed are medians of ratios over the turns, how long the search
and compiling took, and its rules. `--rules FILE ...`: the search goes by those instead, and those that always run.
Measure on a quiet machine. Needs the zoo's files (`python -m benchmarks.zoo`).
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from tilewright.base.superopt import Superopt
from tilewright.cli.rule_files import read_rules
from tilewright.compilation import Compiled, Options, compile_prepared, prepare
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph
from tilewright.measure.turns import Plan, Timing, measure, ratio
from tilewright.passes.normalize import eliminate_dead_code, normalize
from tilewright.passes.recognize import recognize
from tilewright.passes.rules import ALGEBRA, load_rules
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.validate.validation import random_feeds
from tilewright.superoptimizer import superoptimize
from tilewright.target.target import Target

from .networks import NETWORKS, ZOO

PLAN = Plan(rounds=8, slot=0.25, rest=0.05)


def without_algebra(graph: Graph, options: Options) -> Compiled:
    """Constants are folded and composites recognized; no rule is applied."""
    return compile_prepared(eliminate_dead_code(recognize(normalize(graph))), options)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure what algebra gains, network by network.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default all: {', '.join(NETWORKS)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rules", type=Path, nargs="+", metavar="FILE")
    given = parser.parse_args(arguments)
    search = Search.at(Superopt.MAX)
    if given.rules is not None:
        search = replace(search, rules=(*load_rules(ALGEBRA), *read_rules(given.rules)))
    print("| network | no rules / max | off / max | search, s | rules |\n|---|---|---|---|---|", flush=True)
    gains: list[tuple[float, float]] = []
    for name in given.networks or NETWORKS:
        all_off, off, row = measured(name, given.zoo, given.threads, search)
        gains.append((all_off, off))
        print(row, flush=True)
    means = [geometric_mean(column) for column in zip(*gains, strict=True)]
    print(f"| geometric mean | {means[0]:.3f} | {means[1]:.3f} | | |")


def measured(name: str, zoo: Path, threads: int, search: Search) -> tuple[float, float, str]:
    """How many times faster the result of the search is than with no rules, and than with those that always run."""
    graph = importer.load(zoo / f"{name}.onnx")
    options = Options(Target.host(), threads)
    begin = time.perf_counter()
    found = superoptimize(prepare(graph), Options(Target.host(), threads, superopt=Superopt.MAX), search=search)
    seconds = time.perf_counter() - begin
    off = compile_graph(graph, options)
    models = {
        "none": without_algebra(graph, options),
        "off": off,
        "max": found.compiled if found.optimized.steps else off,
    }
    feeds = random_feeds(graph, 0)
    timings: dict[str, Timing] = measure({k: lambda m=m: m.executable.run(feeds) for k, m in models.items()}, PLAN)
    all_off = ratio(timings["none"], timings["max"])
    gain = ratio(timings["off"], timings["max"]) if found.optimized.steps else 1.0
    rules = Counter(step.rule.name for step in found.optimized.steps)
    told = ", ".join(f"{rule} {times}" for rule, times in rules.items()) or "none"
    return all_off, gain, f"| {name} | {all_off:.3f} | {gain:.3f} | {seconds:.1f} | {told} |"


if __name__ == "__main__":
    main()
