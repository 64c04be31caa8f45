"""Compares what the search finds with what a person finds: `python -m benchmarks.planted [NAME ...]`.

Prints for each planted graph how many times faster the person's rewrite is, what the search reaches, its share of that,
the seconds of the search (measured: with all compiling and timing), and its rules. `--estimate`: by the costs of whole
graphs, without running anything. `--rules`: which rules the search goes by, beside those that always run. Measure on a
quiet machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.numerics import Math
from tilewright.base.superopt import Strategy, Superopt
from tilewright.compilation import Options
from tilewright.passes.rules import ALGEBRA, GENERATED, INTEGERS, SEARCH, load_rules
from tilewright.superopt.search.optimization import Search
from tilewright.target.target import Target

from . import cells, convolutions, movements, products, quantized
from .measures import estimated, measured
from .writer import Maker

MAKERS: tuple[Maker, ...] = (
    *convolutions.PLANTED,
    *products.PLANTED,
    *cells.PLANTED,
    *movements.PLANTED,
    *quantized.PLANTED,
)
FILES = {"both": (SEARCH, INTEGERS, GENERATED), "written": (SEARCH, INTEGERS), "generated": (GENERATED,)}
ENOUGH = 0.9
"""The share of what is available that counts as found."""


def main(arguments: Sequence[str] | None = None) -> None:
    names = {maker.__name__.replace("_", "-"): maker for maker in MAKERS}
    parser = argparse.ArgumentParser(description="Compare the search with a person's rewrites of planted graphs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(names)}")
    parser.add_argument("--threads", type=int, default=1)
    maths = tuple(one.value for one in Math)
    parser.add_argument("--math", choices=maths, default=Math.DEFAULT.value, help="what rules may do to floats")
    parser.add_argument("--estimate", action="store_true", help="by the cost model")
    parser.add_argument("--rules", choices=tuple(FILES), default="both")
    parser.add_argument("--strategy", choices=tuple(one.value for one in Strategy), default="backtracking")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - names.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    rules = [rule for file in (ALGEBRA, *FILES[given.rules]) for rule in load_rules(file)]
    search = replace(Search.at(Superopt.MAX), rules=rules, strategy=Strategy(given.strategy))
    options = Options(Target.host(), given.threads, math=Math(given.math))
    gains_of = estimated if given.estimate else measured
    print(
        "| graph | shown by | rewrite | found | share | search, s | rules |\n|---|---|---|---|---|---|---|", flush=True
    )
    enough = 0
    for name in given.names or names:
        one = names[name]()
        gains = gains_of(one, options, search)
        enough += gains.share >= ENOUGH
        numbers = f"{gains.available:.2f} | {gains.found:.2f} | {gains.share:.2f} | {gains.seconds:.1f}"
        print(f"| {one.name} | {one.shown_by} | {numbers} | {gains.rules} |", flush=True)
    print(f"\n{enough} of {len(given.names or names)} have at least {ENOUGH} of it")


if __name__ == "__main__":
    main()
