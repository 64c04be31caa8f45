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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rules, for what purpose, and where to write the rules that are kept."""
    parser.add_argument("files", type=file_path, nargs="+", metavar="FILE", help="files of rules")
    parser.add_argument(
        "--search",
        action="store_true",
        help="keep rules useful to a search and not implied by always-on rules; directed, with proofs",
    )
    parser.add_argument(
        "--operations",
        type=positive,
        metavar="N",
        help="drop rules with more operations on both sides together (2 more for each output after the first)",
    )
    parser.add_argument("-o", "--out", type=file_path, metavar="FILE", help="where to write the rules that are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Prune, write, and show how many rules each step leaves."""
    from tilewright.superopt.generate.gains import paying
    from tilewright.superopt.generate.pruning import prune, size
    from tilewright.superopt.generate.selection import arithmetic, is_provable, proved, that_always_run

    if options.out is not None:
        check_output(options.out, inputs=options.files)
    rules = read_rules(options.files)
    counts = {"all": len(rules)}
    if options.operations is not None:
        rules = [rule for rule in rules if size(rule) <= options.operations + 2 * (len(rule.sources) - 1)]
        counts["small"] = len(rules)
    given = arithmetic()
    if options.search:
        given += that_always_run()
        rules = [rule for rule in rules if any(paying(rule))]
        counts["may pay"] = len(rules)
        rules = [rule for rule in rules if is_provable(rule)]
        counts["proved"] = len(rules)
    pruned = prune(rules, given)
    counts |= {step.value: left for step, left in pruned.left.items()}
    kept: Sequence[Rule] = pruned.rules
    if options.search:
        kept = proved([directed for rule in kept for directed in paying(rule)])
        counts["in each direction that may pay"] = len(kept)
    if options.out is not None:
        with output(options.out, inputs=options.files) as file:
            file.write(_text(options.files, counts, kept).encode())
    if options.json:
        steps = [{"step": step, "rules": left} for step, left in counts.items()]
        emit({"output": None if options.out is None else str(options.out), "steps": steps})
    else:
        _show(counts, console)
    return Status.DONE


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
