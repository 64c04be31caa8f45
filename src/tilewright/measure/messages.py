"""Messages between processes: length-prefixed JSON. Small, checked field by field, never unpickled.

    frame    = length of the JSON in bytes (4 bytes, big endian), JSON object in UTF-8

A child's messages (``Said``): ready; a phase is done; the workload has no reference; finally, its outcome. A child may
send only verdicts that it can know; the supervisor gives all others.
"""

import json
import socket
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tilewright.base import fields
from tilewright.base.errors import MeasureError
from tilewright.measure.verdicts import MAX_DETAIL, Outcome, Phase, Verdict

MAX_ANSWER: Final = 64 << 10
"""Maximum bytes of a message from a child. A longer one breaks the contract."""
MAX_REQUEST: Final = 32 << 20
_LENGTH = 4
_READ = 1 << 16
_MAX_TIMES = 1000
CHILD_VERDICTS = frozenset({Verdict.OK, Verdict.WRONG, Verdict.OOM, Verdict.BUILD_ERROR})


class BadMessageError(MeasureError):
    """A malformed message."""


class Channel:
    """One end of a non-blocking socket: unsent data waits in ``pending``."""

    def __init__(self, end: socket.socket, limit: int) -> None:
        """``limit``: maximum bytes of a received message."""
        end.setblocking(False)
        self.socket = end
        self.pending = bytearray()
        self._limit = limit
        self._received = bytearray()
        self.closed = False
        """The other end is closed."""

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message, as far as possible now."""
        self.pending += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send more of what is pending."""
        try:
            while self.pending:
                del self.pending[: self.socket.send(self.pending[:_READ])]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True
            self.pending.clear()

    def receive(self) -> Iterator[dict[str, object]]:
        """The received messages. Raises ``BadMessageError``."""
        try:
            while data := self.socket.recv(_READ):
                self._received += data
                yield from self._complete()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.closed = True

    def _complete(self) -> Iterator[dict[str, object]]:
        while len(self._received) >= _LENGTH:
            length = int.from_bytes(self._received[:_LENGTH], "big")
            if length > self._limit:
                raise BadMessageError(f"a message of {length} bytes; at most {self._limit} are allowed")
            if len(self._received) < _LENGTH + length:
                return
            content = bytes(self._received[_LENGTH : _LENGTH + length])
            del self._received[: _LENGTH + length]
            yield _decode(content)

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def send_blocking(end: socket.socket, message: Mapping[str, object]) -> None:
    """Send a message, blocking."""
    end.sendall(encode(message))


def receive_blocking(end: socket.socket, limit: int) -> dict[str, object] | None:
    """The next message; None if the other end is closed. Raises ``BadMessageError``."""
    head = _exactly(end, _LENGTH)
    if head is None:
        return None
    length = int.from_bytes(head, "big")
    if length > limit:
        raise BadMessageError(f"a message of {length} bytes; at most {limit} are allowed")
    content = _exactly(end, length)
    return None if content is None else _decode(content)


def _exactly(end: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        data = b""
        with suppress(ConnectionError):
            data = end.recv(min(_READ, size - len(parts)))
        if not data:
            return None
        parts += data
    return bytes(parts)


def encode(message: Mapping[str, object]) -> bytes:
    """A frame."""
    content = json.dumps(message, separators=(",", ":")).encode()
    return len(content).to_bytes(_LENGTH, "big") + content


def _decode(content: bytes) -> dict[str, object]:
    try:
        return fields.mapping(json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadMessageError(f"not a message: {content[:40]!r}") from error


# --- requests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Errand:
    """A ``Request`` as the supervisor has it, which passes it on: only who runs the job reads all of it.

    So the supervisor need not load what a job consists of: programs, targets, NumPy.
    """

    number: int
    run_seconds: float
    only_build: bool
    message: Mapping[str, object]

    @staticmethod
    def read(message: Mapping[str, object]) -> "Errand":
        """The errand from JSON. Raises ``BadMessageError``."""
        try:
            number, seconds = fields.whole(message["number"]), fields.number(message["run_seconds"])
            return Errand(number, seconds, message["only_build"] is True, message)
        except (KeyError, TypeError) as error:
            raise BadMessageError(f"not a request: {error!r}") from error


# --- outcomes -----------------------------------------------------------------------------------------------------


def outcome_message(outcome: Outcome) -> dict[str, object]:
    """An outcome as JSON."""
    times = list(outcome.times_us[:_MAX_TIMES])
    said = {"verdict": outcome.verdict.value, "detail": outcome.detail[:MAX_DETAIL], "times_us": times}
    return {**outcome.around(), **said}


def read_outcome(message: Mapping[str, object]) -> Outcome:
    """An outcome from JSON. Raises ``BadMessageError`` if it is malformed or impossible."""
    try:
        detail, times = fields.text(message["detail"])[:MAX_DETAIL], fields.items(message["times_us"])[:_MAX_TIMES]
        return Outcome.read(message["verdict"], detail, times, {**message, "predicted": None})
    except (KeyError, TypeError, ValueError) as error:
        raise BadMessageError(f"not an outcome: {error!r}") from error


# --- messages of a child --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The child has loaded its modules."""


@dataclass(frozen=True, slots=True)
class Done:
    """A phase is over."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class Built:
    """The image that was only to be built is stored."""


@dataclass(frozen=True, slots=True)
class Unmeasurable:
    """The workload has no reference; this is no fault of a candidate."""

    reason: str


Said = Ready | Done | Built | Unmeasurable | Outcome


def said_message(said: Said) -> dict[str, object]:
    """A child's message as JSON."""
    match said:
        case Ready():
            return {"ready": True}
        case Done(phase):
            return {"done": phase.value}
        case Built():
            return {"built": True}
        case Unmeasurable(reason):
            return {"unmeasurable": reason[:MAX_DETAIL]}
        case Outcome():
            return {"outcome": outcome_message(said)}


def read_said(message: Mapping[str, object], verdicts: Container[Verdict] = CHILD_VERDICTS) -> Said:
    """A child's message from JSON; ``verdicts``: what it can give. Raises ``BadMessageError``."""
    try:
        match dict(message):
            case {"ready": True}:
                return Ready()
            case {"done": phase}:
                return Done(Phase(phase))
            case {"built": True}:
                return Built()
            case {"unmeasurable": reason}:
                return Unmeasurable(fields.text(reason)[:MAX_DETAIL])
            case {"outcome": outcome}:
                read = read_outcome(fields.mapping(outcome))
            case _:
                raise BadMessageError(f"a child can't say {str(message)[:80]}")
    except (TypeError, ValueError) as error:
        raise BadMessageError(f"a child can't say {str(message)[:80]}") from error
    if read.verdict not in verdicts:
        raise BadMessageError(f"a child can't give the verdict {read.verdict.value}")
    return read
