"""Starts a process with a socket to this one, and stores its standard error until it has ended."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewright.measure.verdicts import MAX_DETAIL


@dataclass(frozen=True, slots=True)
class Spawned:
    """The process, this end of its socket, and the file of its standard error."""

    process: "subprocess.Popen[bytes]"
    socket: socket.socket
    errors: IO[bytes]

    def last_words(self) -> str:
        """The end of its standard error, decoded leniently. Closes the file."""
        with self.errors as file, suppress(OSError):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_DETAIL))
            return file.read(MAX_DETAIL).decode(errors="replace").strip()
        return ""


def spawn(command: Sequence[str], options: Mapping[str, int | str], rest: Sequence[str] = ()) -> Spawned:
    """Start ``command --socket=FD --name=value... rest...`` in its own session and process group.

    Raises ``OSError`` if it can't be started; all files are closed then.
    """
    with ExitStack() as opened:
        ours, theirs = map(opened.enter_context, socket.socketpair())
        errors = opened.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in {"socket": theirs.fileno(), **options}.items()), *rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(theirs.fileno(),),
            env=_environment(),
            start_new_session=True,
        )
        opened.pop_all()
    theirs.close()
    return Spawned(process, ours, errors)


def _environment() -> dict[str, str]:
    """This process's environment, adapted so that the same Tilewright is imported, and NumPy starts no threads."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
