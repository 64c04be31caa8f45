"""Consoles that print names, paths and texts of users as they are."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console(*, stderr: bool = False, quiet: bool = False) -> "Console":
    """A console that takes nothing for markup (``[bold]``) or for an emoji (``:x:``), and gives numbers no colours."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)
