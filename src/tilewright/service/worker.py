"""A worker: a process that claims builds and has children compile them. ``python -m tilewright.service.worker``.

It gets its configuration as JSON on standard input, as a database's URL may hold a password. It ends with its parent;
its child ends with it. Any unexpected error ends it, and its supervisor starts another. A database that does not answer
is waited for: what is compiled meanwhile goes on, and its outcome is written then.
"""

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from tilewright.base.checks import Checks
from tilewright.base.errors import InternalError, ResourceLimit, TilewrightError
from tilewright.base.events import Advanced, Event
from tilewright.base.numerics import Math, Precision
from tilewright.base.settings import Settings
from tilewright.base.superopt import Superopt
from tilewright.compilation import Options
from tilewright.frontend.opening import opened
from tilewright.isolation import Asked, Child, Isolation, compile_file
from tilewright.measure.processes import die_with, give_way
from tilewright.service import bundle, confined
from tilewright.service.config import Config
from tilewright.service.leases import Claim, Leases, Made, Outcome, Progress, Refused
from tilewright.service.limits import Limits, TooLarge, Unavailable
from tilewright.service.objects import Kind
from tilewright.service.requests import Chosen
from tilewright.service.store import Store, objects_in
from tilewright.service.tables import Database
from tilewright.target.target import Target

ALONE: Final = Settings()
"""The settings of a child: no caches, records or rules of others, so that no job can change the result of another."""
_NO_FILE: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.EPERM, errno.EISDIR, errno.ENXIO})
"""Errors of reading what is no regular file; others, such as a full disk, are no fault of the child's."""
_LOG = logging.getLogger("tilewright.service")
_POLL_SECONDS: Final = 0.25
_AWAY_SECONDS: Final = 1.0
_NICE: Final = 3
"""Who asks the service comes before unpacked zips and hashed artifacts."""
_BEAT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Worker:
    """Compiles what it claims. ``stopped``: it is to end, and to leave its job to others."""

    name: str
    leases: Leases
    store: Store
    limits: Limits
    command: tuple[str, ...] = confined.COMMAND
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Work until it is stopped. While the database or the store is away, wait for it."""
        while not self.stopped.is_set():
            try:
                pause = 0.0 if self.step() else _POLL_SECONDS
            except Unavailable as error:
                _LOG.warning("worker %s waits: %s", self.name, error)
                pause = _AWAY_SECONDS
            self.stopped.wait(pause)

    def step(self) -> bool:
        """Compile one build; false if there is none. Raises ``Unavailable``: the build is another's then."""
        claim = self.leases.claim(self.name)
        if claim is None:
            return False
        beats = _Beats(lambda progress: self.leases.renew(claim, progress), self.stopped, self._interval)
        try:
            with self.store.workplace() as folder, beats:
                outcome = self._compile(claim, folder, beats)
        except Unavailable:
            self._say(lambda: self.leases.give_back(claim))
            raise
        if isinstance(outcome, Refused) and (self.stopped.is_set() or beats.is_lost):
            self._say(lambda: self.leases.give_back(claim))
        else:
            self._say(lambda: self.leases.finish(claim, outcome))
        return True

    @property
    def _interval(self) -> float:
        return min(_BEAT_SECONDS, self.leases.seconds / 4)

    def _say(self, write: Callable[[], bool]) -> None:
        """Write what came of a claim, as soon as the database answers: until then nobody else can claim it."""
        while True:
            try:
                write()
            except Unavailable:
                if self.stopped.wait(_POLL_SECONDS):
                    return
            else:
                return

    def _compile(self, claim: Claim, folder: Path, beats: "_Beats") -> Outcome:
        output = folder / "model.tw"
        limits = Isolation(self.limits.memory_bytes, self.limits.seconds)
        try:
            asked = _asked(Chosen.read(claim.options), self._model(claim.model, folder))
            compile_file(asked, output, limits, beats.listen, beats.watched(self._child(folder)))
            return Made(self.store.keep(Kind.ARTIFACT, output, self.limits.output_bytes))
        except Unavailable:
            raise
        except TooLarge as error:
            return Refused(ResourceLimit.__name__, str(error).replace("the model", "the artifact"))
        except TilewrightError as error:
            return Refused(type(error).__name__, str(error).replace(f"{folder}{os.sep}", ""))
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            return Refused(InternalError.__name__, "the process that compiled wrote no artifact")

    def _model(self, sha256: str, folder: Path) -> Path:
        """The model with its weights, in a place of its own in ``folder``."""
        path = folder / "model.onnx"
        self.store.fetch_model(sha256, path)
        if not bundle.is_bundle(path):
            return path
        unpacked = folder / "model"
        unpacked.mkdir()
        return bundle.unpack(path, unpacked, self.limits.unpacked_bytes)

    def _child(self, folder: Path) -> Child:
        options = (f"--folder={folder}", f"--seconds={self.limits.seconds}", f"--bytes={self.limits.output_bytes}")
        return Child((*self.command, *options))


class _Beats:
    """A context manager: a thread that renews the lease and tells the progress, and stops a child that must end."""

    def __init__(self, renew: Callable[[Progress | None], bool], stopped: threading.Event, seconds: float) -> None:
        self._renew, self._stopped, self._seconds = renew, stopped, seconds
        self._progress: Progress | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._child: Child | None = None
        self.is_lost = False
        """Whether the child was stopped, which is no fault of the build."""
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def listen(self, event: Event) -> None:
        """The listener of the compilation."""
        if isinstance(event, Advanced):
            self._progress = Progress(f"{event.step} {event.subject}".strip(), event.done, event.total)

    def watched(self, child: Child) -> Child:
        """The child, which ends when the lease is lost, or is so already."""
        with self._lock:
            self._child = child
            if self.is_lost:
                child.stop()
        return child

    def __enter__(self) -> "_Beats":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        held = True
        try:
            while held and not self._stopped.is_set() and not self._over.wait(self._seconds):
                # A database that is away lets nobody claim the build: it goes on.
                with suppress(Unavailable):
                    held = self._renew(self._progress)
        finally:
            if not self._over.is_set():
                self._lose()

    def _lose(self) -> None:
        with self._lock:
            self.is_lost = True
            if self._child is not None:
                self._child.stop()


def _asked(chosen: Chosen, model: Path) -> Asked:
    """The request to compile the file ``model``."""
    options = Options(
        Target.parse(chosen.target),
        chosen.threads,
        chosen.bounds,
        math=Math.named(chosen.math),
        memory_limit=chosen.memory_limit,
        superopt=Superopt.named(chosen.superopt),
        checks=Checks.named(chosen.checks),
        precision=Precision.named(chosen.precision),
    )
    return Asked(opened(model), {name: tuple(shape) for name, shape in chosen.shapes.items()}, options, ALONE)


def main() -> int:
    """Read the configuration, and work until the end of the parent, or SIGTERM."""
    config = Config.read(sys.stdin.read())
    die_with(config.parent)
    give_way(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    database, store = Database(config.database), Store.open(Path(config.folder), objects_in(config.store))
    leases = Leases(database, config.limits.lease_seconds, config.limits.attempts)
    worker = Worker(config.name, leases, store, config.limits)

    def stop(_number: int, _frame: FrameType | None) -> None:
        worker.stopped.set()

    signal.signal(signal.SIGTERM, stop)
    worker.run()
    database.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
