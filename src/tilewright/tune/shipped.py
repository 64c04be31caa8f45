"""Records that come with the package: what was tuned on processors of some kinds (``benchmarks/ship.py`` makes them).

A file of JSON lines (``measure.exchange``) for each target, called by its fingerprint, with one record of a program,
number of threads and seed. On any other processor nothing is read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import CorruptRecord
from tilewright.base.outputs import output
from tilewright.measure.exchange import line_of, read_row
from tilewright.measure.job import target_fingerprint, workload_hash
from tilewright.measure.row import Record, Row
from tilewright.target.target import Target

SHIPPED = Path(__file__).parent / "shipped_records"
Key = tuple[str, int, int]
"""Hash of a program, threads, seed."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """The records for one target. Each is checked when it is asked for."""

    fingerprint: str
    rows: Mapping[Key, Row]

    @staticmethod
    def of(target: Target, folder: Path = SHIPPED) -> "Shipped":
        """Those for ``target``, none if there is no file for it. Raises ``CorruptRecord`` if that is damaged."""
        fingerprint = target_fingerprint(str(target))
        path = _file(fingerprint, folder)
        rows = map(read_row, path.read_bytes().splitlines()) if path.exists() else ()
        return Shipped(fingerprint, {_key(row): row for row in rows})

    def best(self, program: str, target: str, threads: int = 1, *, seed: int = 0, count: int = 1) -> list[Record]:
        """The record of a program, as ``Records.best`` finds it."""
        row = self.rows.get((workload_hash(program), threads, seed))
        is_for = target_fingerprint(target) == self.fingerprint
        return [row.record()][:count] if row is not None and is_for else []

    def programs(self, target: str, threads: int, *, seed: int = 0) -> list[str]:
        """The texts of all programs of which ``best`` finds a record."""
        if target_fingerprint(target) != self.fingerprint:
            return []
        return [row.program for (_, of_row, data), row in self.rows.items() if (of_row, data) == (threads, seed)]


def write(records: list[Record], target: Target, folder: Path = SHIPPED) -> Path:
    """Let ``records`` come with the package, instead of those that are there for ``target``; the file."""
    folder.mkdir(exist_ok=True)
    path = _file(target_fingerprint(str(target)), folder)
    with output(path) as file:
        file.writelines(map(line_of, records))
    return path


def _file(fingerprint: str, folder: Path) -> Path:
    return folder / f"{fingerprint[:16]}.jsonl"


def _key(row: Row) -> Key:
    try:
        config = json.loads(row.config)
        return workload_hash(row.program), int(config["threads"]), int(config["seed"])
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptRecord(f"a record that came with the package is damaged: {error!r}") from error
