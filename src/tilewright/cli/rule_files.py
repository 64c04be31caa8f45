"""Files of rules that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.passes.rules import Rule


def read_text(path: Path) -> str:
    """What is in it. Raises ``BadInput``."""
    from tilewright.passes.rules.given import RuleFile

    return RuleFile.read(path).text


def read_rules(paths: Sequence[Path]) -> "list[Rule]":
    """The rules of all of them. Raises ``BadInput`` naming the file."""
    from tilewright.passes.rules.given import RuleFile

    return [rule for path in paths for rule in RuleFile.read(path).rules]
