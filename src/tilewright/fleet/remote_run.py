"""On a device: runs whole models, each time in a process of its own (``model_child``, ...) that may crash or hang."""

import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tilewright.base import fields
from tilewright.base.errors import FleetError, MeasureError, OutOfMemory, Timeout
from tilewright.measure.messages import MAX_REQUEST, receive_blocking, send_blocking
from tilewright.measure.processes import kill_group
from tilewright.measure.spawn import Spawned, spawn
from tilewright.measure.verdicts import Phase, Verdict
from tilewright.measure.worker import verdict_of_end

MOST_SECONDS = 3600.0
_LOOK_SECONDS = 0.05


def run_model(
    command: Sequence[str], asked: Mapping[str, object], folder: Path, store: Path, stop: threading.Event
) -> tuple[dict[str, object], tuple[bytes, ...]]:
    """Let a child do what is asked; the answer and the bytes of its outputs.

    ``command``: starts it; ``folder``: for outputs; ``store``: where artifacts and feeds are; ``stop``: is set when the
    lease has ended. Raises ``Timeout``, ``OutOfMemory``, ``MeasureError`` if the child does not answer, and
    ``FleetError`` if there is none.
    """
    end = time.monotonic() + min(fields.number(asked["seconds"]), MOST_SECONDS)
    try:
        spawned = spawn(command, {}, ())
    except OSError as error:
        raise FleetError(f"the device can't start a process: {error}") from error
    try:
        send_blocking(spawned.socket, {**asked, "folder": str(folder), "store": str(store)})
        is_late = not _wait(spawned, end, stop)
        answer = None if is_late else receive_blocking(spawned.socket, MAX_REQUEST)
        if answer is None:
            raise _fault(spawned, is_late=is_late)
        count = len(fields.items(answer.get("outputs", [])))
        return answer, tuple((folder / f"output_{place}").read_bytes() for place in range(count))
    finally:
        _end(spawned)


def _wait(spawned: Spawned, end: float, stop: threading.Event) -> bool:
    """Whether the child has said something, or has ended, in time."""
    while time.monotonic() < end and not stop.is_set():
        ready, _, _ = select.select([spawned.socket], [], [], _LOOK_SECONDS)
        if ready:
            return True
    return False


def _fault(spawned: Spawned, *, is_late: bool) -> MeasureError | OutOfMemory | Timeout:
    if is_late:
        return Timeout("the model was not done within the time that it may take on the device")
    with suppress(subprocess.TimeoutExpired):
        spawned.process.wait(1.0)
    outcome = verdict_of_end(spawned.process.poll(), spawned.last_words(), Phase.TIME)
    if outcome.verdict is Verdict.OOM:
        return OutOfMemory(f"the device has not enough memory for the model: {outcome.detail}")
    return MeasureError(f"the model has ended its process on the device: {outcome.verdict.value}: {outcome.detail}")


def _end(spawned: Spawned) -> None:
    kill_group(spawned.process.pid)
    with suppress(subprocess.TimeoutExpired):
        spawned.process.wait(5)
    spawned.socket.close()
    spawned.errors.close()
