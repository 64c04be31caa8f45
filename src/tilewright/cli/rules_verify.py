"""``tilewright rules verify``: prove rules, or find shapes at which they are false."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.base.errors import BadInput
from tilewright.base.outputs import output
from tilewright.cli.options import file_path, positive
from tilewright.cli.output import emit
from tilewright.cli.rule_files import read_rules, read_text
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.passes.rules import Rule
    from tilewright.superopt.prove.verification import Finding

_BUILT_IN = "built-in"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rules, and which prover."""
    parser.add_argument(
        "files", type=Path, nargs="*", metavar="FILE", help="files of rules (default: the built-in axioms and rules)"
    )
    parser.add_argument(
        "--engine",
        choices=("egglog", "z3", "field"),
        default="egglog",
        help="the prover: egglog; z3, independent of it; field, which only evaluates (default: %(default)s)",
    )
    parser.add_argument(
        "--shapes", type=positive, default=4, metavar="N", help="instances to evaluate first (default: %(default)s)"
    )
    parser.add_argument(
        "--write", action="store_true", help="find proofs and write them to the files before verification"
    )
    parser.add_argument(
        "--axioms",
        type=file_path,
        nargs="?",
        const=True,
        metavar="FILE",
        help="a file of axioms of your own, beside those built in; without files of rules, check these axioms (without "
        "FILE, those built in): at every small size, against each other, for need of them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Verify all rules, show those that fail; the status is 1 if any fails."""
    from tilewright.superopt.prove.verification import Engine, verify

    own = _own_axioms(options)
    if options.axioms is not None and not options.files:
        return _check_axioms(own, options, console)
    if options.write:
        if own:
            raise BadInput("--write stores proofs from the axioms built in only: leave --axioms out")
        _write_proofs(options.files, options.shapes)
    engine = Engine(options.engine)
    found: list[tuple[str, Finding]] = []
    for name, rules in _rules(options.files).items():
        found += [(name, finding) for finding in verify(rules, engine, shapes=options.shapes, own=own)]
    failures = [(name, finding) for name, finding in found if not finding.holds]
    if options.json:
        proofs = _proofs([finding for _, finding in found])
        failed = [_report(*pair) for pair in failures]
        emit({"engine": options.engine, "rules": len(found), "proofs": proofs, "failures": failed})
    else:
        _show(failures, console)
        for engine, count in _proofs([finding for _, finding in found]).items():
            console.print(f"{engine} proves {count} rules")
        console.print(f"{len(found) - len(failures)} of {len(found)} rules hold")
    return _status([finding for _, finding in failures])


def _status(failures: "Sequence[Finding]") -> Status:
    """One rule that is false is worse than any that is not provable."""
    from tilewright.superopt.prove.verification import Verdict

    if any(finding.verdict is Verdict.FALSE for finding in failures):
        return Status.DIFFERENT
    return Status.UNPROVED if failures else Status.DONE


def _own_axioms(options: argparse.Namespace) -> "tuple[Rule, ...]":
    """Raises ``BadInput`` for a file that has none, and for axioms that must not be taken for true."""
    from tilewright.passes.rules.given import RuleFile
    from tilewright.superopt.prove.own_axioms import own_axioms

    if options.axioms is True and options.files:
        raise BadInput(
            "--axioms without FILE checks the axioms built in: name a file of axioms, or leave the rules out"
        )
    if not isinstance(options.axioms, Path):
        return ()
    found = own_axioms(RuleFile.read(options.axioms))
    if not found:
        raise BadInput(f"{options.axioms}: there is no axiom in it; write some in the notation of rules")
    return found


def _check_axioms(own: "tuple[Rule, ...]", options: argparse.Namespace, console: Console) -> int:
    from tilewright.superopt.prove.axiom_checks import check_axioms
    from tilewright.superopt.prove.axioms import axioms

    found = list(check_axioms(own or list(axioms().values()), own=own))
    failures = [check for check in found if not check.holds]
    redundant = [check.axiom.name for check in found if check.is_redundant]
    if options.json:
        names = [check.axiom.name for check in failures]
        emit({"axioms": len(found), "shapes": sum(c.shapes for c in found), "redundant": redundant, "failures": names})
        return Status.DIFFERENT if failures else Status.DONE
    for check in failures:
        where = check.contradiction or check.counterexample or "no instance"
        console.print(f"{check.axiom.name}: {where}")
    complete, shapes = (sum(check.is_complete for check in found), sum(check.shapes for check in found))
    holding = f"{len(found) - len(failures)} of {len(found)} axioms hold at {shapes} choices of sizes up to 4"
    names = f": {', '.join(redundant)}" if redundant else ""
    told = f"{holding} ({complete} of them at every choice); {len(redundant)} follow from others{names}"
    console.print(told, soft_wrap=True)
    return Status.DIFFERENT if failures else Status.DONE


def _rules(files: Sequence[Path]) -> "dict[str, Sequence[Rule]]":
    from tilewright.superopt.prove.verification import built_in

    if not files:
        return {_BUILT_IN: built_in()}
    return {str(path): read_rules([path]) for path in files}


def _write_proofs(files: Sequence[Path], shapes: int) -> None:
    from tilewright.superopt.prove.stored_proofs import with_proofs

    if not files:
        raise BadInput("--write: name the files of rules to write proofs into")
    for path in files:
        text = with_proofs(read_text(path), shapes)
        with output(path) as file:  # in place: --write asks for it
            file.write(text.encode())


def _proofs(findings: "Sequence[Finding]") -> dict[str, int]:
    """How many rules each prover proves, of those given to it."""
    opinions = [opinion for finding in findings for opinion in finding.opinions]
    names = dict.fromkeys(opinion.engine.value for opinion in opinions)
    return {name: sum(o.engine.value == name and not o.reason for o in opinions) for name in names}


def _report(name: str, finding: "Finding") -> dict[str, object]:
    where = _where(finding) or None
    return {
        "file": name,
        "rule": finding.rule.name,
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "counterexample": where,
    }


def _show(failures: "Sequence[tuple[str, Finding]]", console: Console) -> None:
    if not failures:
        return
    table = Table(title="Rules that fail")
    for heading in ("file", "rule", "why", "for example at"):
        table.add_column(heading, overflow="fold")
    for name, finding in failures:
        table.add_row(name, finding.rule.name, finding.reason, _where(finding))
    console.print(table)


def _where(finding: "Finding") -> str:
    """Sizes, and numbers if there are any, at which the sides differ."""
    found = finding.witness or finding.counterexample
    return "" if found is None else str(found)
