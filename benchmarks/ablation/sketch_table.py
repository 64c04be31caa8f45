"""Tables of sketches: measured candidates of a box, with all that a search sees of them, as one file.

The knobs are in the file, so that what was recorded is replayed whatever sketches the compiler derives today.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.base import fields
from tilewright.base.errors import ScheduleError
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Floats, Mask, Space
from tilewright.space.union import Union
from tilewright.target.target import Target

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SketchTable:
    """`union`: of a box. `digits`: (candidates, knobs) of it. `microseconds`: (candidates,), infinity for failures.
    `is_careful`: (candidates,), whether a candidate was measured again, as it was one of the fastest."""

    union: Union
    digits: Digits
    microseconds: Floats
    is_careful: Mask

    @staticmethod
    def empty(union: Union) -> "SketchTable":
        """Without candidates."""
        return SketchTable(union, np.zeros((0, len(union.radices)), np.int64), np.zeros(0), np.zeros(0, np.bool_))

    def plus(self, digits: Digits, microseconds: Floats) -> "SketchTable":
        """With more candidates."""
        times = np.concatenate([self.microseconds, microseconds])
        careful = np.concatenate([self.is_careful, np.zeros(len(digits), np.bool_)])
        return SketchTable(self.union, np.concatenate([self.digits, digits]), times, careful)

    def save(self, path: Path) -> None:
        """Write the file."""
        text = np.array(described(self.union))
        digits = self.digits.astype(np.uint16)
        with path.open("wb") as file:
            np.savez_compressed(
                file, union=text, digits=digits, microseconds=self.microseconds, is_careful=self.is_careful
            )

    @staticmethod
    def load(path: Path) -> "SketchTable":
        """Read a file that `save` wrote."""
        with np.load(path) as file:
            union = read(str(file["union"]))
            times = file["microseconds"].astype(np.float64)
            return SketchTable(union, file["digits"].astype(np.int64), times, file["is_careful"].astype(np.bool_))


def described(union: Union) -> str:
    """What a search sees of a union, as text."""
    members = [
        {"label": label, "knobs": _knobs(member)} for label, member in zip(union.labels, union.members, strict=True)
    ]
    return json.dumps({"program": str(union.naive), "target": str(union.target), "members": members})


def _knobs(space: Space) -> list[tuple[str, tuple[Value, ...]]]:
    return [(knob.name, knob.values) for knob in space.knobs]


def read(text: str) -> Union:
    """The inverse of `described`. It can't be scheduled."""
    told = fields.mapping(json.loads(text))
    naive, target = parse_program(fields.text(told["program"])), Target.parse(fields.text(told["target"]))
    members = [fields.mapping(member) for member in fields.items(told["members"])]
    spaces = tuple(_space(naive, target, fields.items(member["knobs"])) for member in members)
    return Union(spaces, tuple(fields.text(member["label"]) for member in members))


def _space(naive: Program, target: Target, knobs: list[object]) -> Space:
    pairs = [fields.items(pair) for pair in knobs]
    read_knobs = [Knob(fields.text(name), tuple(map(_value, fields.items(values)))) for name, values in pairs]
    return Space(naive, target, Schedule(naive), _not_scheduled, tuple(read_knobs))


def _value(value: object) -> Value:
    return tuple(map(fields.whole, fields.items(value))) if isinstance(value, list) else fields.whole(value)


def _not_scheduled(schedule: Schedule, config: Config) -> None:
    raise ScheduleError("what is replayed from a table is not scheduled")


class TableCandidates:
    """The candidates of a table, as `Candidates`: no others are allowed, or drawn."""

    def __init__(self, table: SketchTable, labels: Collection[str] | None = None) -> None:
        """`labels`: of the sketches that take part; all by default."""
        self._union = table.union
        radices = table.union.radices
        if prod(radices) >= 1 << 62:
            raise ValueError("the table's box is too large to be indexed")
        wanted = [place for place, label in enumerate(table.union.labels) if labels is None or label in labels]
        rows = np.flatnonzero(np.isin(table.digits[:, 0], wanted))
        order = np.argsort(self._flat(table.digits[rows]))
        self._rows: Rows = rows[order]
        self._digits = table.digits[self._rows]
        self._index = self._flat(self._digits)
        counts = np.bincount(self._digits[:, 0], minlength=len(table.union.labels))
        weights = 1.0 / counts[self._digits[:, 0]]
        self._odds = weights / weights.sum()

    @property
    def naive(self) -> Program:
        """See `Candidates`."""
        return self._union.naive

    @property
    def target(self) -> Target:
        """See `Candidates`."""
        return self._union.target

    @property
    def radices(self) -> tuple[int, ...]:
        """See `Searchable`."""
        return self._union.radices

    def rows(self, digits: Digits) -> Rows:
        """Where candidates are in the table; -1 for those that are not."""
        flat = self._flat(digits)
        places = np.minimum(np.searchsorted(self._index, flat), len(self._index) - 1)
        return np.where(self._index[places] == flat, self._rows[places], -1)

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates are in the table."""
        return self.rows(digits) >= 0

    def sample(self, count: int, random: np.random.Generator) -> Digits:
        """Candidates of the table at random; sketches are equally likely, as in a `Union`."""
        return self._digits[random.choice(len(self._digits), count, p=self._odds)]

    def completed(self, digits: Digits, decided: int) -> Digits:
        """With the first values that the table has; in a whole box, those are the first values of all knobs."""
        result = self._union.completed(digits, decided)
        width = prod(self.radices[decided:])
        begin = self._flat(np.where(np.arange(len(self.radices)) < decided, digits, 0))
        places = np.minimum(np.searchsorted(self._index, begin), len(self._index) - 1)
        is_there = (self._index[places] >= begin) & (self._index[places] < begin + width)
        result[is_there] = self._digits[places[is_there]]
        return result

    def schedule(self, digits: Digits) -> Schedule:
        """Raises `ScheduleError`."""
        return self._union.schedule(digits)

    def features(self, digits: Digits) -> Floats:
        """See `Candidates`."""
        return self._union.features(digits)

    def analytic(self) -> Digits | None:
        """None: sketches have none."""
        return None

    def estimates(self, digits: Digits) -> Floats | None:
        """None."""
        return None

    def decisions(self, digits: Digits) -> tuple[tuple[str, str], ...]:
        """See `Candidates`."""
        return self._union.decisions(digits)

    def vary(self, digits: Digits, random: np.random.Generator) -> Digits:
        """See `Candidates`."""
        return self._union.vary(digits, random)

    def cross(self, first: Digits, second: Digits, random: np.random.Generator) -> Digits:
        """See `Candidates`."""
        return self._union.cross(first, second, random)

    def _flat(self, digits: Digits) -> Rows:
        """The first knob most significant: candidates that begin alike are neighbours."""
        return np.ravel_multi_index(tuple(digits.T), self._union.radices, mode="clip").astype(np.int64)
