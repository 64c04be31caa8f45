"""Records that are damaged, foreign, locked or out of reach: compiling goes on at once, with one warning."""

import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.measure.jobs import product
from tilewright.base.errors import BadInput, CorruptRecord, TilewrightError
from tilewright.base.events import Event, Recorder
from tilewright.base.settings import Settings
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.schema import CURRENT
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.recorded import Recorded, named, recorded, stamp

HOST = Target.host()
PROGRAM = product("NAME", 6)

AT_ONCE = 5.0
"""Seconds: far more than asking takes, and far less than waiting for a lock took before (30)."""
NOBODY = 65534


def job(width: int, seed: int = 1) -> Job:
    """A schedule of the program."""
    schedule = Schedule(PROGRAM)
    schedule.split("j", (None, width))
    return Job(str(named(PROGRAM)), schedule.trace.to_json(), str(HOST), seed=seed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "records.db"
    with Records.open(found) as records, records.session({}) as session:
        records.add(session, job(2), Outcome(Verdict.OK, times_us=(9.0,)), State.CONFIRMED)
        records.add(session, job(3), Outcome(Verdict.OK, times_us=(8.0,)), State.CONFIRMED)
        records.add(session, job(2, 3), Outcome(Verdict.OK, times_us=(5.0,)), State.COMPARED)
    return found


@dataclass(slots=True)
class Asked:
    """What a compilation learns from the file."""

    microseconds: float | None = None
    heard: list[Event] = field(default_factory=list[Event])

    @property
    def warnings(self) -> list[str]:
        return [str(event) for event in self.heard]


def ask(path: Path) -> Asked:
    """What compiling asks, of three kernels."""
    asked = Asked()
    start = time.monotonic()
    with recorded(path, HOST, 1, asked.heard.append) as known:
        for _ in range(3):
            if known is not None:
                found = known.find(PROGRAM)
                asked.microseconds = None if found is None else found.microseconds
                known.has_ways()
                known.microseconds(PROGRAM)
    assert time.monotonic() - start < AT_ONCE
    return asked


def listed(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.is_symlink() and file.is_file()}


def is_one_warning(asked: Asked, path: Path) -> bool:
    """It names the file, and what would help."""
    (text,) = asked.warnings
    return str(path) in text and any(help in text for help in ("move it away", "make the file", "give an", "try again"))


# --- damage -------------------------------------------------------------------------------------------------------


def damaged(data: bytes, seed: int) -> bytes:
    """Bytes changed anywhere, many of them in the header and the schema; some of the files end too early."""
    draw = random.Random(seed)
    content = bytearray(data)
    reach = draw.choice((100, 4096, len(content)))
    start = draw.randrange(reach)
    for position in range(draw.choice((1, 4, 64))):
        place = draw.randrange(reach) if seed % 2 else min(start + position, len(content) - 1)
        content[place] = draw.randrange(256)
    return bytes(content[: draw.randrange(len(content))] if draw.random() < 0.1 else content)


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3))])
def test_wrong_bytes_anywhere(path: Path, part: int) -> None:
    """Whatever of the file is wrong: what is found is right, or it is said once that nothing is used."""
    data = path.read_bytes()
    noticed = 0
    for seed in range(part * 75, (part + 1) * 75):
        other = path.with_name(f"{seed}.db")
        other.write_bytes(damaged(data, seed))
        asked = ask(other)
        assert len(asked.heard) <= 1, f"seed {seed}"
        assert asked.microseconds in (9.0, 8.0, None), f"seed {seed}"
        noticed += bool(asked.heard)
        assert other.read_bytes() == damaged(data, seed)
        with _typed(), Records.open(other) as records, records.session({}) as session:
            records.add(session, job(4), Outcome(Verdict.OK, times_us=(1.0,)), State.CONFIRMED)
            list(records.all())
            list(records.dated())
            records.counts()
            records.relatives(product("NAME", 7), str(HOST), 1, State.CONFIRMED)
    assert noticed > 20


@contextmanager
def _typed() -> Iterator[None]:
    """Typed errors are right here; all others are not."""
    try:
        yield
    except TilewrightError:
        return


def test_64_wrong_bytes_and_a_compilation(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = bytes(64)
    path.write_bytes(content)
    heard = Recorder()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    model = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    compiled = tilewright.compile(model, settings=Settings(records=path), listener=heard)
    given = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(compiled.run(None, {"x": given})[0], np.maximum(given, 0))
    (warning,) = heard.warnings()
    assert str(path) in warning
    assert "move it away" in warning


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE workload SET ir = 'program q'",
        'UPDATE record SET schedule_json = \'{"version": 1, "steps": []}\'',
        "UPDATE record SET config_json = '{'",
        "UPDATE record SET times_us_json = '[]'",
        "DELETE FROM target",
        "PRAGMA user_version = 7",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE meta",
    ],
)
def test_altered_records(path: Path, change: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    asked = ask(path)
    assert asked.microseconds is None
    assert change.startswith("DELETE") or is_one_warning(asked, path)


# --- other files --------------------------------------------------------------------------------------------------


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()


def _foreign_tables(path: Path) -> None:
    """Tables of these names, made by somebody else."""
    connection = sqlite3.connect(path)
    for name in ("meta", "target", "workload", "session", "record"):
        connection.execute(f"CREATE TABLE {name} (a, b)")
    connection.execute("CREATE INDEX best ON record (a)")
    connection.execute(f"PRAGMA application_id = {0x54574D52}")
    connection.execute(f"PRAGMA user_version = {CURRENT.version}")
    connection.commit()
    connection.close()


def _too_long(path: Path) -> None:
    path.symlink_to("x" * 300)


OTHERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("my thesis " * 1000),
    "one byte": lambda path: path.write_bytes(b"S"),
    "zeros": lambda path: path.write_bytes(bytes(8192)),
    "a folder": lambda path: path.mkdir(),
    "a FIFO": lambda path: os.mkfifo(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "a link to too long a name": _too_long,
    "a foreign database": _foreign,
    "foreign tables": _foreign_tables,
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_file_in_its_place(tmp_path: Path, what: str) -> None:
    path = tmp_path / "records.db"
    OTHERS[what](path)
    before = listed(tmp_path)
    asked = ask(path)
    assert asked.microseconds is None
    assert is_one_warning(asked, path)
    stamp(path)
    assert listed(tmp_path) == before
    if what != "a link to nothing":  # a tuner makes the file there
        with pytest.raises((BadInput, CorruptRecord)):
            Records.open(path)
        assert listed(tmp_path) == before


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    assert stamp(path) == stamp(tmp_path / "none.db")
    assert ask(path).microseconds is None
    with pytest.raises(BadInput):
        Records.open(path)


def test_nothing_was_ever_written(tmp_path: Path) -> None:
    """A tuner was killed before it wrote anything: no records, and nothing to warn of."""
    path = tmp_path / "records.db"
    path.touch()
    assert ask(path).heard == []
    assert listed(tmp_path) == {"records.db": b""}


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("what", ["a FIFO", "a folder", "text", "zeros"])
def test_files_beside_it(path: Path, suffix: str, what: str) -> None:
    """Left over by a kill, or put there: whatever they are, nobody waits for them."""
    OTHERS[what](path.with_name(path.name + suffix))
    asked = ask(path)
    assert asked.microseconds == 8.0 or is_one_warning(asked, path)


# --- locks and writers --------------------------------------------------------------------------------------------


def test_a_locked_database(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert ask(path).microseconds == 8.0
    holder.execute("ROLLBACK")
    holder.close()


def test_a_locked_foreign_database(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    _foreign(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("INSERT INTO bookmarks VALUES ('a')")
    assert is_one_warning(ask(path), path)
    holder.execute("ROLLBACK")
    holder.close()


def test_reading_leaves_nothing_and_locks_nobody_out(path: Path) -> None:
    before = listed(path.parent)
    heard: list[Event] = []
    with recorded(path, HOST, 1, heard.append) as known:
        assert known is not None
        assert known.find(PROGRAM) is not None
        assert listed(path.parent) == before
        writer = sqlite3.connect(path, isolation_level=None, timeout=0)
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("INSERT INTO meta (key, value) VALUES ('a', 'b')")
        writer.execute("COMMIT")
        writer.close()
    assert heard == []


def test_a_reader_while_a_tuner_writes(path: Path) -> None:
    """What a tuner has added is found, while it goes on."""
    with Records.open(path) as records, records.session({}) as session:
        for width in (4, 5, 6):
            records.add(session, job(width), Outcome(Verdict.OK, times_us=(8.0 - width,)), State.CONFIRMED)
            asked = ask(path)
            assert asked.microseconds == 8.0 - width
            assert asked.heard == []


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Permissions do not hold for root."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_to_all(path: Path) -> Iterator[Path]:
    """A copy of the records in a folder that nobody can reach: pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shared = Path(folder) / "shared" / path.name
        shared.parent.mkdir(mode=0o755)
        shutil.copy(path, shared)
        shared.chmod(0o644)
        yield shared


def test_read_only_media(open_to_all: Path) -> None:
    path = open_to_all
    path.chmod(0o444)
    path.parent.chmod(0o555)
    with _as_nobody():
        asked = ask(path)
        assert asked.microseconds == 8.0
        assert asked.heard == []
        with pytest.raises(BadInput, match="make the file and its folder writable"):
            Records.open(path)


def test_a_file_that_must_not_be_read(open_to_all: Path) -> None:
    path = open_to_all
    path.chmod(0)
    with _as_nobody():
        assert is_one_warning(ask(path), path)


def test_a_folder_that_must_not_be_looked_into(open_to_all: Path) -> None:
    path = open_to_all
    path.parent.chmod(0)
    try:
        with _as_nobody():
            assert stamp(path) == stamp(path.with_name("none.db"))
            asked = ask(path)
            assert asked.microseconds is None
            assert len(asked.heard) <= 1
    finally:
        path.parent.chmod(0o755)


def test_records_that_fail_later_are_asked_no_more(path: Path) -> None:
    """Each of a thousand kernels would wait, or warn."""

    class Failing:
        asked = 0

        def best(self, *_: object) -> list[object]:
            self.asked += 1
            raise CorruptRecord("gone")

        def has_any(self, *_: object) -> bool:
            self.asked += 1
            raise CorruptRecord("gone")

    heard: list[Event] = []
    source = Failing()
    known = Recorded(source, HOST, 1, heard.append)
    assert not known.has_ways()
    assert known.find(PROGRAM) is None
    assert known.microseconds(PROGRAM) is None
    assert source.asked == 1
    assert len(heard) == 1
