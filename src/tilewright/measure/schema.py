"""The schema of the records database: tables, migrations, and validation of files.

A file has its schema version (``PRAGMA user_version``) and our application id (``PRAGMA application_id``). Older files
are copied and then migrated, step by step, in one transaction; newer ones are refused, and so are files with foreign
tables, views or triggers.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import fields
from tilewright.base.errors import CorruptRecord
from tilewright.measure.job import IR_VERSION, job_id, workload_keys
from tilewright.measure.row import State
from tilewright.measure.verdicts import Verdict

APPLICATION = 0x54574D52  # "TWMR"

_VERDICTS = ", ".join(f"'{verdict.value}'" for verdict in Verdict)
_STATE = f"state TEXT NOT NULL DEFAULT 'searched' CHECK (state IN ({', '.join(repr(state.value) for state in State)}))"
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE target (id INTEGER PRIMARY KEY, fp TEXT NOT NULL UNIQUE, text TEXT NOT NULL, json TEXT NOT NULL)"
    " STRICT",
    "CREATE TABLE workload (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, ir_version INTEGER NOT NULL,"
    " ir TEXT NOT NULL, family TEXT NOT NULL DEFAULT '') STRICT",
    "CREATE TABLE session (id INTEGER PRIMARY KEY, started TEXT NOT NULL, host TEXT NOT NULL,"
    " tool_version TEXT NOT NULL, config_json TEXT NOT NULL, ended TEXT, outcome TEXT) STRICT",
    "CREATE TABLE record (id INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE,"
    " workload_id INTEGER NOT NULL REFERENCES workload(id), target_id INTEGER NOT NULL REFERENCES target(id),"
    " session_id INTEGER NOT NULL REFERENCES session(id), schedule_json TEXT NOT NULL, config_json TEXT NOT NULL,"
    f" status TEXT NOT NULL CHECK (status IN ({_VERDICTS})), error TEXT NOT NULL, times_us_json TEXT NOT NULL,"
    f" median_us REAL, mad_us REAL, baseline_us REAL, env_json TEXT NOT NULL, created TEXT NOT NULL, {_STATE},"
    " CHECK ((status = 'ok') = (median_us IS NOT NULL)), CHECK (median_us IS NULL OR median_us > 0)) STRICT",
    "CREATE INDEX best ON record (workload_id, target_id, median_us) WHERE status = 'ok'",
)
_TO_SECOND = f"""
ALTER TABLE record ADD COLUMN {_STATE};
UPDATE record SET state = CASE WHEN json_extract(config_json, '$.seed') = 0 THEN 'searched'
  WHEN status <> 'ok' OR job IN (SELECT subject FROM quarantine) THEN 'repeated'
  ELSE CASE json_extract(config_json, '$.seed') WHEN 1 THEN 'confirmed' WHEN 3 THEN 'compared' ELSE 'repeated' END END;
DROP TABLE quarantine;
ALTER TABLE workload ADD COLUMN family TEXT NOT NULL DEFAULT '';
UPDATE workload SET hash = workload_hash(ir), family = family_of(ir), ir_version = {IR_VERSION};
UPDATE record SET job = job_id((SELECT hash FROM workload WHERE id = workload_id), schedule_json,
  (SELECT fp FROM target WHERE id = target_id), config_json)
"""
"""Version 1 encoded the state of a record by its seed and a table of unusable ones, and identified programs by text."""
_Object = tuple[str, str, tuple[str, ...]]
"""Type, name and columns of a schema object."""


@dataclass(frozen=True, slots=True)
class Schema:
    """``tables``: the statements of the newest version; ``migrations``: the steps from version 1 + i to the next."""

    tables: Sequence[str] = TABLES
    migrations: Sequence[str] = (_TO_SECOND,)

    @property
    def version(self) -> int:
        """The newest version; the first one is 1."""
        return 1 + len(self.migrations)


CURRENT = Schema()


def examine(connection: sqlite3.Connection, path: Path, schema: Schema = CURRENT, *, migrated: bool) -> bool:
    """Whether the file has the tables; False if nothing was ever written to it. Read-only.

    Raises ``CorruptRecord`` if the file is foreign or newer, or older and it must be ``migrated``; and SQLite's errors.
    """
    version = _pragma(connection, "user_version")
    if version == 0 and not _objects(connection):
        return False
    _check_version(connection, path, version, schema)
    if version == schema.version:
        _check_objects(connection, path, schema)
    elif migrated:
        raise CorruptRecord(f"{path} was written by an older Tilewright; run `tilewright tune` once, which updates it")
    return True


def prepare(connection: sqlite3.Connection, path: Path, schema: Schema = CURRENT) -> None:
    """Create the tables in a new file; migrate an old one. The connection must not be in a transaction.

    Raises ``CorruptRecord`` if the file is foreign or newer, and SQLite's errors.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _pragma(connection, "user_version")
        if version == 0 and not _objects(connection):
            _run(connection, schema.tables)
            _run(connection, (f"PRAGMA application_id = {APPLICATION}",))
        else:
            _check_version(connection, path, version, schema)
            if version < schema.version:
                _copy(path, version)
                _teach(connection)
            for script in schema.migrations[version - 1 :]:
                _run(connection, script.split(";"))
        _run(connection, (f"PRAGMA user_version = {schema.version}",))
        _check_objects(connection, path, schema)
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself if the disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _teach(connection: sqlite3.Connection) -> None:
    """Register the functions that migrations call."""

    def key(text: str) -> str:
        return workload_keys(text)[0]

    def family(text: str) -> str:
        return workload_keys(text)[1]

    def renamed(workload: str, schedule: str, fingerprint: str, config: str) -> str:
        found = fields.mapping(json.loads(config))
        timing = found["threads"], found["seed"], found["timing"]
        return job_id(workload, json.loads(schedule), fingerprint, timing)

    connection.create_function("workload_hash", 1, key)
    connection.create_function("family_of", 1, family)
    connection.create_function("job_id", 4, renamed)


def _check_version(connection: sqlite3.Connection, path: Path, version: int, schema: Schema) -> None:
    if _pragma(connection, "application_id") != APPLICATION:
        raise CorruptRecord(f"{path} is a database of another program; give another path for the records")
    if not 1 <= version <= schema.version:
        raise CorruptRecord(
            f"{path} was written by a newer Tilewright (its schema is {version}, this one knows {schema.version}); "
            "update Tilewright, or give another path for the records"
        )


def _check_objects(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Refuse foreign objects: a trigger or view could alter what is read or written."""
    with closing(sqlite3.connect(":memory:")) as model:
        _run(model, schema.tables)
        wrong = _objects(connection) ^ _objects(model)
    if wrong:
        named = ", ".join(sorted({f"{kind} {name}" for kind, name, _ in wrong}))
        raise CorruptRecord(f"{path} does not have just the tables of the records ({named}); give another path")


def _objects(connection: sqlite3.Connection) -> set[_Object]:
    """All schema objects of the file; SQLite's own indexes have no SQL."""
    rows = connection.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    named = {(str(kind), str(name)) for kind, name in rows}
    return {(kind, name, _columns(connection, kind, name)) for kind, name in named}


def _columns(connection: sqlite3.Connection, kind: str, name: str) -> tuple[str, ...]:
    """The columns of a table; other objects are not inspected."""
    if kind != "table":
        return ()
    return tuple(str(column) for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))


def _run(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _copy(path: Path, version: int) -> None:
    """Copy the file before any change. It reads the last commit, as the caller holds the lock."""
    copy = path.with_name(f"{path.name}.schema{version}")
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
