"""Progress of a compilation on standard error: a bar with the time left on a terminal, else a line now and then."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

from tilewright.base.events import Advanced, Event, Listener, StepFinished, StepStarted

_SECONDS_BETWEEN_LINES = 5.0
_PHASES = ("schedule", "code")
"""The steps that take time, in order. Each kernel passes through both."""
_SEARCH = "superopt"
"""The step before them if a better graph is searched. It may compile several graphs, whose progress is not shown."""
_SEARCHING = f"{_SEARCH}: searching for a better graph"
_LAYERS = "sensitivity"
"""The step of quantization that takes time: it measures each layer. Compiling is not shown there."""


@contextmanager
def reporting(what: str, console: Console, clock: Callable[[], float] = time.monotonic) -> Generator[Listener]:
    """A listener that shows the progress of ``what`` on ``console``; its first line appears before the body starts."""
    if not console.is_terminal:
        console.print(f"{what} ...", soft_wrap=True)
        yield _Lines(console, clock)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task(f"{what}: reading", total=None))


class _Bar:
    """One bar over all phases; it assumes that later phases have as many parts as the present one."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task
        self._is_searching = False

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted(step=step) if step == _SEARCH:
                self._is_searching = True
                self._progress.update(self._task, description=_SEARCHING)
            case StepFinished(step=step) if step == _SEARCH:
                self._is_searching = False
                self._progress.reset(self._task, total=None)
            case Advanced() if event.step in _PHASES and not self._is_searching:
                done, total = _position(event)
                text = f"{event.step} {event.subject}"
                self._progress.update(self._task, completed=done, total=total, description=text)
            case Advanced(step=step) if step == _LAYERS:
                text = f"{step} {event.subject}"
                self._progress.update(self._task, completed=event.done, total=event.total, description=text)
            case _:
                pass


class _Lines:
    """A line at the end of each phase, and every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._start = self._last = clock()
        self._is_searching = False

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted(step=step) if step == _SEARCH:
                self._is_searching = True
                self._say(f"{_SEARCHING} ...")
            case StepFinished(step=step) if step == _SEARCH:
                self._is_searching = False
                self._start = self._last = self._clock()
            case Advanced() if event.step in _PHASES and not self._is_searching:
                self._advanced(event, _position(event), "kernels")
            case StepStarted(step=step) if step == _LAYERS:
                self._start = self._last = self._clock()
            case Advanced(step=step) if step == _LAYERS:
                self._advanced(event, (event.done, event.total), "layers")
            case _:
                pass

    def _advanced(self, event: Advanced, position: tuple[int, int], parts: str) -> None:
        now = self._clock()
        if event.done < event.total and now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        done, total = position
        left = (now - self._start) * (total - done) / done
        self._say(f"{event.step}: {event.done} of {event.total} {parts}, about {left:.0f} s left")

    def _say(self, text: str) -> None:
        self._console.print(text)


def _position(event: Advanced) -> tuple[int, int]:
    """Parts done, and parts in total, over all phases."""
    phase = _PHASES.index(event.step)
    return phase * event.total + event.done, len(_PHASES) * event.total
