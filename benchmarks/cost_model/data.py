"""The data set: the statements of what was recorded, as features, with tasks and times. One file, made from records."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import Unsupported
from tilewright.kernels.dot_products import all_dot_products
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Phase
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace
from tilewright.space.space import Floats
from tilewright.target.target import Target
from tilewright.tune.features.statements import StatementRows, statement_features
from tilewright.tune.models.statements import MeasuredPrograms

from .tasks import Task

Indices = NDArray[np.int64]
CHUNK = 32


@dataclass(frozen=True, slots=True)
class Data:
    """``names`` and ``networks``: of each task; ``tasks`` and ``microseconds``: of each program of ``statements``."""

    names: tuple[str, ...]
    networks: tuple[str, ...]
    tasks: Indices
    microseconds: Floats
    statements: StatementRows

    def __len__(self) -> int:
        """How many programs these are."""
        return len(self.tasks)

    @property
    def programs(self) -> Indices:
        """A number for each program, the same for those that no feature tells apart."""
        offsets, rows = self.statements.offsets.tolist(), self.statements.rows
        keys = [rows[first:last].tobytes() for first, last in pairwise(offsets)]
        known: dict[tuple[int, bytes], int] = {}
        return np.array([known.setdefault(key, len(known)) for key in zip(self.tasks.tolist(), keys, strict=True)])

    @property
    def labels(self) -> Floats:
        """(programs,): the least time of the task's programs, as a part of each one's."""
        best = np.full(len(self.names), np.inf)
        np.minimum.at(best, self.tasks, self.microseconds)
        return best[self.tasks] / self.microseconds

    def take(self, which: Indices) -> "Data":
        """Some of the programs."""
        taken = self.statements.take(which)
        return Data(self.names, self.networks, self.tasks[which], self.microseconds[which], taken)

    def history(self) -> list[MeasuredPrograms]:
        """What a model learns from: each task by itself."""
        every = (np.flatnonzero(self.tasks == task) for task in range(len(self.names)))
        return [MeasuredPrograms(self.statements.take(own), 1.0 / self.microseconds[own]) for own in every if len(own)]

    def save(self, path: Path) -> None:
        """Write the file; features with single precision."""
        np.savez_compressed(
            path,
            names=np.array(self.names),
            networks=np.array(self.networks),
            tasks=self.tasks.astype(np.uint16),
            microseconds=self.microseconds.astype(np.float32),
            offsets=self.statements.offsets,
            rows=self.statements.rows.astype(np.float32),
        )

    @staticmethod
    def load(path: Path) -> "Data":
        """Read a file that ``save`` wrote."""
        with np.load(path) as file:
            statements = StatementRows(file["rows"].astype(np.float64), file["offsets"].astype(np.int64))
            names, networks = (tuple(str(one) for one in file[name]) for name in ("names", "networks"))
            microseconds = file["microseconds"].astype(np.float64)
            return Data(names, networks, file["tasks"].astype(np.int64), microseconds, statements)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Traces for one naive program."""

    naive: str
    traces: tuple[str, ...]


def collected(path: Path, known: Sequence[Task]) -> Data:
    """All right candidates in the records; those that were interrupted, or have no features, are left out."""
    places = {task.key: place for place, task in enumerate(known)}
    with Records.open(path) as records:
        found = [
            (places[one.job.workload], min(one.outcome.times_us), one.job.trace)
            for one in records.all()
            if one.job.workload in places and is_believed(one.outcome)
        ]
    found.sort(key=lambda one: one[0])
    with ProcessPoolExecutor() as processes:
        rows = [row for chunk in processes.map(_features, _chunks(found, known)) for row in chunk]
    kept = [(task, us, row) for (task, us, _), row in zip(found, rows, strict=True) if row is not None]
    return Data(
        tuple(task.name for task in known),
        tuple(task.network for task in known),
        np.array([task for task, _, _ in kept], np.int64),
        np.array([us for _, us, _ in kept]),
        StatementRows.of([row for _, _, row in kept]),
    )


def is_believed(outcome: Outcome) -> bool:
    """Whether it is right, and its least time is not more than that of the two runs in which it was checked.

    A candidate that seems hopeless is timed once, and on a busy machine that may be when something else runs.
    """
    checked_us = 1e6 * outcome.seconds.get(Phase.CHECK.value, np.inf)
    return outcome.median_us is not None and 2 * min(outcome.times_us) <= checked_us


def _chunks(found: Sequence[tuple[int, float, str]], known: Sequence[Task]) -> Iterator[_Chunk]:
    for place, task in enumerate(known):
        own = tuple(trace for of, _, trace in found if of == place)
        for start in range(0, len(own), CHUNK):
            yield _Chunk(str(task.naive), own[start : start + CHUNK])


def _features(chunk: _Chunk) -> list[Floats | None]:
    naive, target = parse_program(chunk.naive), Target.host()
    return [_of_one(Trace.from_json(trace), naive, target) for trace in chunk.traces]


def _of_one(trace: Trace, naive: Program, target: Target) -> Floats | None:
    try:
        rows = statement_features(replay(trace, naive, intrinsics=all_dot_products()).program, target)
    except Unsupported:
        return None
    # As the file has them, so that what is evaluated does not depend on where it comes from.
    return rows.astype(np.float32).astype(np.float64) if len(rows) else None
