"""``tilewright explain``: which nodes of a model can be compiled, and how each was compiled."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.cli.operator_names import operators_of
from tilewright.cli.options import add_compile_arguments, compiled, settings_of, shapes
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

if TYPE_CHECKING:
    from tilewright.frontend.api import Coverage, OperatorCount, Refusal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and ``--coverage``."""
    add_compile_arguments(parser)
    parser.add_argument("--coverage", action="store_true", help="show what can be compiled, without compiling")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Examine the model; compile and explain it if no node is refused."""
    from tilewright.frontend.opening import opened

    with reporting(f"reading {options.model}", plain_console(stderr=True, quiet=options.json)) as listener:
        covered = opened(options.model, operators=operators_of(options.operators)).coverage(shapes(options.shapes))
        made = None if covered.refusals or options.coverage else compiled(options, listener)
    records = settings_of(options).records
    known = records if records is not None and os.path.lexists(records) else None
    explanation = None if made is None else made.explain(covered.places, known)
    if options.json:
        told = None if explanation is None else explanation.to_json()
        report = {"model": str(options.model), "coverage": asdict(covered), "explanation": told}
        emit(report)
    else:
        _show(covered, console)
        if explanation is not None:
            explanation.show(console)
    return Status.UNSUPPORTED if covered.refusals else Status.DONE


def _show(covered: "Coverage", console: Console) -> None:
    console.print(_table(covered.operators))
    for refusal in covered.refusals:
        console.print(_line(refusal), soft_wrap=True)
    count, refused = len(covered.places), len(covered.refusals)
    consequences = sum(refusal.follows for refusal in covered.refusals)
    perhaps = f"; {consequences} of the others perhaps, too, without what is before them" if consequences else ""
    console.print(f"{count - refused} of {count} nodes can be compiled{perhaps}", soft_wrap=True)


def _line(refusal: "Refusal") -> str:
    consequence = " (perhaps because of a node before it)" if refusal.follows else ""
    return f"{refusal.node}: {refusal.reason}{consequence}"


def _table(operators: "Sequence[OperatorCount]") -> Table:
    table = Table(title="Operators")
    for heading in ("operator", "nodes", "refused"):
        table.add_column(heading, justify="left" if heading == "operator" else "right")
    for row in operators:
        table.add_row(row.operator, str(row.nodes), str(row.refused or ""), style="red" if row.refused else None)
    return table
