"""Searches compared: `python -m benchmarks.searches [NETWORK ...]`.

Each network's graph is searched in several ways, each with all rules that come with the compiler: as `superopt="fast"`
does, and with what `"max"` may spend greedily (only what costs less is gone on from), by backtracking (what costs a
twentieth more, too), and by equality saturation, extracted greedily and exactly. Printed are the cost of the whole
graph by the compiler's model, as a part of the cost of the graph that was given, and CPU seconds of the search.
`--rules FILE ...`: by those instead, and those that always run.
Needs the zoo's files (`python -m benchmarks.zoo`).
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from tilewright import interface
from tilewright.base.numerics import Math
from tilewright.base.superopt import Strategy, Superopt
from tilewright.cli.rule_files import read_rules
from tilewright.compilation import prepare
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph
from tilewright.passes.rules import ALGEBRA, Rule, load_rules
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.superopt.search.optimization import EFFORTS, Search, built_in_rules
from tilewright.target.target import Target

from .networks import NETWORKS, ZOO


def ways(rules: Sequence[Rule]) -> Mapping[str, Search]:
    """The searches, without rivals of what they find."""
    effort = replace(EFFORTS[Superopt.MAX], rivals=0)
    greedy = replace(effort, limits=replace(effort.limits, alpha=1.0))
    unproven = replace(effort, saturation=replace(effort.saturation, seconds=0.0))
    return {
        "fast": Search(rules, EFFORTS[Superopt.FAST], clock=time.process_time),
        "greedy": Search(rules, greedy, clock=time.process_time),
        "backtracking": Search(rules, effort, clock=time.process_time),
        "saturation, greedy": Search(rules, unproven, Strategy.SATURATION, clock=time.process_time),
        "saturation, exact": Search(rules, effort, Strategy.SATURATION, clock=time.process_time),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compare ways to search, network by network.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default all: {', '.join(NETWORKS)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, metavar="FOLDER")
    parser.add_argument("--rules", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--target", type=Target.parse, default=Target.host())
    given = parser.parse_args(arguments)
    rules = built_in_rules() if given.rules is None else (*load_rules(ALGEBRA), *read_rules(given.rules))
    searches = ways(rules)
    print(f"| network | {' | '.join(searches)} |\n|---|{'---|' * len(searches)}", flush=True)
    columns: list[list[float]] = []
    for name in given.networks or NETWORKS:
        graph = prepare(importer.load(given.zoo / f"{name}.onnx"))
        found = [searched(graph, search, given.target) for search in searches.values()]
        columns.append([cost for cost, _ in found])
        print(f"| {name} | {' | '.join(f'{cost:.3f} ({seconds:.1f} s)' for cost, seconds in found)} |", flush=True)
    means = [geometric_mean(column) for column in zip(*columns, strict=True)]
    print(f"| geometric mean | {' | '.join(f'{mean:.3f}' for mean in means)} |")


def searched(graph: Graph, search: Search, target: Target) -> tuple[float, float]:
    """The relative cost of what is found, and the CPU seconds that it took."""
    begin = time.process_time()
    costs = KernelCosts.of(graph, target, Math.DEFAULT, interface.bounds_of(graph, {}))
    best = min(search.optimize(graph, costs), key=lambda one: one.cost_after)
    seconds = time.process_time() - begin
    return best.cost_after / best.cost_before if best.steps else 1.0, seconds


if __name__ == "__main__":
    main()
