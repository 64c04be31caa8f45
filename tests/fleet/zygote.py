"""Starts processes of fleets by forking: importing everything takes longer than what most tests do.

Each line of standard input is JSON: ``{"log": path, "words": [...]}`` runs ``tilewright fleet WORDS``; the number
of the process is printed. All of them end with this one.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import tilewright.fleet.join
import tilewright.measure.candidate  # what children import is read from disk once
from tests.measure.jobs import FAULTY
from tilewright.cli import main
from tilewright.fleet import ways
from tilewright.measure.processes import die_with

assert tilewright.fleet.join and tilewright.measure.candidate


def bury(*_: object) -> None:
    """Reap what has ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run(log: str, words: list[str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with(zygote)
    os.setsid()
    with Path(log).open("ab") as file, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os._exit(main(["fleet", *words]))


ways.NATIVE = replace(ways.NATIVE, measuring=FAULTY)
zygote = os.getpid()
signal.signal(signal.SIGCHLD, bury)
for line in sys.stdin:
    asked = json.loads(line)
    process = os.fork()
    if process == 0:
        run(asked["log"], asked["words"])
    print(process, flush=True)
