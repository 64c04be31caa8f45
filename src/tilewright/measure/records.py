"""The database of measurements: jobs, targets and outcomes, in one SQLite file for any number of processes.

It uses a write-ahead log (WAL) with ``synchronous=FULL``, and one transaction for each record: when ``add`` has
returned, the record survives a kill or a power failure. Failures are records too. The file is untrusted:
``trusted_schema`` is off, foreign tables are refused, hashes and numbers are checked when they are read.

    with Records.open(path) as records, records.session(config) as session:
        if records.find(job) is None:
            records.add(session, job, runner.measure(job))
        best = records.best(program, target, threads, State.CONFIRMED)
"""

import json
import os
import platform
import shutil
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import cast

from tilewright import __version__
from tilewright.base import fields
from tilewright.base.errors import BadInput, CorruptRecord, ResourceLimit
from tilewright.base.sizes import format_size
from tilewright.loops.identity import family, identity
from tilewright.loops.program import Program
from tilewright.measure.database import REMEDY, SQLITE, connect_to_read, connect_to_write, explained, refuse_foreign
from tilewright.measure.job import IR_VERSION, Job, target_fingerprint, target_json, workload_hash, workload_keys
from tilewright.measure.row import Record, Row, State
from tilewright.measure.schema import CURRENT, Schema, prepare
from tilewright.measure.verdicts import Outcome, Verdict

LEAST_FREE_BYTES = 64 << 20
"""Minimum free bytes on the disk when a session begins."""
_COLUMNS = (
    "r.id, w.ir_version, w.hash, t.fp, r.job,"
    " w.ir, t.text, r.schedule_json, r.config_json, r.status, r.error, r.times_us_json, r.env_json, r.state"
    " FROM record r JOIN workload w ON w.id = r.workload_id JOIN target t ON t.id = r.target_id"
)
_SELECT = f"SELECT {_COLUMNS}"
_SELECT_DATED = f"SELECT r.created, {_COLUMNS}"

_USABLE = "WHERE r.status = 'ok' AND t.fp = ? AND json_extract(r.config_json, '$.threads') = ? AND r.state = ?"
"""Selects correct records of a target, a number of threads and a state."""


_IS_SIMULATED = "json_extract(r.config_json, '$.timing.simulated') IS NOT NULL"


class Records:
    """An open database, for the thread that opened it; other threads and processes open their own."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use ``Records.open``."""
        self._connection = connection
        self.path = path

    @staticmethod
    def open(path: str | os.PathLike[str], schema: Schema = CURRENT) -> "Records":
        """Open the database in ``path``; create it if it is missing.

        Raises ``BadInput`` if the file can't be made or written, ``CorruptRecord`` if it is not a database of records,
        damaged or newer, ``ResourceLimit`` if the disk is full.
        """
        place = Path(path)
        refuse_foreign(place, schema)
        connection = connect_to_write(place)
        try:
            with explained(place):
                prepare(connection, place, schema)
        except BaseException:
            connection.close()
            raise
        return Records(connection, place)

    @staticmethod
    def open_to_read(path: str | os.PathLike[str]) -> "Records | None":
        """Open the database in ``path`` without changing it; None if nothing was ever written to it.

        It takes no lock that a writer waits for, and fails within a second if another process has locked the file.
        Raises as ``open`` does, and ``BadInput`` if there is no such file.
        """
        place = Path(path)
        connection = connect_to_read(place, CURRENT)
        return None if connection is None else Records(connection, place)

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with SQLITE.lock:
            self._connection.close()

    # --- writing ------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self, config: Mapping[str, object]) -> Generator[int]:
        """A context manager: adds a row with the configuration, time and end of the session; yields its number for
        ``add``.

        Raises ``ResourceLimit`` if the disk is nearly full, ``CorruptRecord`` if the file is damaged, before any
        measurement.
        """
        _require_space(self.path)
        self._check("quick_check")
        columns = (_now(), platform.node(), __version__, json.dumps(dict(config), sort_keys=True))
        with self._transaction():
            made = self._connection.execute(
                "INSERT INTO session (started, host, tool_version, config_json) VALUES (?, ?, ?, ?)", columns
            )
        number = cast(int, made.lastrowid)
        outcome = "interrupted"
        try:
            yield number
            outcome = "done"
        finally:
            with self._transaction():
                self._connection.execute(
                    "UPDATE session SET ended = ?, outcome = ? WHERE id = ?", (_now(), outcome, number)
                )

    def add(self, session: int, job: Job, outcome: Outcome, state: State = State.SEARCHED) -> bool:
        """Store the outcome of ``job``; False if there is one already, which is unchanged.

        An outcome of ``DEVICE_LOST`` is replaced. When this returns, the record is on disk. Raises ``ResourceLimit`` if
        the disk is full; then nothing is written.
        """
        known_program = {"ir_version": IR_VERSION, "ir": job.program, "family": workload_keys(job.program)[1]}
        with self._transaction():
            workload = self._id_of("workload", "hash", job.workload, known_program)
            known_target = {"text": job.target, "json": target_json(job.target)}
            target = self._id_of("target", "fp", target_fingerprint(job.target), known_target)
            row = Row.of(job, outcome, state)
            values = {
                "job": job.id,
                "workload_id": workload,
                "target_id": target,
                "session_id": session,
                "schedule_json": row.schedule,
                "config_json": row.config,
                "status": row.status,
                "error": row.error,
                "times_us_json": row.times_us,
                "median_us": outcome.median_us,
                "mad_us": outcome.mad_us,
                "baseline_us": outcome.baseline_us,
                "env_json": row.environment,
                "created": _now(),
                "state": row.state,
            }
            replaced = ", ".join(f"{name} = excluded.{name}" for name in values if name != "job")
            made = self._connection.execute(
                f"INSERT INTO record ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
                f" ON CONFLICT (job) DO UPDATE SET {replaced} WHERE status = '{Verdict.DEVICE_LOST.value}'",
                tuple(values.values()),
            )
        return made.rowcount == 1

    def put(self, job: Job, state: State) -> None:
        """Set the state of the record of ``job``, if there is one."""
        with self._transaction():
            self._connection.execute("UPDATE record SET state = ? WHERE job = ?", (state.value, job.id))

    def _id_of(self, table: str, key: str, value: str, others: Mapping[str, object]) -> int:
        """The number of the row with this key, added if it is missing."""
        names = ", ".join((key, *others))
        marks = ", ".join("?" * (1 + len(others)))
        self._connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({key}) DO NOTHING", (value, *others.values())
        )
        (number,) = self._connection.execute(f"SELECT id FROM {table} WHERE {key} = ?", (value,)).fetchone()
        return int(number)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite has rolled back by itself if the disk is full
                    self._connection.execute("ROLLBACK")
                raise

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, job: Job) -> Outcome | None:
        """The outcome of ``job``, if it was measured."""
        found = list(self._select("WHERE r.job = ?", (job.id,)))
        return found[0].outcome if found and found[0].outcome.verdict is not Verdict.DEVICE_LOST else None

    def best(self, program: Program, target: str, threads: int, state: State, count: int = 1) -> list[Record]:
        """The fastest records of a program on a target, fastest first; only those with the verdict OK.

        Only jobs with this number of threads, in this state. Simulated cycles come after all that was measured.
        """
        key = identity(program)
        keys = (target_fingerprint(target), threads, state.value, key, count)
        chosen = f"{_USABLE} AND w.hash = ? ORDER BY {_IS_SIMULATED}, r.median_us LIMIT ?"
        return list(self._select(chosen, keys, {str(program): key}))

    def of(self, program: Program) -> list[Record]:
        """All records of a program, for any target and number of threads."""
        key = identity(program)
        return list(self._select("WHERE w.hash = ?", (key,), {str(program): key}))

    def relatives(self, program: Program, target: str, threads: int, state: State) -> list[Record]:
        """The fastest record of each other program of the same family (``loops.identity``), as by ``best``."""
        keys = (target_fingerprint(target), threads, state.value, family(program), identity(program))
        found = self._select(f"{_USABLE} AND w.family = ? AND w.hash <> ? ORDER BY r.median_us DESC", keys)
        return list({record.job.workload: record for record in found}.values())

    def candidates(self, program: Program, target: str, threads: int, count: int) -> list[Record]:
        """The last ``count`` correct candidates of a space, of other programs of the family of ``program``.

        Only of completed sessions, so that a resumed session finds the same as before it was killed.
        """
        keys = (target_fingerprint(target), threads, State.SEARCHED.value, family(program), identity(program), count)
        chosen = (
            f"{_USABLE} AND w.family = ? AND w.hash <> ? AND json_extract(r.config_json, '$.digits') IS NOT NULL"
            " AND r.session_id IN (SELECT id FROM session WHERE outcome = 'done') ORDER BY r.id DESC LIMIT ?"
        )
        return list(self._select(chosen, keys))

    def searched(self, program: Program, target: str, threads: int, count: int) -> list[Record]:
        """The last ``count`` candidates of ``program`` that searches measured, in order, those that failed included.

        Only of completed sessions, as by ``candidates``.
        """
        key = identity(program)
        keys = (State.SEARCHED.value, key, target_fingerprint(target), threads, count)
        chosen = (
            "WHERE r.state = ? AND w.hash = ? AND t.fp = ? AND json_extract(r.config_json, '$.threads') = ?"
            " AND json_extract(r.config_json, '$.digits') IS NOT NULL"
            " AND r.session_id IN (SELECT id FROM session WHERE outcome = 'done') ORDER BY r.id DESC LIMIT ?"
        )
        return list(self._select(chosen, keys, {str(program): key}))[::-1]

    def has_any(self, target: str, threads: int, state: State) -> bool:
        """Whether ``best`` would find a record of any program."""
        chosen = f"SELECT 1 FROM record r JOIN target t ON t.id = r.target_id {_USABLE} LIMIT 1"
        with explained(self.path):
            keys = target_fingerprint(target), threads, state.value
            return self._connection.execute(chosen, keys).fetchone() is not None

    def all(self) -> Iterator[Record]:
        """Every record, in order of insertion."""
        return self._select("ORDER BY r.id", ())

    def dated(self) -> Iterator[tuple[datetime, Record]]:
        """Every record with its time of insertion, in order. Raises ``CorruptRecord``."""
        with explained(self.path):
            rows = self._connection.execute(f"{_SELECT_DATED} ORDER BY r.id").fetchall()
        for created, *row in rows:
            yield _time(self.path, created), _read(self.path, tuple(row))

    def configs(self) -> Iterator[dict[str, object]]:
        """The configuration of each session, in order. Raises ``CorruptRecord``."""
        with explained(self.path):
            rows = self._connection.execute("SELECT config_json FROM session ORDER BY id").fetchall()
        try:
            yield from (fields.mapping(json.loads(text)) for (text,) in rows)
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptRecord(f"{self.path} is damaged: {error}; {REMEDY}") from error

    def counts(self) -> dict[Verdict, int]:
        """The number of records with each verdict."""
        with explained(self.path):
            rows = self._connection.execute("SELECT status, COUNT(*) FROM record GROUP BY status").fetchall()
        try:
            return {Verdict(status): int(count) for status, count in rows}
        except ValueError as error:
            raise CorruptRecord(f"{self.path} is damaged: {error}; {REMEDY}") from error

    def check(self) -> None:
        """Raise ``CorruptRecord`` if the file is damaged anywhere."""
        self._check("integrity_check")
        with explained(self.path):
            loose = self._connection.execute("PRAGMA foreign_key_check").fetchall()
        if loose:
            raise CorruptRecord(f"{self.path} is damaged: there are records without a workload; {REMEDY}")

    def _check(self, how: str) -> None:
        with explained(self.path):
            (found,) = self._connection.execute(f"PRAGMA {how}(1)").fetchone()
        if found != "ok":
            raise CorruptRecord(f"{self.path} is damaged: {found}; {REMEDY}")

    def _select(
        self, chosen: str, values: tuple[object, ...], known: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[Record]:
        with explained(self.path):
            rows = self._connection.execute(f"{_SELECT} {chosen}", values).fetchall()
        return (_read(self.path, row, known) for row in rows)


def _read(path: Path, row: tuple[object, ...], known: Mapping[str, str] = MappingProxyType({})) -> Record:
    """A record from a row of ``_SELECT``. Raises ``CorruptRecord`` if it is inconsistent. ``known``: cached keys of
    programs, by their texts."""
    number, version, *columns = row
    texts = [text for text in columns if isinstance(text, str)]
    try:
        if len(texts) != len(columns) or not isinstance(version, int):
            raise CorruptRecord("malformed: it holds something else than texts")
        key, fingerprint, job, *described = texts
        found = known.get(described[0]) or workload_hash(described[0])
        if version != IR_VERSION or found != key or target_fingerprint(described[1]) != fingerprint:
            raise CorruptRecord("its program or target is not what was kept (the hash differs)")
        record = Row(*described).record()
        if record.job.id != job:
            raise CorruptRecord("its schedule or way of timing is not what was kept (the hash differs)")
    except BadInput as error:
        raise CorruptRecord(f"{path}: record {number}: {error}; {REMEDY}") from error
    return record


def _time(path: Path, text: object) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError as error:
        raise CorruptRecord(f"{path}: a record was made at {text!r}, which is no time; {REMEDY}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _require_space(path: Path) -> None:
    with explained(path):
        free = shutil.disk_usage(path.absolute().parent).free
    if free < LEAST_FREE_BYTES:
        raise ResourceLimit(
            f"the disk of {path} has {format_size(free)} bytes left; records need {format_size(LEAST_FREE_BYTES)}"
        )
