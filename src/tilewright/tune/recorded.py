"""Schedules that were measured before: the best record of a kernel, for who compiles it.

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
"""What every kernel is called in records: models number theirs."""
SEARCHING, CONFIRMING, COMPARING = 0, 1, 3
"""Seeds of the data on which candidates are measured first, and then those that may be used; and of that on which ways
to compute a node are compared, as the compiler schedules their kernels."""
CONFIRMING_AGAIN = (2, 4, 5)
"""Seeds of the data on which those that may be used are measured once more, in as many rounds."""


def named(naive: Program) -> Program:
    """The program as records have it."""
    return replace(naive, name=KERNEL)


def replayed(trace: str, naive: Program) -> Schedule:
    """The schedule that a record's trace makes of ``naive``, with what comes with Tilewright or is installed.

    Raises ``TilewrightError`` if it makes none.
    """
    return replay(Trace.from_json(trace), naive, intrinsics=all_dot_products())


@dataclass(frozen=True, slots=True)
class Tuned:
    """A schedule, and the microseconds that were measured of it."""

    schedule: Schedule
    microseconds: float


class Recorded:
    """The best of ``records`` for one target and number of threads.

    If they can't be read, that is a warning, once, and they are asked no more.
    """

    def __init__(self, records: Records, target: Target, threads: int, listener: Listener) -> None:
        self._records: Records | None = records
        self._target = str(target)
        self._threads = threads
        self._listener = listener

    def find(self, naive: Program) -> Tuned | None:
        """The fastest schedule of ``naive`` that was measured. One that can't be used is a warning, and not used."""
        if naive.dims:
            return None  # what is measured has fixed extents
        try:
            for record in self._best(naive, State.CONFIRMED):
                return Tuned(replayed(record.job.trace, naive), record.outcome.median_us or 0.0)
        except TilewrightError as error:
            self._listener(Warned(f"{naive.name} is scheduled by the model, as its record can't be used: {error}"))
        return None

    def has_ways(self) -> bool:
        """Whether any kernel was measured to compare ways."""
        return self._answer(lambda records: records.has_any(self._target, self._threads, State.COMPARED), False)

    def microseconds(self, naive: Program) -> float | None:
        """What ``naive`` took when ways were compared; None if it was not measured."""
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
    """The records in ``path`` while they are open, if there is such a file.

    None if there is none, or ``path`` is None: then nothing that was measured is to be used. Trouble with the file is a
    warning. Nothing is locked or written.
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
    """What changes when records are added to ``path``; empty for None."""
    return "" if path is None else "\n".join(map(_stamp, (path, Path(f"{path}-wal"))))


def _stamp(file: Path) -> str:
    """Nothing for a file that is not there, or can't be looked at: its records are not used, either."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return ""
    return f"{file.name} {found.st_size} {found.st_mtime_ns}"
