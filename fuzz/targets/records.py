"""Databases of records."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fuzz.target import Target
from tilewright.base.events import ignore
from tilewright.loops.parser import parse_program
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.target.target import Target as Machine
from tilewright.tune.recorded import recorded

MACHINE = "x86_64,znver4,cores=2"
PROGRAM = """\
program tuned(A: f32[8]) -> (B: f32[8]):
  for i in range(8):
    block B(vi = i: spatial 8):
      reads A[vi]
      writes B[vi]
      B[vi] = A[vi]
"""


def check(data: bytes) -> None:
    """Compiling goes on, whatever the file is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        path.write_bytes(data)
        with recorded(path, Machine.parse(MACHINE), 1, ignore) as found:
            if found is not None:
                found.find(parse_program(PROGRAM))
                found.has_ways()
        with Records.open(path) as records:
            list(records.all())


@cache
def _made() -> bytes:
    """A small database."""
    job = Job(PROGRAM, '{"version": 1, "steps": []}', MACHINE)
    with tempfile.TemporaryDirectory() as folder:
        path, outcome = Path(folder) / "records.db", Outcome(Verdict.OK, times_us=(3.0, 1.0, 2.5))
        with Records.open(path) as records, records.session({}) as session:
            records.add(session, job, outcome, State.CONFIRMED)
        return path.read_bytes()


def seeds() -> Iterator[bytes]:
    yield _made()


TARGET = Target(
    "records",
    check,
    seeds,
    words=('"threads"', '"timing"', '"phase"', "[1e999]"),
    max_bytes=1 << 17,
    runs=6_000,
)
