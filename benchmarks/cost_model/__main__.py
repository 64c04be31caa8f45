"""`python -m benchmarks.cost_model record|collect|evaluate|train`: see the package."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..document import APPENDICES
from ..tables import splice
from .data import Data, collected
from .quality import Quality, of_networks, split, tried
from .record import record
from .tasks import tasks
from .train import PACKAGE, train

PAGE, MARKER = APPENDICES / "searches.md", "cost-model"
PAPER = Quality(rmse=0.079, r2=0.958, pairwise=0.851, recall=0.624, chance=float("nan"))
"""Zheng et al., OSDI 2020: 25,000 programs of ResNet-50, 20,000 of them learned from; another machine and compiler."""


def evaluated(data: Data) -> Iterator[tuple[str, int, Quality]]:
    """What is held out, how many programs these are, and how good the scores are."""
    learned, held_out = split(data)
    yield "a fifth of the programs of each task", len(held_out), tried(data, learned, held_out)
    for network, others, own in of_networks(data):
        yield f"all of {network}", len(own), tried(data, others, own)


def table(data: Data) -> str:
    """The quality, as Markdown."""
    lines = [
        f"{len(data):,} programs of {len(data.names)} tasks; {len(data.statements.rows):,} statements.",
        "",
        "| held out | programs | RMSE | R2 | pairs in order | recall@30 of the top 30 | by chance |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [*evaluated(data), ("the paper, on its own records", 5000, PAPER)]
    for name, count, found in rows:
        numbers = (found.rmse, found.r2, found.pairwise, found.recall, found.chance)
        lines.append(f"| {name} | {count:,} | {' | '.join(_shown(number) for number in numbers)} |")
    return "\n".join(lines)


def _shown(number: float) -> str:
    return "" if number != number else f"{number:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """One of the steps."""
    options = _options(arguments)
    match options.step:
        case "record":
            count = record(options.records, options.minutes, options.most)
            print(f"{count:,} candidates are in {options.records}")
        case "collect":
            data = collected(options.records, tasks())
            options.output.parent.mkdir(parents=True, exist_ok=True)
            data.save(options.output)
            print(f"{len(data):,} programs; {options.output.stat().st_size / 1e6:.1f} MB")
        case "evaluate":
            text = table(Data.load(options.data))
            print(text)
            if options.document:
                PAGE.write_text(splice(PAGE.read_text(), MARKER, text))
        case _:
            size = train(Data.load(options.data), options.output)
            print(f"{options.output}: {size / 1e6:.2f} MB")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost_model", description="The cost model of statements."
    )
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("record", help="measure candidates")
    step.add_argument("--minutes", type=float, default=30.0, help="default %(default)s")
    step.add_argument("--records", type=Path, required=True, help="database, which may have some already")
    step.add_argument("--most", type=int, help="candidates, about; default: as many as there is time for")
    step = steps.add_parser("collect", help="make the data set of records")
    step.add_argument("--records", type=Path, required=True, help="database")
    step.add_argument("-o", "--output", type=Path, required=True, help="data set, .npz")
    step = steps.add_parser("evaluate", help="learn from a part, and try on the rest")
    step.add_argument("data", type=Path, help="data set")
    step.add_argument("--document", action="store_true", help=f"write the table into {PAGE.name}")
    step = steps.add_parser("train", help="make the weights that come with the package")
    step.add_argument("data", type=Path, help="data set")
    step.add_argument("-o", "--output", type=Path, default=PACKAGE, help="default %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
