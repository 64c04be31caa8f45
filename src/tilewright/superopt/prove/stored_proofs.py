"""Finds proofs for files of rules, and writes them into the lines ``proof`` and ``need``.

A block that expands to rules for several ranks or cases has one line, with the axioms that any of its rules needs.
Axioms for the rank of the rule are named ``NAME-*d``.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from tilewright.base.errors import BadProgram
from tilewright.passes.rules import Evidence, Proof, Rule
from tilewright.passes.rules.text import Block, parse_blocks, print_proof
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.preconditions import find_needs
from tilewright.superopt.prove.proofs import find_proof
from tilewright.superopt.prove.witness import tried


def with_proofs(text: str, shapes: int) -> str:
    """``text``, a file of rules, with a new proof for each block that axioms prove.

    A rule that is false at some extents gets a line ``need``, if conditions are found with which it is proved. Blocks
    without a proof keep their lines. ``shapes``: the number of shapes at which each rule is evaluated.
    Needs the extra ``superopt``. Raises ``ParseError``.
    """
    text = _with_needs(text, shapes)
    lines = text.splitlines()
    blocks = parse_blocks(text)
    proofs = list(_proofs(blocks, shapes))
    for block, proof in reversed(list(zip(blocks, proofs, strict=True))):
        if proof is not None:
            lines.insert(block.last, f"  {print_proof(proof)}")
            for number in sorted(block.proofs, reverse=True):
                del lines[number - 1]
    return "\n".join(lines) + "\n"


def _with_needs(text: str, shapes: int) -> str:
    lines = text.splitlines()
    for block in reversed(parse_blocks(text)):
        if len(block.rules) == 1 and not block.rules[0].needs:
            false = try_rule(block.rules[0], shapes=shapes).counterexample is not None
            needs = find_needs(block.rules[0]) if false else None
            if needs is not None:
                lines.insert(block.last, f"  need {', '.join(map(str, needs))}")
    return "\n".join(lines) + "\n"


def _proofs(blocks: Sequence[Block], shapes: int) -> Iterator[Proof | None]:
    """The proof of each block; proofs of earlier blocks are tried first, starting with the latest."""
    guesses: list[frozenset[str]] = []
    for block in blocks:
        found = _of_block(block, shapes, guesses[-8:][::-1])
        if found is not None:
            guesses.append(frozenset(found.axioms))
        yield found


def _of_block(block: Block, shapes: int, guesses: Sequence[frozenset[str]]) -> Proof | None:
    """The proof of a block: the axioms that any of its rules needs."""
    needed: set[str] = set()
    shapes_tried: list[int] = []
    for rule in block.rules:
        rank = _rank(block, rule)
        names = _found(rule, [axioms().keys() & {_at(name, rank) for name in names} for names in (needed, *guesses)])
        trial = tried(rule, shapes)
        if names is None or not trial.holds:
            return None
        needed |= {_general(name, block.ranks, rank) for name in names}
        shapes_tried.append(trial.shapes)
    return Proof(Evidence.PROVED, tuple(sorted(needed)), min(shapes_tried))


def _found(rule: Rule, guesses: Sequence[Collection[str]]) -> tuple[str, ...] | None:
    try:
        return find_proof(rule, guesses)
    except BadProgram:
        return None


def _rank(block: Block, rule: Rule) -> int | None:
    return None if block.ranks is None else block.ranks[block.rules.index(rule) % len(block.ranks)]


def _at(name: str, rank: int | None) -> str:
    return name if rank is None else name.replace("-*d", f"-{rank}d")


def _general(name: str, ranks: range | None, rank: int | None) -> str:
    """The name of the axiom for any of ``ranks``, if there is one for each; else ``name``."""
    if ranks is None or not name.endswith(f"-{rank}d"):
        return name
    general = re.sub(r"-\d+d$", "-*d", name)
    return general if all(_at(general, other) in axioms() for other in ranks) else name
