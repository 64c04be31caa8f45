"""A child that measures as the real one does, but whose kernels do what the program's name says (``segv__17``)."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.measure.build import Image
from tilewright.measure.child import main
from tilewright.measure.job import Job
from tilewright.runtime.executable import Executable
from tilewright.runtime.memory import address_of

Array = NDArray[np.generic]

_libc = ctypes.CDLL(None)
_holding_the_lock = ctypes.PyDLL(None)
_GIGABYTE = 1 << 30
MEETING = "MEETING_OF_KERNELS"

damaged: list[bool] = []
"""Not empty when an earlier candidate has damaged this process: the next one dies of it."""


class Fault(Enum):
    """What a kernel can do. The first ten are those of the storm."""

    SEGV = "segv"
    ABORT = "abort"
    FPE = "fpe"
    LOOP = "loop"
    LOCK = "lock"
    STOP = "stop"
    MEMORY = "memory"
    FORK = "fork"
    GARBAGE = "garbage"
    WRONG = "wrong"

    READ_AFTER = "read_after"
    READ_BEFORE = "read_before"
    WRITE_BESIDE = "write_beside"
    UNWRITTEN = "unwritten"
    INPUT = "input"
    EXIT = "exit"
    CLOSE = "close"
    FORGED = "forged"
    LONG = "long"
    OUT_OF_TURN = "out_of_turn"
    KILLED = "killed"
    SLOW = "slow"
    LATE_WRONG = "late_wrong"
    AFTERMATH = "aftermath"
    CLAIM = "claim"
    MEET = "meet"
    """Wait until as many processes do as ``MEETING`` says; else it is wrong."""


class FaultyKernel:
    """A kernel that computes what is right, and does one thing more."""

    def __init__(self, kernel: Executable, fault: Fault) -> None:
        self._kernel = kernel
        self._fault = fault
        self._checks = 0
        self.manifest = kernel.manifest

    def timed_run(
        self, feeds: Mapping[str, Array], out: Mapping[str, Array], *, runs: int
    ) -> tuple[list[Array], list[float]]:
        return self._kernel.timed_run(feeds, out, runs=runs)

    def run(self, feeds: Mapping[str, Array], out: Mapping[str, Array]) -> list[Array]:
        results = self._kernel.run(feeds, out)
        self._checks += 1
        self._misbehave(next(iter(feeds.values())), results[0])
        return results

    def _misbehave(self, given: Array, result: Array) -> None:
        match self._fault:
            case Fault.SEGV:
                ctypes.string_at(8)
            case Fault.ABORT:
                os.abort()
            case Fault.FPE:
                _libc.div(1, 0)
                os.kill(os.getpid(), signal.SIGFPE)  # where division does not trap
            case Fault.LOOP:
                while True:
                    pass
            case Fault.LOCK:
                _holding_the_lock.sleep(100_000)
            case Fault.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Fault.MEMORY:
                np.ones(100 * _GIGABYTE, np.uint8)
            case Fault.FORK:
                fork_away()
            case Fault.GARBAGE:
                os.write(socket_number(), b"\x80\x04cos\nsystem\n")
            case Fault.WRONG:
                spoil(result)
            case Fault.READ_AFTER:
                ctypes.string_at(address_of(given) + given.nbytes, 1)
            case Fault.READ_BEFORE:
                ctypes.string_at(address_of(given) - 1, 1)
            case Fault.WRITE_BESIDE:
                inside = -1 if self._checks == 1 else result.nbytes  # of the page, on the side that has no guard
                ctypes.memset(address_of(result) + inside, 1, 1)
            case Fault.UNWRITTEN:
                result.flat[-1] = np.nan
            case Fault.INPUT:
                spoil(given)
            case Fault.EXIT:
                os._exit(0)
            case Fault.CLOSE:
                os.close(socket_number())
                time.sleep(1000)
            case Fault.FORGED:
                say(b'{"outcome":{"verdict":"ok","detail":"","phase":null,"times_us":[1e-300],"baseline_us":1,"drift":0,'
                    b'"seconds":{},"machine":{}}}')  # fmt: skip
            case Fault.LONG:
                os.write(socket_number(), (1 << 30).to_bytes(4, "big"))
            case Fault.OUT_OF_TURN:
                say(b'{"ready":true}')
            case Fault.KILLED:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.SLOW:
                time.sleep(1000)
            case Fault.AFTERMATH:
                damaged.append(True)
            case Fault.CLAIM:
                say(b'{"outcome":{"verdict":"timeout","detail":"","phase":null,"times_us":[],"baseline_us":1,"drift":0,'
                    b'"seconds":{},"machine":{}}}')  # fmt: skip
            case Fault.MEET:
                if not has_met():
                    spoil(result)
            case Fault.LATE_WRONG:
                if self._checks == 2:
                    spoil(result)


def has_met() -> bool:
    """Whether all come to the meeting that the variable ``MEETING`` names: a folder, and a number."""
    folder, _, number = os.environ[MEETING].rpartition(":")
    Path(folder, str(os.getpid())).touch()
    end = time.monotonic() + 20
    while len(os.listdir(folder)) < int(number):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def spoil(array: Array) -> None:
    """Change the sign of the first element, which is a float."""
    array.view(np.uint8).flat[array.itemsize - 1] ^= np.uint8(0x80)


def fork_away() -> None:
    """Leave a process behind that has a session of its own, ignores what can be ignored, and has no parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(100_000)
        os._exit(0)


def socket_number() -> int:
    """The descriptor on which the child answers."""
    return next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--socket="))


def say(content: bytes) -> None:
    """Send a frame past the child."""
    os.write(socket_number(), len(content).to_bytes(4, "big") + content)


def faulty(image: Image, job: Job, name: str) -> Executable:
    """The image, ready to run, with the fault that its program's name asks for."""
    kernel = image.executable(job.threads)
    if damaged:
        ctypes.string_at(8)
    named = name.partition("__")[0]
    if named not in {fault.value for fault in Fault}:
        return kernel
    return FaultyKernel(kernel, Fault(named))  # pyright: ignore[reportReturnType] # has what a bench uses


if __name__ == "__main__":
    raise SystemExit(main(start=faulty))
