"""Compiles in a separate process with limits of memory and time; a crash of that process is an error here.

LLVM and protobuf abort the process when memory is exhausted (``std::bad_alloc``, ``SIGSEGV``), and an untrusted model
may take hours to compile. So the compiler runs in a child (``isolated``, not forked), with a limit of address space and
a deadline. The result is an artifact, which is read and verified like any other; nothing is unpickled.

It limits resources, and is no sandbox: the child has this user's permissions, and writes to the same caches.

    request     JSON on a socket: the model's path, options, settings, and where to write the artifact
    answers     {"warned": text}, {"advanced": [step, done, total, subject]}, and at last
                {"done": {"cached": bool}} or {"failed": [kind, text]} or {"failed": [kind, text, note]}
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tilewright.base import errors, fields
from tilewright.base.arguments import check_fields
from tilewright.base.errors import BadInput, InternalError, ResourceLimit, TilewrightError
from tilewright.base.events import Advanced, Listener, Warned
from tilewright.base.files import reason
from tilewright.base.memory import available
from tilewright.base.settings import Settings
from tilewright.base.sizes import parse_size
from tilewright.compilation import Options
from tilewright.frontend.api import Source
from tilewright.measure.messages import BadMessageError, receive_blocking, send_blocking
from tilewright.measure.processes import kill_group
from tilewright.measure.spawn import Spawned, spawn
from tilewright.runtime import artifact
from tilewright.runtime.elsewhere import misfit

COMMAND = (sys.executable, "-m", "tilewright.isolated")
MAX_MESSAGE: Final = 1 << 20
MAX_TEXT: Final = 1 << 14
"""Maximum characters of an error's text."""
_SECONDS: Final = 600.0
_GOODBYE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """Limits of the process that compiles.

    ``memory``: address space beyond that at the start of compiling, in bytes or as ``"4GiB"``; None: the memory that is
    available now. ``timeout``: seconds from its start to its answer.
    """

    memory: int | str | None = None
    timeout: float = _SECONDS

    def __post_init__(self) -> None:
        check_fields(self, BadInput)

    @property
    def memory_bytes(self) -> int:
        """``memory`` in bytes. Raises ``BadInput``."""
        given = parse_size(self.memory) if isinstance(self.memory, str) else self.memory
        if (self.memory is not None and given is None) or (given is not None and given < 1):
            raise BadInput(f"memory={self.memory!r}: give a number of bytes, such as 4294967296 or 4GiB")
        return available() if given is None else given

    @property
    def seconds(self) -> float:
        """``timeout``. Raises ``BadInput`` if it is invalid."""
        if not 0 < self.timeout < threading.TIMEOUT_MAX:
            raise BadInput(f"timeout={self.timeout!r}: give a positive number of seconds")
        return self.timeout


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a child. ``shapes``: by input; a word is a run-time extent."""

    source: Source
    shapes: Mapping[str, tuple[int | str, ...]]
    options: Options
    settings: Settings


class Child:
    """The process that compiles; another thread may stop it."""

    def __init__(self, command: tuple[str, ...]) -> None:
        """``command``: starts ``isolated``, with the arguments that are added to it."""
        self.command = command
        self._lock = threading.Lock()
        self._process: int | None = None
        self._stopped = False

    def started(self, process: int) -> None:
        """It runs, as the leader of a group."""
        with self._lock:
            self._process = process
            if self._stopped:
                kill_group(process)

    def ended(self) -> None:
        """It will be reaped: from now on its id may be that of another process."""
        with self._lock:
            self._process = None

    def stop(self) -> None:
        """Kill it, now or as soon as it is started."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                kill_group(self._process)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a child. ``cached``: whether it came from the cache."""

    parts: artifact.Artifact
    cached: bool


def compile_elsewhere(asked: Asked, limits: Isolation, listener: Listener) -> Answer:
    """Compile ``asked`` in a process within ``limits``.

    Raises the errors of compiling, with the child's text, and ``ResourceLimit`` if the child exceeds its limits, or is
    ended by a signal.
    """
    target = asked.options.target
    why = misfit(target.platform, target.features)
    if why is not None:
        raise BadInput(f"isolate= compiles for this machine only: {why}; leave it out, or the target")
    if asked.settings.print_stages:
        raise BadInput("isolate= prints no stages: unset TILEWRIGHT_PRINT, or compile without it")
    memory, seconds = limits.memory_bytes, limits.seconds
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        folder = Path(name)
        output = folder / "model.tw"
        request = _request(asked, folder, output, memory)
        cached = _answer(Child(COMMAND), request, memory, seconds, listener)
        return Answer(artifact.read(output, None, trust=True), cached)


def compile_file(asked: Asked, output: Path, limits: Isolation, listener: Listener, child: Child) -> None:
    """Compile ``asked``, for any target and also in stages, to the artifact ``output``, which this process never reads.

    The folder of ``output`` is the child's: it may write there. ``child``: the process.

    Raises the errors of ``compile_elsewhere``.
    """
    memory, seconds = limits.memory_bytes, limits.seconds
    request = {**_request(asked, output.parent, output, memory), "staged": True}
    _answer(child, request, memory, seconds, listener)


def _request(asked: Asked, folder: Path, output: Path, memory: int) -> dict[str, object]:
    options, settings = asked.options, asked.settings
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(settings).items()}
    return {
        "model": str(asked.source.path_for_others(folder)),
        "shapes": {name: list(shape) for name, shape in asked.shapes.items()},
        "bounds": dict(options.bounds),
        "target": str(options.target),
        "threads": options.threads,
        "math": options.math.value,
        "precision": options.precision.value,
        "memory_limit": options.memory_limit,
        "superopt": options.superopt.value,
        "checks": options.checks.value,
        "settings": {name: value for name, value in plain.items() if name != "print_stages"},
        "output": str(output),
        "memory": memory,
        "staged": False,
    }


def _answer(how: Child, request: Mapping[str, object], memory: int, seconds: float, listener: Listener) -> bool:
    """Whether the child's result came from the cache. Raises its error, or the error for its end without an answer."""
    try:
        child = spawn(how.command, {"parent": os.getpid()})
    except OSError as error:
        raise ResourceLimit(f"no process to compile in can be started: {reason(error)}") from error
    how.started(child.process.pid)
    late = threading.Event()
    timer = threading.Timer(seconds, _stop, [child, late])
    timer.daemon = True
    timer.start()
    try:
        with contextlib.suppress(OSError):  # it has ended; its status is examined below
            send_blocking(child.socket, request)
        last = _listen(child, listener)
        if last is None:
            _await_end(child)
    finally:
        timer.cancel()
        how.ended()
        kill_group(child.process.pid)
        status = child.process.wait()
        child.socket.close()
        words = child.last_words()
    match last:
        case {"done": {"cached": bool(cached)}}:
            return cached
        case {"failed": [str(kind), str(text)]}:
            raise _error(kind, text)
        case {"failed": [str(kind), str(text), str(note)]}:
            error = _error(kind, text)
            error.add_note(note[:MAX_TEXT])
            raise error
        case None if late.is_set():
            raise ResourceLimit(f"compiling took longer than {seconds:g} s in a process of its own; raise timeout=")
        case None:
            raise _death(status, memory, words)
        case _:
            raise InternalError(f"the process that compiled said what is no answer: {str(last)[:80]}")


def _stop(child: Spawned, late: threading.Event) -> None:
    late.set()
    kill_group(child.process.pid)


def _await_end(child: Spawned) -> None:
    """Wait shortly for the end of a child that has closed its socket, as its status shows the cause."""
    end = time.monotonic() + _GOODBYE_SECONDS
    options = os.WEXITED | os.WNOWAIT | os.WNOHANG  # not reaped, so that its process id is not reused
    while os.waitid(os.P_PID, child.process.pid, options) is None and time.monotonic() < end:
        time.sleep(0.001)


def _listen(child: Spawned, listener: Listener) -> Mapping[str, object] | None:
    """The child's last message; None if it ends without one. Events are passed to ``listener``."""
    while True:
        try:
            message = receive_blocking(child.socket, MAX_MESSAGE)
        except BadMessageError as error:
            raise InternalError(f"the process that compiled said what is no answer: {error}") from error
        match message:
            case {"warned": str(text)}:
                listener(Warned(text[:MAX_TEXT]))
            case {"advanced": [str(step), int(done), int(total), str(subject)]}:
                listener(Advanced(step, done, total, subject[:MAX_TEXT]))
            case _:
                return message


def _error(kind: str, text: str) -> TilewrightError:
    """The child's error; an ``InternalError`` if its kind is unknown, or needs more than a text."""
    found: object = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, TilewrightError) and found.__init__ is TilewrightError.__init__:
        return found(text[:MAX_TEXT])
    return InternalError(f"{kind}: {text[:MAX_TEXT]}")


_OF_MEMORY = ("MemoryError", "bad_alloc", "out of memory", "allocate memory", "returned a result with an exception set")
"""Messages of processes that exit for lack of memory: Python, C++, LLVM, the C library, and Python 3.13.0 where its own
code overlooks a ``MemoryError``."""


def _death(status: int, memory: int, words: str) -> ResourceLimit | InternalError:
    """The error for a child that ended without an answer: by a signal, or by an unexpected exception."""
    last = words.splitlines()[-1][:200] if words else "it said nothing"
    if status >= 0 and not any(word in last for word in _OF_MEMORY):
        return InternalError(f"the process that compiled ended with the status {status}: {last}")
    how = "for want of memory"
    if status < 0:
        with contextlib.suppress(ValueError):
            how = f"by {signal.Signals(-status).name}"
    return ResourceLimit(
        f"the process that compiled ended {how} ({last}); it could have {memory} bytes: give more by memory=, or "
        "compile for smaller shapes. If it ends so whatever it has, it is a fault of Tilewright: report the model"
    )


def settings_of(plain: object) -> Settings:
    """The settings in a request. Raises ``TypeError`` or ``KeyError`` if they are missing."""
    given = fields.mapping(plain)
    return Settings(
        num_threads=_whole_or_none(given["num_threads"]),
        cache_dir=_path_or_none(given["cache_dir"]),
        cache_bytes=fields.whole(given["cache_bytes"]),
        model_cache_bytes=fields.whole(given["model_cache_bytes"]),
        key_dir=_path_or_none(given["key_dir"]),
        records=_path_or_none(given["records"]),
        repro_dir=_path_or_none(given["repro_dir"]),
        repro_bytes=fields.whole(given["repro_bytes"]),
        bounds_check=given["bounds_check"] is True,
        model_bytes=_whole_or_none(given["model_bytes"]),
    )


def _whole_or_none(value: object) -> int | None:
    return None if value is None else fields.whole(value)


def _path_or_none(value: object) -> Path | None:
    return None if value is None else Path(fields.text(value))
