"""Files of rules, as they are read. Which of them are believed, ``superopt.prove.trust`` says."""

import os
from dataclasses import dataclass
from functools import lru_cache

from tilewright.base.errors import BadInput, ParseError
from tilewright.base.files import reason
from tilewright.base.input_files import read_regular_text
from tilewright.passes.rules.terms import Rule
from tilewright.passes.rules.text import parse_rules

MAX_BYTES = 64 << 20
"""Maximum bytes of a file of rules."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file of rules; ``name``: for errors; ``is_asked``: whether a user named it, rather than a package."""

    name: str
    text: str
    is_asked: bool = True

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "RuleFile":
        """Read the file. Raises ``BadInput``."""
        try:
            return RuleFile(str(path), read_regular_text(path, MAX_BYTES))
        except OSError as error:
            raise BadInput(f"{path} can't be read: {reason(error)}") from error

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Its rules, in order. Raises ``BadInput``."""
        try:
            return _parsed(self.text)
        except ParseError as error:
            raise BadInput(f"{self.name}: {error}") from error


@lru_cache(maxsize=16)
def _parsed(text: str) -> tuple[Rule, ...]:
    return tuple(parse_rules(text))
