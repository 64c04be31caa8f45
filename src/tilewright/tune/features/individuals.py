"""The statements of candidates of sketches without scheduling each: by patterns, of whole populations at once.

A candidate belongs to a pattern (``sketch.pattern``), whose features are arrays over symbols (``open_statements``). A
pattern is made of the first candidate that belongs to it, and is used only if it says of that candidate and a few
others what their schedules say. What has no pattern is scheduled. Both take milliseconds, so a call has limits, which
depend on the call alone, not on earlier ones. All of this is counted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.schedule.schedule import Schedule
from tilewright.sketch.derive import OfSketch
from tilewright.sketch.pattern import NoPattern, Pattern, chosen, pattern_of
from tilewright.space.space import Candidates, Digits, Floats, Mask, Space
from tilewright.space.union import Union
from tilewright.tune.features.open_statements import OpenStatements
from tilewright.tune.features.statements import NAMES, StatementRows, statement_features

_NOTHING: Floats = np.empty((0, len(NAMES)))
_TOLERANCE = 1e-9
SAMPLED, LEAST_COVERED = 256, 0.9
CHECKED = 3
"""Candidates of a population whose schedules a new pattern is compared with, besides the one that it is made of."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one call: of how many patterns candidates are, and how many without one are scheduled; by default all.

    A pattern takes longer than a few schedules. So after ``poor`` patterns of a sketch, or tries to find one, that are
    each of fewer than ``fewest`` candidates of the call, its other candidates are scheduled.
    """

    patterns: int = 64
    replays: int | None = None
    fewest: int = 8
    poor: int = 3


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
        self._without: defaultdict[int, list[NoPattern]] = defaultdict(list)
        """Candidates that have no pattern."""
        self._scheduled: dict[bytes, Floats] = {}

    def of(self, digits: Digits) -> StatementRows:
        """The statements of (candidates, knobs); none of those that have no schedule, or are beyond the limits."""
        found: list[Floats | None] = [None] * len(digits)
        patterns = self._limits.patterns
        for member, space, rows, own in self._members(digits):
            patterns -= self._by_patterns(member, space, rows, own, found, patterns)
        replays = len(digits) if self._limits.replays is None else self._limits.replays
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
        left, asked, poor = np.ones(len(rows), np.bool_), 0, 0
        while left.any() and asked < most and poor < self._limits.poor:
            first = int(np.argmax(left))
            known, asked = self._pattern(member, space, own[first], own), asked + 1
            if isinstance(known, NoPattern):
                alike = np.flatnonzero(left & chosen(known.options, own))
                poor += len(alike) < self._limits.fewest
                left[alike] = False
                continue
            alike = np.flatnonzero(left & known.pattern.matches(own))
            for row, features in zip(rows[alike].tolist(), known.statements.features(own[alike]), strict=True):
                found[row] = features
            self.counts.by_pattern += len(alike)
            poor += len(alike) < self._limits.fewest
            left[alike] = False
        return asked

    def _pattern(self, member: int, space: Space, digits: Digits, population: Digits) -> _Known | NoPattern:
        """The pattern of a candidate of ``population``, made if it is new; or that there is none."""
        known = next((one for one in self._patterns[member] if one.pattern.matches(digits[None])[0]), None)
        if known is not None:
            return known
        without = next((one for one in self._without[member] if chosen(one.options, digits[None])[0]), None)
        if without is not None:
            return without
        try:
            known = _made(space, digits, population)
        except NoPattern as error:
            self.counts.untreated[str(error).partition("\n")[0]] += 1
            self._without[member].append(error)
            return error
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


def is_covered(space: Candidates) -> bool:
    """Whether nearly all of a large population would be looked at by patterns: of a sample, it is."""
    individuals = Individuals(space, Limits(replays=0))
    individuals.of(space.sample(SAMPLED, np.random.default_rng(0)))
    return individuals.counts.by_pattern >= LEAST_COVERED * SAMPLED


def _made(space: Space, digits: Digits, population: Digits) -> _Known:
    """The pattern of a candidate; as wide a one as says of it, and of another one, what their schedules say.

    Raises ``NoPattern`` if there is none.
    """
    options: Mapping[int, Mask] = {knob: np.arange(radix) == digits[knob] for knob, radix in enumerate(space.radices)}
    reason = ""
    for tiles_only in (False, True):
        try:
            pattern = pattern_of(space, digits, tiles_only=tiles_only)
            known = _Known(pattern, OpenStatements(pattern, space.knobs, space.target))
        except NoPattern as error:
            reason, options = str(error), error.options
            continue
        except (ScheduleError, Unsupported) as error:
            reason = str(error)
            continue
        alike = population[pattern.matches(population)]
        if all(_is_right(known.statements, space, one) for one in (digits, *alike[-CHECKED:])):
            return known
        reason, options = "the features of a pattern are not those of the schedule", pattern.options
    raise NoPattern(reason, options)


def _is_right(statements: OpenStatements, space: Space, digits: Digits) -> bool:
    try:
        scheduled = statement_features(space.schedule(digits).program, space.target)
    except ScheduleError:
        return False
    found = statements.features(digits[None])[0]
    return found.shape == scheduled.shape and np.allclose(found, scheduled, rtol=0, atol=_TOLERANCE)
