"""Files of rules that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import BadInput, ParseError

if TYPE_CHECKING:
    from tilewright.passes.rules import Rule


def read_text(path: Path) -> str:
    """What is in it. Raises ``BadInput``."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} can't be read: {error}") from error


def read_rules(paths: Sequence[Path]) -> "list[Rule]":
    """The rules of all of them. Raises ``BadInput`` naming the file."""
    from tilewright.passes.rules import parse_rules

    found: list[Rule] = []
    for path in paths:
        try:
            found += parse_rules(read_text(path))
        except ParseError as error:
            raise BadInput(f"{path}: {error}") from error
    return found
