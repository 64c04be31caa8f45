"""Progress events: the compiler reports small values to a listener.

Listeners are passed explicitly; there is no registry. ``ignore`` drops everything, ``Recorder`` keeps it for tests and
for the table of timings, ``to_log`` writes one line an event to the standard library's ``logging``.

    recorder = Recorder()
    with step(recorder, "fuse"):
        groups = fuse(graph)
    recorder.seconds()  # {"fuse": 0.012}
"""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step of the pipeline begins. ``subject``: what it works on, such as a kernel's name; empty for the model."""

    step: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{_titled(self.step, self.subject)} ..."


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step ended, after ``seconds`` of wall time; ``failed`` if by an error."""

    step: str
    seconds: float
    subject: str = ""
    failed: bool = False

    def __str__(self) -> str:
        outcome = "failed after" if self.failed else "took"
        return f"{_titled(self.step, self.subject)} {outcome} {self.seconds * 1e3:.1f} ms"


@dataclass(frozen=True, slots=True)
class Advanced:
    """``done`` of the ``total`` parts of a step are done; ``subject`` is the last of them."""

    step: str
    done: int
    total: int
    subject: str = ""

    def __str__(self) -> str:
        return f"{_titled(self.step, self.subject)}: {self.done} of {self.total}"


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """A cache was asked for ``key``: a hit or a miss."""

    key: str
    hit: bool

    def __str__(self) -> str:
        return f"cache {'hit' if self.hit else 'miss'} {self.key[:12]}"


@dataclass(frozen=True, slots=True)
class Warned:
    """A degraded condition: work continues without something; ``text`` says what is lost."""

    text: str

    def __str__(self) -> str:
        return f"warning: {self.text}"


@dataclass(frozen=True, slots=True)
class Searched:
    """A round of the search for a schedule ended; None: a time that is not known."""

    kernel: str
    candidates: int
    """That were tried so far."""
    fastest_us: float | None
    analytic_us: float | None
    """Of the analytic choice."""

    def __str__(self) -> str:
        fastest = "none is right yet" if self.fastest_us is None else f"the fastest takes {self.fastest_us:.4g} us"
        analytic = "" if self.analytic_us is None else f", the analytic choice {self.analytic_us:.4g} us"
        return f"search {self.kernel}: {self.candidates} candidates, {fastest}{analytic}"


Event: TypeAlias = StepStarted | StepFinished | Advanced | CacheLookup | Warned | Searched
Listener: TypeAlias = Callable[[Event], None]
"""Called from the thread in which the event happens; must not raise."""


def ignore(event: Event) -> None:
    """The listener that drops everything."""


def to_log(logger: logging.Logger) -> Listener:
    """A listener that logs: warnings as warnings, ends of steps as information, the rest for debugging."""

    def listen(event: Event) -> None:
        match event:
            case Warned():
                level = logging.WARNING
            case StepFinished():
                level = logging.INFO
            case _:
                level = logging.DEBUG
        logger.log(level, "%s", event)

    return listen


@dataclass(slots=True)
class Recorder:
    """A listener that stores events, in order."""

    events: list[Event] = field(default_factory=list[Event])

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def seconds(self) -> dict[str, float]:
        """Wall time of each step, summed over its subjects, in the order in which steps first ended."""
        total: dict[str, float] = {}
        for event in self.events:
            if isinstance(event, StepFinished):
                total[event.step] = total.get(event.step, 0.0) + event.seconds
        return total

    def warnings(self) -> list[str]:
        """The texts of all warnings."""
        return [event.text for event in self.events if isinstance(event, Warned)]


@contextmanager
def step(listener: Listener, name: str, subject: str = "") -> Generator[None]:
    """Tell ``listener`` that step ``name`` starts and ends, and how long the body took."""
    listener(StepStarted(name, subject))
    started = time.perf_counter()
    failed = True
    try:
        yield
        failed = False
    finally:
        listener(StepFinished(name, time.perf_counter() - started, subject, failed))


def _titled(name: str, subject: str) -> str:
    return f"{name} {subject}" if subject else name
