"""``tilewright rules prune``: drop rules that other rules imply."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.base.outputs import check_output, output
from tilewright.cli.options import file_path, positive
from tilewright.cli.output import emit
from tilewright.cli.rule_files import read_rules, read_text
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.passes.rules import Rule


_OPERATIONS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rules, for what purpose, and where to write the rules that are kept."""
    parser.add_argument("files", type=file_path, nargs="+", metavar="FILE", help="files of rules")
    parser.add_argument(
        "--search",
        action="store_true",
        help="keep rules that a search needs, in the form in which networks have them: any window, rank and bias as "
        "far as axioms prove it; directed, with proofs",
    )
    parser.add_argument(
        "--operations",
        type=positive,
        metavar="N",
        help="drop rules with more operations on both sides together (2 more for each output after the first); with "
        "--search, of those that are not of weights only (default then: 5)",
    )
    parser.add_argument("-o", "--out", type=file_path, metavar="FILE", help="where to write the rules that are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Prune, write, and show how many rules each step leaves."""
    if options.out is not None:
        check_output(options.out, inputs=options.files)
    rules = read_rules(options.files)
    kept, counts = _selected(rules, options) if options.search else _pruned(rules, options)
    if options.out is not None:
        with output(options.out, inputs=options.files) as file:
            file.write(_text(options.files, counts, kept).encode())
    if options.json:
        steps = [{"step": step, "rules": left} for step, left in counts.items()]
        emit({"output": None if options.out is None else str(options.out), "steps": steps})
    else:
        _show(counts, console)
    return Status.DONE


def _selected(rules: "Sequence[Rule]", options: argparse.Namespace) -> "tuple[Sequence[Rule], Mapping[str, int]]":
    """The rules for a search, and how many each step leaves."""
    from tilewright.superopt.generate.selection import select

    found = select(rules, options.operations or _OPERATIONS)
    return found.rules, {"all": len(rules), **{stage.value: left for stage, left in found.left.items()}}


def _pruned(rules: "Sequence[Rule]", options: argparse.Namespace) -> "tuple[Sequence[Rule], Mapping[str, int]]":
    """The rules that do not follow from others, and how many each step leaves."""
    from tilewright.superopt.generate.pruning import prune, size
    from tilewright.superopt.generate.selection import arithmetic

    counts = {"all": len(rules)}
    if options.operations is not None:
        rules = [rule for rule in rules if size(rule) <= options.operations + 2 * (len(rule.sources) - 1)]
        counts["small"] = len(rules)
    pruned = prune(rules, arithmetic())
    return pruned.rules, counts | {step.value: left for step, left in pruned.left.items()}


def _text(files: Sequence[Path], counts: Mapping[str, int], rules: "Sequence[Rule]") -> str:
    """The rules, preceded by the headers of the files that they come from."""
    from tilewright.passes.rules import print_rules

    headers = [line for file in files for line in read_text(file).splitlines() if line.startswith("# ")]
    steps = ", ".join(f"{step} {left}" for step, left in counts.items())
    return "\n".join([*headers, f"# Pruned by tilewright rules prune: {steps}"]) + "\n\n" + print_rules(rules)


def _show(counts: Mapping[str, int], console: Console) -> None:
    table = Table(title="Rules")
    table.add_column("after")
    table.add_column("left", justify="right")
    for step, left in counts.items():
        table.add_row(step, str(left))
    console.print(table)
