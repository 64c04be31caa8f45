"""Boards without Python, reached by a command: it leads to an agent (``backend.shipping.board_text``) on the board.

    agent = Agent(("ssh", "board", "./agent; exit $?"))
    with agent.start(program, interface, seconds=60) as session:
        outputs, seconds = session.call([x.tobytes()], calls=100)

One session is one process there, and one here: ``ssh``, ``adb``, or anything else that connects two streams. It blocks
until the board answers; whoever must not wait, asks in a process of its own (``agent_child``).
"""

import shlex
import signal
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from tilewright.backend.shipping.board_text import WORD
from tilewright.backend.shipping.interface import Interface
from tilewright.backend.shipping.program_text import MEMORY, MODEL
from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.measure.verdicts import MAX_DETAIL, Outcome, Phase, Verdict
from tilewright.measure.worker import signal_name
from tilewright.runtime.abi import ErrorCode

_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
)
_ENDING_SECONDS = 5.0
_GOODBYE_SECONDS = 1.0


class EndedError(Exception):
    """The program on the board has ended, or what led to it. ``status``: of the command; ``words``: its last error
    output."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"status {status} {words}".strip())
        self.status = status
        self.words = words

    def outcome(self, phase: Phase) -> Outcome:
        """What that says of a candidate."""
        number = self._signal
        if number == signal.SIGALRM:
            return Outcome(Verdict.TIMEOUT, "it took longer than it may on the board", phase)
        if number == signal.SIGKILL:
            return Outcome(Verdict.OOM, "the board's system killed it, most likely for want of memory", phase)
        if self.status == MEMORY:
            return Outcome(Verdict.OOM, "the board has not enough memory for it", phase)
        if number in _CRASHES:
            return Outcome(Verdict.CRASH, f"{signal_name(number)} on the board\n{self.words}".strip(), phase)
        if self.status - MODEL in {code.value for code in ErrorCode}:
            return Outcome(Verdict.WRONG, f"the code reports the error {self.status - MODEL}", phase)
        return Outcome(Verdict.DEVICE_LOST, f"the agent's command ended with {self}", phase)

    @property
    def _signal(self) -> int:
        """That has ended it, also as shells tell it; 0: none."""
        if self.status < 0:
            return -self.status
        return self.status - 128 if 128 < self.status < 128 + signal.NSIG else 0


class Session:
    """A program that runs on a board. A context manager: it is ended after the block."""

    def __init__(self, command: Sequence[str], interface: Interface) -> None:
        """Use ``Agent.start``."""
        self._interface = interface
        with ExitStack() as opened:
            self._errors = opened.enter_context(tempfile.TemporaryFile())
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=-1
                )
            except OSError as error:
                raise EndedError(127, str(error)) from error
            opened.pop_all()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it, in any state: gently first, as what lies between may be several processes."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOODBYE_SECONDS)
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def begin(self, program: bytes, seconds: int) -> None:
        """Let the agent become the program. Raises ``EndedError``."""
        self._send(struct.pack("<QQ", len(program), seconds), program)

    def call(self, inputs: Sequence[Array], calls: int = 1) -> tuple[tuple[Array, ...], float]:
        """The outputs, and the seconds of one call on the board: a mean over ``calls``. Raises ``EndedError``."""
        self._send(struct.pack("<Q", calls), *(array.tobytes() for array in inputs))
        outputs = tuple(
            np.frombuffer(self._receive(tensor.bytes), tensor.dtype).reshape(tensor.extents)
            for tensor in self._interface.outputs
        )
        nanoseconds: int = struct.unpack("<Q", self._receive(WORD))[0]
        return outputs, max(nanoseconds, 1) * 1e-9 / calls

    def _send(self, *pieces: bytes) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        try:
            for piece in pieces:
                self._process.stdin.write(piece)
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended() from error

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None, "it is a pipe"
        data = self._process.stdout.read(size) if size else b""
        if len(data) != size:
            raise self._ended()
        return data

    def _ended(self) -> EndedError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_SECONDS)
        self._errors.seek(0)
        words = self._errors.read()[-MAX_DETAIL:].decode(errors="replace").strip()
        status = self._process.poll()
        return EndedError(255, "it closed its output") if status is None else EndedError(status, words)


@dataclass(frozen=True, slots=True)
class Agent:
    """``command``: what leads to an agent on the board, and to a new one each time."""

    command: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> "Agent":
        """From words as a shell has them. Raises ``BadInput``."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise BadInput(f"{shown(text)} is no command: {error}") from error
        if not words:
            raise BadInput("the agent's command is empty: give what leads to it, such as 'ssh board ./agent'")
        return Agent(tuple(words))

    def __str__(self) -> str:
        return shlex.join(self.command)

    def start(self, program: bytes, interface: Interface, seconds: float) -> Session:
        """Start a program, which the board ends after ``seconds``. Raises ``EndedError``."""
        session = Session(self.command, interface)
        try:
            session.begin(program, max(1, round(seconds)))
        except EndedError:
            session.close()
            raise
        return session
