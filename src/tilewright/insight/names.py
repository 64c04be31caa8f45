"""Names of a user's model, made fit to print: they may hold anything, control characters and markup included."""

from collections.abc import Iterable

from rich.text import Text

from tilewright.base.names import readable


def plain(*names: str) -> str:
    """The names, separated by commas: see ``base.names.readable``."""
    return ", ".join(map(readable, names))


def cell(names: Iterable[str]) -> Text:
    """The names as a cell of a table, in which nothing is markup."""
    return Text(plain(*names))
