"""The text of rules of algebra."""

from collections.abc import Iterator
from pathlib import Path

import tilewright.passes.rules
import tilewright.superopt.prove
from fuzz.target import Target
from tilewright.passes.rules.text import parse_rules, print_rules


def check(data: bytes) -> None:
    """What is parsed prints as text that is parsed to the same rules."""
    rules = parse_rules(data.decode("utf-8", "surrogateescape"))
    assert parse_rules(print_rules(rules)) == rules


def seeds() -> Iterator[bytes]:
    """Blocks of the package's own rules."""
    folders = (Path(module.__file__ or "").parent for module in (tilewright.passes.rules, tilewright.superopt.prove))
    for folder in folders:
        for path in sorted(folder.glob("*.rules")):
            yield from (block.encode() for block in path.read_text().split("\n\n")[:40] if "rule " in block)


WORDS = ("rule ", "each ", "ranks 1 to 3", "  for ", "  let ", "  from ", "  to ", "  need ", "  proof ", " in ", "...")
TARGET = Target(
    "rules", check, seeds, words=(*WORDS, "weight[", "axis=", "**rest", "*b", "MatMul(", ".1", "//", "1:"), runs=60_000
)
