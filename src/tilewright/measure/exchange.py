"""Records as JSON lines, for other machines and for review. Database files are never copied or joined.

What comes in is data from anywhere: a line that is torn, too long, or says what can't be is left out and counted; the
rest is kept. Times are claims of whoever wrote the file: measure again before you rely on them.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, cast

from tilewright.base.errors import BadInput, CorruptRecord
from tilewright.base.files import reason
from tilewright.base.input_files import open_regular
from tilewright.base.outputs import output
from tilewright.measure.job import IR_VERSION
from tilewright.measure.records import Records
from tilewright.measure.row import MAX_PROGRAM, Record, Row

MAX_LINE = 4 * MAX_PROGRAM
"""Bytes. Longer lines are skipped without being held in memory."""


@dataclass(frozen=True, slots=True)
class Imported:
    """``added``: new records; ``known``: those that were there already; ``refused``: lines with what is wrong there."""

    added: int
    known: int
    refused: tuple[str, ...]


def export_lines(records: Records, path: str | os.PathLike[str]) -> int:
    """Write all records to a file that appears at once; how many they are. Raises ``BadInput`` if it can't."""
    lines = [line_of(record) for record in records.all()]
    with output(path, inputs=[records.path]) as file:
        file.writelines(lines)
    return len(lines)


def import_lines(records: Records, path: str | os.PathLike[str]) -> Imported:
    """Add the records of a file. Raises ``BadInput`` if it can't be read, ``CorruptRecord`` if the database is damaged.

    Sessions say ``import`` and the name of the file, so that claims can be told from own measurements.
    """
    records.check()
    added, known, refused = 0, 0, list[str]()
    try:
        with open_regular(path) as file, records.session({"import": Path(path).name}) as session:
            for number, line in enumerate(_lines(file), 1):
                try:
                    record = _parse(line)
                except CorruptRecord as error:
                    refused.append(f"line {number}: {error}")
                    continue
                if records.add(session, record.job, record.outcome, record.state):
                    added += 1
                else:
                    known += 1
    except OSError as error:
        raise BadInput(f"can't read {os.fspath(path)}: {reason(error)}") from error
    return Imported(added, known, tuple(refused))


def line_of(record: Record) -> bytes:
    """A record as a line."""
    row = {"ir_version": IR_VERSION, **asdict(Row.of(record.job, record.outcome, record.state))}
    return json.dumps(row, sort_keys=True).encode() + b"\n"


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines; of one that is too long, its beginning."""
    while line := file.readline(MAX_LINE + 1):
        yield line
        while len(line) > MAX_LINE and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE + 1)


def _parse(line: bytes) -> Record:
    return read_row(line).record()


def read_row(line: bytes) -> Row:
    """The row that a line holds, which may say anything. Raises ``CorruptRecord`` if it holds none."""
    if len(line) > MAX_LINE:
        raise CorruptRecord(f"longer than {MAX_LINE} bytes")
    try:
        data: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"no JSON: {error}") from error
    if not isinstance(data, dict):
        raise CorruptRecord("no object")
    fields = cast("dict[str, object]", data)
    if fields.pop("ir_version", None) != IR_VERSION:
        raise CorruptRecord(f"not of version {IR_VERSION} of the notation of programs")
    names = set(Row.__slots__)
    if fields.keys() != names or not all(isinstance(value, str) for value in fields.values()):
        raise CorruptRecord(f"it should have the texts {', '.join(sorted(names))}")
    return Row(**cast("dict[str, str]", fields))
