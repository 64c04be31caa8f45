"""Single operators and subgraphs: Tilewright and its peers in turns. `python -m benchmarks.operators`.

The table is in operator_models.py. Needs the extra `bench`. Measure on a quiet machine.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import onnx

from .contest import Case, run_case
from .operator_models import BATCHES, OPERATORS, OperatorCase, build_model, cases
from .options import add_terms, names, numbers, terms_of
from .results import load, save
from .tables import report
from .work import run_shapes, work_of
from .zoo.samples import Sample

RESULTS = Path("benchmarks/results/operators.json")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; results are saved after every case."""
    options = _options(arguments)
    terms, results = terms_of(options), load(options.results)
    options.folder.mkdir(parents=True, exist_ok=True)
    for of_table in cases(options.operators, options.batches):
        case = prepare(of_table, options.folder)
        for threads in options.threads:
            print(f"{case.name}, threads: {threads}", flush=True)
            results = results.with_rows(run_case(case, threads, terms))
            save(results, options.results)
    print(report(results))


def prepare(of_table: OperatorCase, folder: Path) -> Case:
    """Write the model and compute the exact answer."""
    from .operator_modules import exact  # optional: needs torch

    model, feeds = build_model(of_table)
    path = folder / f"{of_table.name}.onnx"
    onnx.save(model, path)
    work = work_of(model, run_shapes(model, feeds))
    return Case(
        of_table.name, path, [Sample(feeds, exact(model, feeds))], "benchmarks.operator_modules:module_of", work
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description="Operators, peers in turns.")
    parser.add_argument("--operators", type=names, default=list(OPERATORS), help=f"default {','.join(OPERATORS)}")
    parser.add_argument("--batches", type=numbers, default=list(BATCHES), help="default 1,16")
    parser.add_argument("--folder", type=Path, default=Path("build/operators"), help="of models, default %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file, default %(default)s")
    add_terms(parser, seconds=1.0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
