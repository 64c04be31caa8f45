"""Decides which rules from files of users and of installed packages may be applied.

Given rules are applied wherever they match, or where a search rates them as faster. A rule with a stored proof (written
by ``tilewright rules verify --write``) may be applied if the proof can be replayed. A rule marked as ``tested`` is
applied only if the user names its file: the user is responsible for it. Results of replays are cached on disk, by the
content of the file and of the axioms.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tilewright import __version__
from tilewright.base.errors import BadInput
from tilewright.base.plugins import installed
from tilewright.base.store import Cache
from tilewright.passes.rules import Evidence, Rule
from tilewright.passes.rules.given import RuleFile
from tilewright.superopt.prove.axioms import axioms_text

GROUP = "tilewright.rules"
"""The group of entry points; each one is the path of a file."""


def doubts(file: RuleFile, cache: Cache | None = None, *, asked: bool = True) -> Mapping[str, str]:
    """Reasons why rules of ``file`` may not be applied, by name; ``asked``: whether a user named the file.

    Raises ``BadInput`` if it is no file of rules, and if it has proofs and egglog is not installed.
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
    """The names of rules with invalid stored proofs, and the reasons. Raises ``BadInput`` without egglog."""
    from tilewright.superopt.prove.verification import unproved

    try:
        for rule in rules:
            if why := unproved(rule):
                yield rule.name, why
    except BadInput as error:
        own = "or write `proof tested; 0 shapes` in the place of proofs, if you answer for the rules"
        raise BadInput(f"{file}: its proofs can't be replayed: {error}, {own}") from error


def _claim(rule: Rule, file: str, asked: bool) -> str:
    """The reason why a rule may not be applied; empty if it claims a proof, or is tested and ``asked`` for."""
    wanted = {Evidence.PROVED, *[Evidence.TESTED] * asked}
    if rule.proof is not None and rule.proof.evidence in wanted:
        return ""
    own = ", or write `proof tested; 0 shapes` below it, if you answer for it" * asked
    return f"it has no proof: {_finds(file)}{own}"


def _finds(file: str) -> str:
    return f"`tilewright rules verify --write {file}` looks for one"


def believed(file: RuleFile, cache: Cache | None, *, asked: bool) -> RuleFile:
    """``file``, if all its rules may be applied. Raises ``BadInput`` as ``doubts``, and for a rule that may not."""
    for name, why in doubts(file, cache, asked=asked).items():
        raise BadInput(f"{file.name}: the rule {name} can't be applied: {why}")
    return file


def given_rules(paths: Iterable[str | os.PathLike[str]], cache: Cache | None = None) -> tuple[RuleFile, ...]:
    """The files at ``paths``. Raises ``BadInput`` for unreadable files, and for rules that may not be applied."""
    return tuple(believed(RuleFile.read(path), cache, asked=True) for path in paths)


def installed_rules(cache: Cache | None = None) -> tuple[RuleFile, ...]:
    """The files of installed packages. Files that are unreadable or have unproved rules are skipped with a warning."""
    found: list[RuleFile] = []
    for name, path in installed(GROUP, Path).items():
        try:
            found.append(replace(believed(RuleFile.read(path), cache, asked=False), is_asked=False))
        except BadInput as error:
            logging.getLogger("tilewright").warning("the rules %s of a package are left out: %s", name, error)
    return tuple(found)
