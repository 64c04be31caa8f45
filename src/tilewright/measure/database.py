"""Opens the database file of records to read or to write, and translates SQLite's errors.

A reader takes no lock that a writer waits for, waits at most ``READING_SECONDS``, changes nothing and leaves no file
behind. A writer first checks the file as a reader does: a damaged or foreign file is refused before any change.
"""

import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from tilewright.base.errors import BadInput, CorruptRecord, MeasureError, ResourceLimit, TilewrightError
from tilewright.base.files import reason
from tilewright.base.forks import ForkLock
from tilewright.measure.schema import Schema, examine

SQLITE = ForkLock()
"""Held while SQLite is used: it has locks, which a forked child would inherit in any state."""
READING_SECONDS = 0.25
WRITING_SECONDS = 30.0
REMEDY = "move it away, or give another file (TILEWRIGHT_RECORDS, --records)"
_BESIDE = ("-wal", "-journal", "-shm")
"""Auxiliary files of SQLite; one of the first two means that a writer may be active, or was killed."""
_HEADER_BYTES = 100
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"})


def connect_to_read(path: Path, schema: Schema) -> sqlite3.Connection | None:
    """A read-only connection; None if nothing was ever written to the file.

    Raises ``CorruptRecord`` if it is not a database of records, damaged, or of another version, ``ResourceLimit`` if it
    is locked, ``BadInput`` if it can't be read.
    """
    found = _check_files(path)
    # Without these files there is no writer, and so no need for a lock; SQLite would create them and leave them behind.
    is_at_rest = found.isdisjoint(_beside(path, suffix) for suffix in _BESIDE[:2])
    with explained(path, "read", READING_SECONDS):
        return _opened_to_read(path, schema, READING_SECONDS, "&immutable=1" if is_at_rest else "", migrated=True)


def connect_to_write(path: Path) -> sqlite3.Connection:
    """A connection with a write-ahead log (WAL); transactions are on disk when they end. The tables may be missing.

    Raises ``BadInput`` if the file can't be made or written, ``CorruptRecord`` as by ``connect_to_read``.
    """
    refuse_network(path)
    _check_files(path)
    with explained(path):
        connection = sqlite3.connect(path, isolation_level=None, timeout=WRITING_SECONDS)
        try:
            _set(connection, "trusted_schema=OFF", "cell_size_check=ON", "foreign_keys=ON")
            _set(connection, "journal_mode=WAL", "synchronous=FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def refuse_foreign(path: Path, schema: Schema) -> None:
    """Raise ``CorruptRecord`` if there is a file with other contents than records; nothing is changed."""
    if path in _check_files(path):
        with explained(path):
            connection = _opened_to_read(path, schema, WRITING_SECONDS, "", migrated=False)
            if connection is not None:
                connection.close()


def _opened_to_read(
    path: Path, schema: Schema, seconds: float, how: str, *, migrated: bool
) -> sqlite3.Connection | None:
    """A connection to a checked file. ``how``: further parameters of SQLite's URI."""
    address = f"{path.absolute().as_uri()}?mode=ro{how}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=seconds)
    try:
        _set(connection, "trusted_schema=OFF", "cell_size_check=ON", "query_only=ON")
        if examine(connection, path, schema, migrated=migrated):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _set(connection: sqlite3.Connection, *settings: str) -> None:
    for setting in settings:
        with closing(connection.execute(f"PRAGMA {setting}")):
            pass


def _check_files(path: Path) -> frozenset[Path]:
    """The file and its auxiliary files, if they exist. Raises ``CorruptRecord`` unless they are regular files: opening
    a FIFO would block forever.

    SQLite treats a file shorter than its header as a new database, and overwrites it.
    """
    found = set[Path]()
    for file in (path, *(_beside(path, suffix) for suffix in _BESIDE)):
        try:
            facts = os.stat(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise BadInput(f"the records {os.fspath(path)!r} can't be opened ({why}); give another file") from error
        if not stat.S_ISREG(facts.st_mode):
            raise CorruptRecord(f"{file} is no regular file, so there are no records; {REMEDY}")
        if file == path and 0 < facts.st_size < _HEADER_BYTES:
            raise CorruptRecord(f"{file} is no database of records: it has {facts.st_size} bytes; {REMEDY}")
        found.add(file)
    return frozenset(found)


def _beside(path: Path, suffix: str) -> Path:
    return Path(f"{path}{suffix}")


@contextmanager
def explained(path: Path, done: str = "written", seconds: float = WRITING_SECONDS) -> Generator[None]:
    """SQLite's errors as ones that name the file, the problem, and the remedy.

    ``done``: the operation that fails if the file can't be opened; ``seconds``: the timeout for locks.
    """
    try:
        with SQLITE.lock:
            yield
    except UnicodeError as error:  # SQLite's message about a damaged schema may quote its bytes
        raise CorruptRecord(f"{path} is no database of records, or is damaged ({error}); {REMEDY}") from error
    except sqlite3.Error as error:
        raise _explanation(path, error, done, seconds) from error
    except OSError as error:
        raise BadInput(f"{path} can't be {done}: {reason(error)}") from error


def _explanation(path: Path, error: sqlite3.Error, done: str, seconds: float) -> TilewrightError:
    name = getattr(error, "sqlite_errorname", "")
    is_misused = isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError)
    if name.startswith("SQLITE_FULL"):
        return ResourceLimit(f"the disk of {path} is full; the record was not kept. Free some space and go on")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        fit = {"written": "writable", "read": "readable"}[done]
        return BadInput(f"{path} can't be {done} ({error}); make the file and its folder {fit}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ResourceLimit(f"{path}: another process has locked it, and {seconds:g} s were waited; try again")
    if name.startswith(("SQLITE_IOERR", "SQLITE_CONSTRAINT", "SQLITE_INTERRUPT", "SQLITE_PROTOCOL")) or is_misused:
        return MeasureError(f"{path}: {error} ({name or type(error).__name__}); try again, or {REMEDY}")
    return CorruptRecord(f"{path} is no database of records, or is damaged ({error}); {REMEDY}")


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Raise ``BadInput`` on a network file system: there, processes do not see each other's shared memory."""
    try:
        lines = [line.split() for line in mounts.read_text(errors="surrogateescape").splitlines()]
        folder = path.absolute().parent
    except OSError:
        return
    around = [fields for fields in lines if len(fields) > 2 and folder.is_relative_to(fields[1])]
    kind = max(around, key=lambda fields: len(fields[1]))[2] if around else ""
    if kind in _NETWORK_FILE_SYSTEMS:
        raise BadInput(f"{path} is on a network file system ({kind}); the records must be on a local disk")
