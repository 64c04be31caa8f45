"""Files of rules: those that a user gives, and those of packages that are installed.

Rules that are given to who compiles are applied wherever they match, or where a search finds that they pay. Each is
proved, as its file says (``tilewright rules verify --write`` finds proofs), or its file says that it is only tested:
then who gives it answers for it.
"""

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.base.errors import BadInput, ParseError
from tilewright.base.files import reason
from tilewright.base.input_files import read_regular_text
from tilewright.base.plugins import installed
from tilewright.passes.rules.terms import Evidence, Rule
from tilewright.passes.rules.text import parse_rules

GROUP = "tilewright.rules"
"""Of entry points: each is the path of a file."""
MAX_BYTES = 64 << 20
"""Of a file of rules."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file of rules as it was read; ``name``: what errors call it."""

    name: str
    text: str

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "RuleFile":
        """Raises ``BadInput``."""
        try:
            return RuleFile(str(path), read_regular_text(path, MAX_BYTES))
        except OSError as error:
            raise BadInput(f"{path} can't be read: {reason(error)}") from error

    @property
    def rules(self) -> tuple[Rule, ...]:
        """In its order. Raises ``BadInput``."""
        try:
            return _parsed(self.text)
        except ParseError as error:
            raise BadInput(f"{self.name}: {error}") from error

    def trusted(self, asked: bool) -> "RuleFile":
        """The file, if it says why each rule is believed; of tested ones only where somebody ``asked``.

        Raises ``BadInput``.
        """
        wanted = {Evidence.PROVED, *[Evidence.TESTED] * asked}
        for rule in self.rules:
            if rule.proof is None or rule.proof.evidence not in wanted:
                ways = f"`tilewright rules verify --write {self.name}` looks for one"
                own = ", or write `proof tested; 0 shapes` below it, if you answer for it" * asked
                raise BadInput(f"{self.name}: the rule {rule.name} has no proof: {ways}{own}")
        return self


@lru_cache(maxsize=16)
def _parsed(text: str) -> tuple[Rule, ...]:
    return tuple(parse_rules(text))


def given_rules(paths: Iterable[str | os.PathLike[str]]) -> tuple[RuleFile, ...]:
    """The files at ``paths``. Raises ``BadInput`` for what can't be read, and for rules that nobody answers for."""
    return tuple(RuleFile.read(path).trusted(asked=True) for path in paths)


def installed_rules() -> tuple[RuleFile, ...]:
    """Those of packages. A file that can't be read, or has rules that are not proved, is left out; the log says why."""
    found: list[RuleFile] = []
    for name, path in installed(GROUP, Path).items():
        try:
            found.append(RuleFile.read(path).trusted(asked=False))
        except BadInput as error:
            logging.getLogger("tilewright").warning("the rules %s of a package are left out: %s", name, error)
    return tuple(found)
