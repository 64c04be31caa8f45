"""Databases of records, and records as JSON lines."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fuzz.target import Target
from tilewright.base.events import ignore
from tilewright.loops.parser import parse_program
from tilewright.measure.exchange import export_lines, import_lines
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.target.target import Target as Machine
from tilewright.tune.recorded import recorded

MAGIC = b"SQLite format 3\0"
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
    """A database: compiling goes on, whatever it is. Anything else is imported as lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.db"
        if data.startswith(MAGIC[:8]):
            path.write_bytes(data)
            with recorded(path, Machine.parse(MACHINE), 1, ignore) as found:
                if found is not None:
                    found.find(parse_program(PROGRAM))
                    found.has_ways()
            with Records.open(path) as records:
                list(records.all())
        else:
            lines = Path(folder) / "records.jsonl"
            lines.write_bytes(data)
            with Records.open(path) as records:
                import_lines(records, lines)


@cache
def _made() -> tuple[bytes, bytes]:
    """A small database, and its lines."""
    job = Job(PROGRAM, '{"version": 1, "steps": []}', MACHINE)
    with tempfile.TemporaryDirectory() as folder:
        path, lines = Path(folder) / "records.db", Path(folder) / "records.jsonl"
        with Records.open(path) as records:
            with records.session({}) as session:
                records.add(session, job, Outcome(Verdict.OK, times_us=(3.0, 1.0, 2.5)), State.CONFIRMED)
            export_lines(records, lines)
        return path.read_bytes(), lines.read_bytes()


def seeds() -> Iterator[bytes]:
    yield from _made()


TARGET = Target(
    "records",
    check,
    seeds,
    words=('"ir_version"', '"times_us_json"', '"status"', "[1e999]"),
    max_bytes=1 << 17,
    runs=12_000,
)
