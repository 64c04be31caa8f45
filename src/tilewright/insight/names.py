"""Names of a user's model as printable text: they may contain anything, including control characters and markup."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

from tilewright.base.names import readable


def plain(*names: str) -> str:
    """The names, separated by commas: see ``base.names.readable``."""
    return ", ".join(map(readable, names))


def cell(names: Iterable[str]) -> "Text":
    """The names as a cell of a table, without markup."""
    from rich.text import Text

    return Text(plain(*names))
