"""``tilewright rules generate``: find rewrite rules by enumeration."""

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.base.errors import BadInput, ParseError
from tilewright.base.outputs import check_output, output
from tilewright.cli.options import file_path, positive, seed
from tilewright.cli.output import emit
from tilewright.cli.rule_files import read_text
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

if TYPE_CHECKING:
    from tilewright.superopt.generate.enumeration import Level
    from tilewright.superopt.generate.operations import Family
    from tilewright.superopt.generate.pipeline import Generation

_DEEPEST = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which operations to combine, to what depth, and where to write the rules."""
    parser.add_argument("--depth", type=positive, default=3, help="operations per side (default: %(default)s)")
    parser.add_argument("--outputs", type=int, choices=(1, 2), default=1, help="maximum outputs of a rule (default: 1)")
    parser.add_argument("--families", metavar="NAME,...", help="which sets of operations (default: all)")
    parser.add_argument("--family", type=file_path, metavar="FILE", help="a file of families of your own")
    parser.add_argument("--seed", type=seed, default=0, help="of random values; the same one, the same rules")
    parser.add_argument("-o", "--out", type=file_path, metavar="FILE", help="where to write the rules")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Generate, write, and show what each level took."""
    from tilewright.superopt.generate.pipeline import Plan, generate, print_generations

    families = _families(options)
    if options.out is not None:
        check_output(options.out, inputs=[] if options.family is None else [options.family])
    if options.depth > _DEEPEST:
        raise BadInput(f"--depth {options.depth}: at most {_DEEPEST} can be enumerated")
    progress = plain_console(stderr=True, quiet=options.quiet or options.json)
    found: list[Generation] = []
    gc.freeze()  # imported modules stay alive; exempt them from garbage collection
    for family in families:
        progress.print(f"generating {family.name} ...")
        plan = Plan(family, options.depth, options.outputs, options.seed)
        found.append(generate(plan, lambda level: progress.print(_line(level))))
    if options.out is not None:
        with output(options.out) as file:
            file.write(print_generations(found).encode())
    if options.json:
        emit({"output": None if options.out is None else str(options.out), "families": list(map(_report, found))})
    else:
        _show(found, console)
    return Status.DONE


def _families(options: argparse.Namespace) -> "Sequence[Family]":
    """Those that are named, of the file and of those built in; if none is, all of the file, or all built in."""
    from tilewright.superopt.generate.library import FAMILIES

    own = [] if options.family is None else _own_families(options.family)
    known = {family.name: family for family in (*FAMILIES, *own)}
    if options.families is None:
        return own or FAMILIES
    for name in options.families.split(","):
        if name not in known:
            raise BadInput(f"--families {options.families}: there is no {name}; there are {', '.join(known)}")
    return [known[name] for name in options.families.split(",")]


def _own_families(path: Path) -> "list[Family]":
    """Raises ``BadInput`` naming the file and the line."""
    from tilewright.superopt.generate.family_text import parse_families

    try:
        found = parse_families(read_text(path))
    except ParseError as error:
        raise BadInput(f"{path}: {error}") from error
    if not found:
        raise BadInput(f"{path}: there is no family in it; write `family NAME`, and below it what it has")
    return found


def _line(level: "Level") -> str:
    return f"  level {level.depth}: {level.evaluations} evaluations, {level.classes} new values, {level.seconds:.1f} s"


def _report(generation: "Generation") -> dict[str, object]:
    levels = [
        {
            "depth": level.depth,
            "evaluations": level.evaluations,
            "classes": level.classes,
            "candidates": level.candidates,
            "seconds": level.seconds,
            "memory_bytes": level.memory,
        }
        for level in generation.levels
    ]
    fates = [{"fate": fate.value, "candidates": count} for fate, count in generation.fates.items()]
    return {
        "family": generation.plan.family.name,
        "levels": levels,
        "fates": fates,
        "rules": len(generation.rules),
        "seconds": generation.seconds,
    }


def _show(generations: "Sequence[Generation]", console: Console) -> None:
    levels = Table(title="Levels")
    for heading in ("family", "operations", "evaluations", "new values", "candidates", "seconds", "memory MB"):
        levels.add_column(heading, justify="left" if heading == "family" else "right")
    fates = Table(title="Candidates")
    for heading in ("family", "what became of them", "candidates"):
        fates.add_column(heading, justify="right" if heading == "candidates" else "left")
    for generation in generations:
        name = generation.plan.family.name
        for level in generation.levels:
            counts = (level.depth, level.evaluations, level.classes, level.candidates)
            levels.add_row(name, *map(str, counts), f"{level.seconds:.2f}", f"{level.memory / 1e6:.0f}")
        for fate, count in generation.fates.items():
            fates.add_row(name, fate.value, str(count))
    console.print(levels)
    console.print(fates)
    for generation in generations:
        told = f"{generation.plan.family.name}: {len(generation.rules)} rules in {generation.seconds:.1f} s"
        console.print(told)
