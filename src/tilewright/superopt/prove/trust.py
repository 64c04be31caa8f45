"""Files of rules that a user gives, or that installed packages have: which of their rules may be applied.

Rules that are given to who compiles are applied wherever they match, or where a search finds that they pay. A file says
of each that it is proved (``tilewright rules verify --write`` finds proofs), and then the proof is replayed here: text
proves nothing. Or it says that the rule is only tested: then who gives it answers for it. That a file was replayed is
remembered in the cache on disk, by its content and that of the axioms.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from tilewright import __version__
from tilewright.base.errors import BadInput
from tilewright.base.plugins import installed
from tilewright.base.store import Cache
from tilewright.passes.rules import Evidence, Rule
from tilewright.passes.rules.given import RuleFile
from tilewright.superopt.prove.axioms import axioms_text
from tilewright.superopt.prove.verification import unproved

GROUP = "tilewright.rules"
"""Of entry points: each is the path of a file."""


def doubts(file: RuleFile, cache: Cache | None = None, *, asked: bool = True) -> Mapping[str, str]:
    """Why rules of ``file`` may not be applied, by their names; ``asked``: whether somebody answers for tested ones.

    Raises ``BadInput`` if the file is none of rules, and if there are proofs and egglog is not installed.
    """
    found = {rule.name: why for rule in file.rules if (why := _claim(rule, file.name, asked))}
    stored = [rule for rule in file.rules if rule.proof is not None and rule.proof.evidence is Evidence.PROVED]
    if not stored:
        return found
    key = sha256(f"proofs {__version__} {axioms_text()} {file.text}".encode()).hexdigest()
    if cache is not None and cache.get(key) is not None:
        return found
    wrong = {name: f"its proof is refused: {why}; {_finds(file.name)}" for name, why in _unproved(file.name, stored)}
    if cache is not None and not wrong:
        cache.put(key, b"")
    return {**found, **wrong}


def _unproved(file: str, rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """The names of those whose stored proofs do not prove them, and why. Raises ``BadInput`` without egglog."""
    try:
        for rule in rules:
            if why := unproved(rule):
                yield rule.name, why
    except BadInput as error:
        own = "or write `proof tested; 0 shapes` in the place of proofs, if you answer for the rules"
        raise BadInput(f"{file}: its proofs can't be replayed: {error}, {own}") from error


def _claim(rule: Rule, file: str, asked: bool) -> str:
    """Why nobody answers for it; empty if its file says that it is proved, or somebody ``asked`` for what is tested."""
    wanted = {Evidence.PROVED, *[Evidence.TESTED] * asked}
    if rule.proof is not None and rule.proof.evidence in wanted:
        return ""
    own = ", or write `proof tested; 0 shapes` below it, if you answer for it" * asked
    return f"it has no proof: {_finds(file)}{own}"


def _finds(file: str) -> str:
    return f"`tilewright rules verify --write {file}` looks for one"


def believed(file: RuleFile, cache: Cache | None, *, asked: bool) -> RuleFile:
    """The file, if all of its rules may be applied. Raises ``BadInput`` as ``doubts``, and for a rule that may not."""
    for name, why in doubts(file, cache, asked=asked).items():
        raise BadInput(f"{file.name}: the rule {name} can't be applied: {why}")
    return file


def given_rules(paths: Iterable[str | os.PathLike[str]], cache: Cache | None = None) -> tuple[RuleFile, ...]:
    """The files at ``paths``. Raises ``BadInput`` for what can't be read, and for rules that nobody answers for."""
    return tuple(believed(RuleFile.read(path), cache, asked=True) for path in paths)


def installed_rules(cache: Cache | None = None) -> tuple[RuleFile, ...]:
    """Those of packages. A file that can't be read, or has rules that are not proved, is left out; the log says why."""
    found: list[RuleFile] = []
    for name, path in installed(GROUP, Path).items():
        try:
            found.append(believed(RuleFile.read(path), cache, asked=False))
        except BadInput as error:
            logging.getLogger("tilewright").warning("the rules %s of a package are left out: %s", name, error)
    return tuple(found)
