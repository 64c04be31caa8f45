"""The axioms: what is taken for true, as text (``axioms.rules``).

A family of axioms that differ in an operator, an axis or a rank is written once::

    each F in Relu | Exp
    each A, D in -1: | -2: , k
    rule F-of-concat.A
      for x[*s, n1 D], y[*s, n2 D]
      from F(Concat(x, y, axis=A))
      to Concat(F(x), F(y), axis=A)

is four axioms: ``Relu-of-concat.-1``, ``Relu-of-concat.-2`` and so on.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import product

from tilewright.base.errors import ParseError
from tilewright.passes.rules import Evidence, Proof, Rule, parse_rules


@cache
def axioms() -> Mapping[str, Rule]:
    """All axioms by name, in the order of the file."""
    text = files("tilewright.superopt").joinpath("axioms.rules").read_text(encoding="utf-8")
    return {rule.name: replace(rule, proof=Proof(Evidence.DEFINED)) for rule in parse_axioms(text)}


def parse_axioms(text: str) -> list[Rule]:
    """Rules with families. Raises ``ParseError``."""
    return parse_rules("\n\n".join(_expanded(text)))


def _expanded(text: str) -> Iterator[str]:
    """Each rule, the words of its families replaced."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        families = [_cases(line) for line in lines if line.startswith("each ")]
        body = "\n".join(line for line in lines if not line.startswith("each "))
        if body:
            yield from (_replaced(body, choice) for choice in product(*families))


def _cases(line: str) -> list[dict[str, str]]:
    """What the words of one family are replaced by, for each of its cases."""
    names, separator, cases = line.removeprefix("each ").partition(" in ")
    words = [name.strip() for name in names.split(",")]
    rows = [[part.strip() for part in case.split(":")] for case in cases.split("|")]
    if not separator or any(len(row) != len(words) for row in rows):
        raise ParseError(f"`{line}`: write `each A, B in a: b | c: d`, as many entries as there are words")
    return [dict(zip(words, row, strict=True)) for row in rows]


def _replaced(body: str, choice: tuple[dict[str, str], ...]) -> str:
    values = {word: value for case in choice for word, value in case.items()}
    if not values:
        return body
    first, newline, rest = body.partition("\n")
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, values))})\b")
    name = pattern.sub(lambda found: values[found[1]].replace(", ", ""), first)
    return name + newline + pattern.sub(lambda found: values[found[1]], rest)
