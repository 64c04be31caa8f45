"""Names of a user's model, made fit to print: they may hold anything, control characters and markup included."""

from collections.abc import Iterable

from rich.text import Text


def plain(*names: str) -> str:
    """The names, separated by commas, with control characters escaped."""
    return ", ".join(repr(name)[1:-1] for name in names)


def cell(names: Iterable[str]) -> Text:
    """The names as a cell of a table, in which nothing is markup."""
    return Text(plain(*names))
