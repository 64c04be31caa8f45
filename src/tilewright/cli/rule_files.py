"""Files of rules that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import BadInput, ParseError
from tilewright.base.files import reason
from tilewright.base.input_files import read_regular_text

if TYPE_CHECKING:
    from tilewright.passes.rules import Rule

MAX_BYTES = 64 << 20
"""Of a file of rules."""


def read_text(path: Path) -> str:
    """What is in it. Raises ``BadInput``."""
    try:
        return read_regular_text(path, MAX_BYTES)
    except OSError as error:
        raise BadInput(f"{path} can't be read: {reason(error)}") from error


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
