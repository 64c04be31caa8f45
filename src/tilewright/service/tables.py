"""Tables of the service, and connections: SQLite (write-ahead log, synchronous), or PostgreSQL.

    builds    what is compiled: a model with options, once.   waiting -> running -> done | failed | cancelled
    jobs      what was submitted: many jobs may share a build; each has an owner, and may be cancelled by itself
    owners    names of tokens; a row is locked while its owner's jobs are counted

``builds.shared`` is the content hash of the submission while further jobs may share the build, and unique.

SQLite has one writer at a time. PostgreSQL has many (READ COMMITTED), so each transaction locks the rows that it
decides by: first an owner's, then a build's.
"""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql import text

from tilewright.base.errors import BadInput
from tilewright.base.files import reason
from tilewright.service.flushes import Flushes
from tilewright.service.limits import Unavailable

SCHEMA: Final = "1"
_BUSY_MS: Final = 30_000
_PATIENCE: Final = {"connect_timeout": "5", "tcp_user_timeout": "20000", "options": "-c statement_timeout=20000"}
"""A server of PostgreSQL that does not answer is given up after so long (libpq; seconds, and twice milliseconds)."""
_POOL: Final[dict[str, object]] = {"pool_pre_ping": True, "pool_size": 10, "max_overflow": 10, "pool_timeout": 10.0}
_LOCK: Final = 0x54775376
"""Held while tables are made: of services that start at the same time, one makes them."""


class State(Enum):
    """The state of a build, and of its jobs that are not cancelled."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self not in LIVE


LIVE: Final = (State.WAITING, State.RUNNING)
LIVE_NAMES: Final = tuple(state.value for state in LIVE)

_METADATA = MetaData()
META = Table("meta", _METADATA, Column("key", String(64), primary_key=True), Column("value", Text, nullable=False))
OWNERS = Table("owners", _METADATA, Column("name", String(64), primary_key=True))
BUILDS = Table(
    "builds",
    _METADATA,
    Column("id", String(32), primary_key=True),
    Column("shared", String(64), unique=True),
    Column("model", String(64), nullable=False),
    Column("options", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("attempts", Integer, nullable=False),
    Column("worker", String(64)),
    Column("claim", String(32)),
    Column("lease", Float),
    Column("step", String(200)),
    Column("done", Integer),
    Column("total", Integer),
    Column("error_kind", String(64)),
    Column("error", Text),
    Column("artifact", String(64)),
    Index("builds_by_state", "state", "created"),
)
JOBS = Table(
    "jobs",
    _METADATA,
    Column("id", String(32), primary_key=True),
    Column("build", String(32), ForeignKey("builds.id"), nullable=False, index=True),
    Column("owner", String(64), ForeignKey("owners.name"), nullable=False),
    Column("name", String(200), nullable=False),
    Column("created", Float, nullable=False),
    Column("cancelled", Float),
    Index("jobs_by_owner", "owner", "created"),
)


class Database:
    """Transactions on the tables."""

    def __init__(self, url: str) -> None:
        """``url``: as SQLAlchemy takes it. Raises ``BadInput`` if there is no such database, or it can't be used."""
        try:
            parsed = _known(make_url(url))
            self._is_server = parsed.get_backend_name() != "sqlite"
            self._engine = create_engine(parsed, **(_POOL if self._is_server else {}))
            # Threads of a process wait for each other here: SQLite lets who waits sleep, up to 0.1 s at a time.
            self._turn: AbstractContextManager[object] = nullcontext() if self._is_server else threading.Lock()
            self._flushes = None if self._is_server else Flushes(Path(f"{parsed.database}-wal"))
            if not self._is_server:
                _prepare_sqlite(self._engine)
            with ExitStack() as refused:
                refused.callback(self._engine.dispose)
                self._make_tables()
                refused.pop_all()
        except ModuleNotFoundError as error:
            raise BadInput(
                f"the database's URL can't be used: there is no {error.name}: pip install 'tilewright[postgresql]'"
            ) from error
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise BadInput(f"the database's URL can't be used: {_first_line(error)}") from error
        except (SQLAlchemyError, Unavailable) as error:
            raise BadInput(f"the database can't be used: {_first_line(error.__cause__ or error)}") from error

    def _make_tables(self) -> None:
        with self.writing() as connection:
            if self._is_server:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            _METADATA.create_all(connection)
            self._check_schema(connection)

    @contextmanager
    def writing(self, *, lasting: bool = True) -> Generator[Connection]:
        """A transaction that may write; it is undone by an exception. Raises ``Unavailable``: it may have been done.

        ``lasting``: a failure of power does not undo it, so it waits for the disk, and others wait for it.
        """
        with _explained(), self._turn, self._engine.begin() as connection:
            if self._is_server and not lasting:
                connection.execute(text("SET LOCAL synchronous_commit TO OFF"))
            yield connection
        if lasting and self._flushes is not None:
            try:
                self._flushes.flush()
            except OSError as error:
                raise Unavailable(f"the database's disk does not answer: {reason(error)}") from error

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that only reads, and waits for no writer. Raises ``Unavailable``."""
        with _explained(), self._engine.connect().execution_options(reads=True) as connection:
            yield connection

    def add_owner(self, name: str) -> None:
        """Let ``name`` be an owner of jobs."""
        try:
            with self.writing() as connection:
                if connection.execute(select(OWNERS).where(OWNERS.c.name == name)).first() is None:
                    connection.execute(insert(OWNERS).values(name=name))
        except IntegrityError:
            return  # another process was faster

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        if self._flushes is not None:
            self._flushes.close()

    def _check_schema(self, connection: Connection) -> None:
        found = connection.execute(select(META.c.value).where(META.c.key == "schema")).scalar_one_or_none()
        if found is None:
            connection.execute(insert(META).values(key="schema", value=SCHEMA))
        elif found != SCHEMA:
            raise BadInput(f"the database has the schema {found}, and this version of Tilewright reads {SCHEMA}")


def _known(url: URL) -> URL:
    """The URL with the driver that we use, and limits of time where it sets none. Raises ``BadInput``."""
    match url.get_backend_name():
        case "sqlite":
            return url
        case "postgresql":
            driver = url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
            return driver.update_query_dict({name: value for name, value in _PATIENCE.items() if name not in url.query})
        case other:
            raise BadInput(f"the database's URL can't be used: write sqlite:///FILE or postgresql://..., not {other}")


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, NoConnectionError) as error:
        raise Unavailable(f"the database does not answer: {_first_line(error)}") from error


def _prepare_sqlite(engine: Engine) -> None:
    """Transactions begin as the caller says: Python's driver begins none where a transaction only reads.

    SQLite flushes its log when it is copied to the file (``NORMAL``); ``Database.writing`` does after each transaction.
    """

    def connected(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        for pragma in (f"busy_timeout={_BUSY_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    def begun(connection: Connection) -> None:
        reads = connection.get_execution_options().get("reads", False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
