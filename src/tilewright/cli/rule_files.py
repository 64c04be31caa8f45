"""Files of rules that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import BadInput

if TYPE_CHECKING:
    from tilewright.passes.rules import Rule


def rule_paths(given: Sequence[Path]) -> tuple[list[Path], bool]:
    """The files that ``--rules`` names, and whether they are added (``+FILE``) to the built-in rules.

    Raises ``BadInput`` if only some have the ``+``.
    """
    marked = [str(path).startswith("+") for path in given]
    if any(marked) and not all(marked):
        raise BadInput("--rules: write + before all files (they are added to the usual rules), or before none")
    return [Path(str(path).removeprefix("+")) for path in given], all(marked)


def read_text(path: Path) -> str:
    """The content of the file. Raises ``BadInput``."""
    from tilewright.passes.rules.given import RuleFile

    return RuleFile.read(path).text


def read_rules(paths: Sequence[Path]) -> "list[Rule]":
    """The rules of all files. Raises ``BadInput`` naming the file."""
    from tilewright.passes.rules.given import RuleFile

    return [rule for path in paths for rule in RuleFile.read(path).rules]
