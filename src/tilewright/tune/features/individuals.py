"""The statements of candidates of sketches without scheduling each: by patterns, of whole populations at once.

A candidate belongs to a pattern (``sketch.pattern``), whose features are arrays over symbols (``open_statements``). A
pattern is made of the first candidate that belongs to it, and is used only if it says of that candidate and another
one what their schedules say. What has no pattern is scheduled. Both take milliseconds, so a call has limits, and what
is beyond them is left out: that depends on the call alone, not on earlier ones. All of this is counted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.schedule.schedule import Schedule
from tilewright.sketch.derive import OfSketch
from tilewright.sketch.pattern import Pattern, pattern_of
from tilewright.space.space import Candidates, Digits, Floats, Space
from tilewright.space.union import Union
from tilewright.tune.features.open_statements import OpenStatements
from tilewright.tune.features.statements import NAMES, StatementRows, statement_features

_NOTHING: Floats = np.empty((0, len(NAMES)))
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one call: of how many patterns candidates are, and how many candidates without one are scheduled."""

    patterns: int = 64
    replays: int = 128


@dataclass(slots=True)
class Counts:
    """How many candidates were looked at, each way."""

    by_pattern: int = 0
    by_replay: int = 0
    left_out: int = 0
    """Beyond the limits."""
    patterns: int = 0
    untreated: Counter[str] = field(default_factory=Counter[str])
    """Why candidates have no pattern: how many were tried."""

    def __str__(self) -> str:
        text = (
            f"{self.by_pattern} candidates by {self.patterns} patterns, {self.by_replay} scheduled, "
            f"{self.left_out} left out"
        )
        reasons = "; ".join(f"{reason} ({count})" for reason, count in self.untreated.items())
        return f"{text}; no pattern: {reasons}" if reasons else text


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: Pattern
    statements: OpenStatements


class Individuals:
    """The statements of the candidates of one space."""

    def __init__(self, space: Candidates, limits: Limits | None = None) -> None:
        self.counts = Counts()
        self._space = space
        self._limits = limits or Limits()
        self._patterns: defaultdict[int, list[_Known]] = defaultdict(list)
        self._without: set[tuple[int, bytes]] = set()
        """Candidates that have no pattern."""
        self._scheduled: dict[bytes, Floats] = {}

    def of(self, digits: Digits, *, limited: bool = True) -> StatementRows:
        """The statements of (candidates, knobs); none of those that have no schedule, or are beyond the limits."""
        found: list[Floats | None] = [None] * len(digits)
        patterns = self._limits.patterns if limited else len(digits)
        for member, space, rows, own in self._members(digits):
            patterns -= self._by_patterns(member, space, rows, own, found, patterns)
        replays = self._limits.replays if limited else len(digits)
        missing = [row for row, features in enumerate(found) if features is None]
        for row in missing[:replays]:
            found[row] = self._by_replay(self._space.schedule, digits[row])
        self.counts.by_replay += len(missing[:replays])
        self.counts.left_out += len(missing[replays:])
        return StatementRows.of([_NOTHING if features is None else features for features in found])

    def _members(self, digits: Digits) -> Iterator[tuple[int, Space, Digits, Digits]]:
        """The sketches among the spaces, each with the rows of its candidates, and their digits in it."""
        spaces = self._space.members if isinstance(self._space, Union) else (self._space,)
        members = digits[:, 0] if isinstance(self._space, Union) else np.zeros(len(digits), np.int64)
        first = int(isinstance(self._space, Union))
        for member in dict.fromkeys(members.tolist()):
            space, rows = spaces[member], np.flatnonzero(members == member)
            if isinstance(space, Space) and isinstance(space.generator, OfSketch):
                yield member, space, rows, digits[rows, first : first + len(space.radices)]

    def _by_patterns(
        self, member: int, space: Space, rows: Digits, own: Digits, found: list[Floats | None], most: int
    ) -> int:
        """Fill in ``found`` at ``rows`` what up to ``most`` patterns say of ``own``; returns how many were asked."""
        left, asked = np.ones(len(rows), np.bool_), 0
        while left.any() and asked < most:
            first = int(np.argmax(left))
            known, asked = self._pattern(member, space, own[first], own), asked + 1
            if known is None:
                left[first] = False
                continue
            chosen = np.flatnonzero(left & known.pattern.matches(own))
            for row, features in zip(rows[chosen].tolist(), known.statements.features(own[chosen]), strict=True):
                found[row] = features
            self.counts.by_pattern += len(chosen)
            left[chosen] = False
        return asked

    def _pattern(self, member: int, space: Space, digits: Digits, population: Digits) -> _Known | None:
        """The pattern of a candidate of ``population``, made if it is new; None if there is none."""
        key = member, digits.tobytes()
        known = next((one for one in self._patterns[member] if one.pattern.matches(digits[None])[0]), None)
        if known is not None or key in self._without:
            return known
        try:
            known = _made(space, digits, population)
        except (ScheduleError, Unsupported) as error:
            self.counts.untreated[str(error).partition("\n")[0]] += 1
            self._without.add(key)
            return None
        self._patterns[member].append(known)
        self.counts.patterns += 1
        return known

    def _by_replay(self, schedule: Callable[[Digits], Schedule], digits: Digits) -> Floats:
        """The statements of one candidate that is scheduled; none if it has no schedule."""
        key = digits.tobytes()
        if key not in self._scheduled:
            try:
                self._scheduled[key] = statement_features(schedule(digits).program, self._space.target)
            except (ScheduleError, Unsupported):
                self._scheduled[key] = _NOTHING
        return self._scheduled[key]


def _made(space: Space, digits: Digits, population: Digits) -> _Known:
    """The pattern of a candidate; as wide a one as says of it, and of another one, what their schedules say.

    Raises ``Unsupported`` if there is none, and ``ScheduleError`` if the candidate has no schedule.
    """
    reason = ""
    for tiles_only in (False, True):
        try:
            pattern = pattern_of(space, digits, tiles_only=tiles_only)
            known = _Known(pattern, OpenStatements(pattern, space.knobs, space.target))
        except Unsupported as error:
            reason = str(error)
            continue
        alike = population[pattern.matches(population)]
        if all(_is_right(known.statements, space, one) for one in (digits, *alike[-1:])):
            return known
        reason = "the features of a pattern are not those of the schedule"
    raise Unsupported(reason)


def _is_right(statements: OpenStatements, space: Space, digits: Digits) -> bool:
    try:
        scheduled = statement_features(space.schedule(digits).program, space.target)
    except ScheduleError:
        return False
    found = statements.features(digits[None])[0]
    return found.shape == scheduled.shape and np.allclose(found, scheduled, rtol=0, atol=_TOLERANCE)
