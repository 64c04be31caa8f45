"""Rules and searches, compared on the planted graphs: `python -m benchmarks.rule_ablation [NAME ...]`.

Each graph is searched with the rules that were generated, with those that were written, and with both (beside those
that always run), greedily, by backtracking and by saturation. Printed is the estimated cost of the graph as given,
divided by that of what is found; `rewrite` is what a person finds. Costs are estimates (`costs.kernel_model`), and
limits of time count CPU seconds, so that the table does not depend on what else the machine does. `--matches`: instead,
how many rules of each file match in each network of the zoo (`python -m benchmarks.zoo`).
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.base.superopt import Strategy, Superopt
from tilewright.compilation import Options, prepare
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph
from tilewright.passes.rules import ALGEBRA, GENERATED, SEARCH, Rule, index_of, load_rules, matches
from tilewright.superopt.costs.provider import CostProvider
from tilewright.superopt.search.layers import in_products
from tilewright.superopt.search.optimization import EFFORTS, Search
from tilewright.superoptimizer import costs_of
from tilewright.target.target import Target

from .networks import NETWORKS, ZOO
from .planted.__main__ import MAKERS

FILES: Mapping[str, Sequence[str]] = {"generated": (GENERATED,), "written": (SEARCH,), "both": (SEARCH, GENERATED)}


def main(arguments: Sequence[str] | None = None) -> None:
    names = {maker.__name__.replace("_", "-"): maker for maker in MAKERS}
    parser = argparse.ArgumentParser(description="Compare rules and searches on the planted graphs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(names)}")
    parser.add_argument("--matches", action="store_true", help="where rules match in the networks of the zoo")
    given = parser.parse_args(arguments)
    if given.matches:
        print_matches(given.names or NETWORKS)
        return
    columns = [f"{rules}, {way}" for rules in FILES for way in _searches(())]
    print(f"| graph | rewrite | {' | '.join(columns)} |\n|---|{'---|' * (len(columns) + 1)}", flush=True)
    for name in given.names or names:
        one = names[name]()
        graph, rewritten = (prepare(importer.load(model)) for model in (one.given, one.rewritten))
        costs = costs_of(graph, Options(Target.parse("x86_64,znver4"), 1))
        before = costs.of_graph(graph)
        gains = [before / costs.of_graph(rewritten), *(before / cost for cost in _found(graph, costs))]
        print(f"| {one.name} | {' | '.join(f'{gain:.2f}' for gain in gains)} |", flush=True)


def _found(graph: Graph, costs: CostProvider) -> Iterator[float]:
    """The cost of what each search finds."""
    for files in FILES.values():
        rules = [rule for file in (ALGEBRA, *files) for rule in load_rules(file)]
        for search in _searches(rules).values():
            yield min(costs.of_graph(one.after) for one in search.optimize(graph, costs))


def _searches(rules: Sequence[Rule]) -> Mapping[str, Search]:
    effort = replace(EFFORTS[Superopt.MAX], rivals=0)
    greedy = replace(effort, limits=replace(effort.limits, alpha=1.0))
    return {
        "greedy": Search(rules, greedy, clock=time.process_time),
        "backtracking": Search(rules, effort, clock=time.process_time),
        "saturation": Search(rules, effort, Strategy.SATURATION, clock=time.process_time),
    }


def print_matches(networks: Sequence[str]) -> None:
    print("| network | generated | written |\n|---|---:|---:|", flush=True)
    for name in networks:
        index = index_of(in_products(prepare(importer.load(ZOO / f"{name}.onnx"))))
        counts = [
            sum(next(matches(rule, index), None) is not None for rule in load_rules(file))
            for file in (GENERATED, SEARCH)
        ]
        print(
            f"| {name} | {counts[0]} of {len(load_rules(GENERATED))} | {counts[1]} of {len(load_rules(SEARCH))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
