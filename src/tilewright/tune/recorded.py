"""Looks up recorded schedules: the best confirmed record of a kernel, for the compiler.

A record is found by the kernel's naive program, whatever it is called, the target and the number of threads. Only
what was *confirmed* counts (``State``): measured again, carefully and on other data, beside the analytic choice of the
same kernel, and then in the whole model.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tilewright.base.errors import TilewrightError
from tilewright.base.events import Listener, Warned
from tilewright.kernels.dot_products import all_dot_products
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target

Answer = TypeVar("Answer")

KERNEL = "tuned"
"""The name of every kernel in records: models number theirs."""
SEARCHING, CONFIRMING, COMPARING = 0, 1, 3
"""Seeds of the data for first measurements, for confirmed ones, and for the comparison of algorithms of a node."""
CONFIRMING_AGAIN = (2, 4, 5)
"""Seeds of the data for the rounds of a confirmation."""


def named(naive: Program) -> Program:
    """The program as stored in records."""
    return replace(naive, name=KERNEL)


def replayed(trace: str, naive: Program) -> Schedule:
    """The schedule from a record's trace on ``naive``, with built-in and installed extensions.

    Raises ``TilewrightError`` if the trace does not apply.
    """
    return replay(Trace.from_json(trace), naive, intrinsics=all_dot_products())


@dataclass(frozen=True, slots=True)
class Tuned:
    """A schedule, and its measured microseconds; ``simulated``: whose thousands of cycles they are, if they are."""

    schedule: Schedule
    microseconds: float
    simulated: str = ""


class Recorded:
    """The best of ``records`` for one target and number of threads.

    If they can't be read, it warns once, and does not use them any more.
    """

    def __init__(self, records: Records, target: Target, threads: int, listener: Listener) -> None:
        self._records: Records | None = records
        self._target = str(target)
        self._threads = threads
        self._listener = listener

    def find(self, naive: Program) -> Tuned | None:
        """The fastest measured schedule of ``naive``. One that does not apply is skipped with a warning."""
        if naive.dims:
            return None  # only kernels with fixed extents are measured
        try:
            for record in self._best(naive, State.CONFIRMED):
                schedule, simulated = replayed(record.job.trace, naive), record.job.timing.simulated
                return Tuned(schedule, record.outcome.median_us or 0.0, simulated)
        except TilewrightError as error:
            self._listener(Warned(f"{naive.name} is scheduled by the model, as its record can't be used: {error}"))
        return None

    def has_ways(self) -> bool:
        """Whether any kernel was measured to compare algorithms."""
        return self._answer(lambda records: records.has_any(self._target, self._threads, State.COMPARED), False)

    def microseconds(self, naive: Program) -> float | None:
        """The time of ``naive`` in the comparison of algorithms; None if it was not measured."""
        found = self._best(naive, State.COMPARED)
        return found[0].outcome.median_us if found else None

    def _best(self, naive: Program, state: State) -> list[Record]:
        return self._answer(lambda records: records.best(named(naive), self._target, self._threads, state), [])

    def _answer(self, ask: Callable[[Records], Answer], otherwise: Answer) -> Answer:
        if self._records is not None:
            try:
                return ask(self._records)
            except TilewrightError as error:
                self._records = None
                self._listener(_unused(error))
        return otherwise


@contextmanager
def recorded(path: Path | None, target: Target, threads: int, listener: Listener) -> Generator[Recorded | None]:
    """A context manager: the records in ``path``.

    None if there is no file, or ``path`` is None: then no measurements are used. Problems with the file are warnings.
    Nothing is locked or written.
    """
    own: Records | None = None
    try:
        if path is not None and os.path.lexists(path):
            own = Records.open_to_read(path)
    except TilewrightError as error:
        listener(_unused(error))
    if own is None:
        yield None
        return
    with own:
        yield Recorded(own, target, threads, listener)


def _unused(error: TilewrightError) -> Warned:
    return Warned(f"what was tuned before is not used: {error}")


def stamp(path: Path | None) -> str:
    """A key that changes when records are added to ``path``; empty for None."""
    return "" if path is None else "\n".join(map(_stamp, (path, Path(f"{path}-wal"))))


def _stamp(file: Path) -> str:
    """Empty for a file that is missing or unreadable: its records are not used, either."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return ""
    return f"{file.name} {found.st_size} {found.st_mtime_ns}"
