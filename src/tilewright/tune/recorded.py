"""Schedules that were measured before: the best record of a kernel, for who compiles it.

A record is found by the kernel's naive program, whatever it is called, the target and the number of threads. Only
what was *confirmed* counts: measured again, carefully and on other data, beside the model's choice of the same kernel.
The user's own records come first, then those that come with the package (``shipped``).
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from tilewright.base.errors import TilewrightError
from tilewright.base.events import Listener, Warned
from tilewright.loops.program import Program
from tilewright.measure.records import Record, Records
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target
from tilewright.tune.shipped import SHIPPED, Shipped

Found = TypeVar("Found")

KERNEL = "tuned"
"""What every kernel is called in records: models number theirs."""
SEARCHING, CONFIRMING, COMPARING = 0, 1, 3
"""Seeds of the data on which candidates are measured first, and then those that may be used; and of that on which ways
to compute a node are compared, as the compiler schedules their kernels."""
CONFIRMING_AGAIN = (2, 4, 5)
"""Seeds of the data on which those that may be used are measured once more, in as many rounds."""


def recorded_text(naive: Program) -> str:
    """The program as records have it."""
    return str(replace(naive, name=KERNEL))


@dataclass(frozen=True, slots=True)
class Tuned:
    """A schedule, and the microseconds that were measured of it."""

    schedule: Schedule
    microseconds: float


class Source(Protocol):
    """Where records are."""

    def best(self, program: str, target: str, threads: int = 1, *, seed: int = 0, count: int = 1) -> list[Record]:
        """See ``Records``."""
        ...

    def programs(self, target: str, threads: int, *, seed: int = 0) -> list[str]:
        """See ``Records``."""
        ...


class Recorded:
    """The best records for one target and number of threads; ``sources``: where they are, the first one first.

    A source that can't be read is a warning, once, and is asked no more.
    """

    def __init__(self, sources: Sequence[Source], target: Target, threads: int, listener: Listener) -> None:
        self._sources = list(sources)
        self._target = str(target)
        self._threads = threads
        self._listener = listener

    def find(self, naive: Program) -> Tuned | None:
        """The fastest schedule of ``naive`` that was measured. One that can't be used is a warning, and not used."""
        if naive.dims:
            return None  # what is measured has fixed extents
        try:
            for record in self._best(naive, CONFIRMING):
                made = replay(Trace.from_json(record.job.trace), naive)
                return Tuned(made, record.outcome.median_us or 0.0)
        except TilewrightError as error:
            self._listener(Warned(f"{naive.name} is scheduled by the model, as its record can't be used: {error}"))
        return None

    def has_ways(self) -> bool:
        """Whether any kernel was measured to compare ways."""
        return bool(self._first(lambda source: source.programs(self._target, self._threads, seed=COMPARING)))

    def microseconds(self, naive: Program) -> float | None:
        """What ``naive`` took when ways were compared; None if it was not measured."""
        found = self._best(naive, COMPARING)
        return found[0].outcome.median_us if found else None

    def _best(self, naive: Program, seed: int) -> list[Record]:
        """The fastest record of the first source that has any."""
        text = recorded_text(naive)
        return self._first(lambda source: source.best(text, self._target, self._threads, seed=seed))

    def _first(self, ask: Callable[[Source], list[Found]]) -> list[Found]:
        """What the first source finds that finds anything."""
        for source in tuple(self._sources):
            try:
                if found := ask(source):
                    return found
            except TilewrightError as error:
                self._sources.remove(source)
                self._listener(_unused(error))
        return []


@contextmanager
def recorded(path: Path | None, target: Target, threads: int, listener: Listener) -> Generator[Recorded | None]:
    """The records in ``path`` while they are open, if there is such a file, and those of the package.

    None if there are none, or ``path`` is None: then nothing that was measured is to be used. Trouble with a file is a
    warning. Nothing is locked or written.
    """
    if path is None:
        yield None
        return
    with ExitStack() as stack:
        sources: list[Source] = []
        try:
            own = Records.open_to_read(path) if os.path.lexists(path) else None
            if own is not None:
                sources.append(stack.enter_context(own))
        except TilewrightError as error:
            listener(_unused(error))
        try:
            if (shipped := Shipped.of(target)).rows:
                sources.append(shipped)
        except TilewrightError as error:
            listener(_unused(error))
        yield Recorded(sources, target, threads, listener) if sources else None


def _unused(error: TilewrightError) -> Warned:
    return Warned(f"what was tuned before is not used: {error}")


def stamp(path: Path | None) -> str:
    """What changes when records are added to ``path``, or come with the package; empty for None."""
    if path is None:
        return ""
    files = (path, Path(f"{path}-wal"), *sorted(SHIPPED.glob("*")))
    return "\n".join(map(_stamp, files))


def _stamp(file: Path) -> str:
    """Nothing for a file that is not there, or can't be looked at: its records are not used, either."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return ""
    return f"{file.name} {found.st_size} {found.st_mtime_ns}"
