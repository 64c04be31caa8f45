"""The records database: what is acknowledged is there; what is wrong with a file is said."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.measure.jobs import job, product
from tilewright.base.errors import BadInput, CorruptRecord, ResourceLimit
from tilewright.loops.program import Program
from tilewright.measure.database import refuse_network
from tilewright.measure.job import Job, Timing
from tilewright.measure.records import Records
from tilewright.measure.row import Record, Row, State
from tilewright.measure.schema import CURRENT, Schema
from tilewright.measure.verdicts import Outcome, Phase, Verdict

ROOT = Path(__file__).resolve().parents[2]
EMPTY = '{"version": 1, "steps": []}'
OTHER = '{"version": 1, "steps": [{"primitive": "parallel", "arguments": [], "options": {}, "results": []}]}'
PROGRAM = product("p", 4)
JOB = Job(str(PROGRAM), EMPTY, "x86_64,cores=2")
GOOD = Outcome(Verdict.OK, times_us=(3.0, 1.0, 2.5), baseline_us=7.0, drift=0.01, seconds={"build": 0.5})
CRASHED = Outcome(Verdict.CRASH, "SIGSEGV", Phase.CHECK)


def made(path: Path, *outcomes: Outcome) -> Path:
    with Records.open(path) as records, records.session({}) as session:
        for seed, outcome in enumerate(outcomes):
            assert records.add(session, replace(JOB, seed=seed), outcome)
    return path


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD, CRASHED)
    with Records.open(path) as records:
        assert [r.outcome for r in records.all()] == [GOOD, CRASHED]
        assert records.find(JOB) == GOOD
        assert records.find(replace(JOB, threads=2)) is None
        assert records.counts() == {Verdict.OK: 1, Verdict.CRASH: 1}
        records.check()


def test_what_one_kind_of_device_measured_answers_for_no_other(tmp_path: Path) -> None:
    there = [replace(JOB, timing=replace(JOB.timing, device=device)) for device in ("", "pi, ondemand", "pi")]
    assert len({one.id for one in there}) == 3
    assert "device" not in JOB.timing.described()  # so the jobs of older records have the same hashes
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        for place, one in enumerate(there):
            assert records.find(one) is None
            records.add(session, one, Outcome(Verdict.OK, times_us=(3.0 - place,)), State.CONFIRMED)
            assert records.find(one) == Outcome(Verdict.OK, times_us=(3.0 - place,))
        best = records.best(PROGRAM, JOB.target, JOB.threads, State.CONFIRMED, 3)
        assert [record.job for record in best] == there[::-1]  # for the target, all of them may serve


def test_median_and_its_deviation() -> None:
    assert (GOOD.median_us, GOOD.mad_us) == (2.5, 0.5)
    assert CRASHED.median_us is None


def test_the_first_outcome_stays_unless_the_device_was_lost(tmp_path: Path) -> None:
    lost = Outcome(Verdict.DEVICE_LOST)
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        assert records.add(session, JOB, lost)
        assert records.find(JOB) is None
        assert records.add(session, JOB, GOOD)
        assert not records.add(session, JOB, CRASHED)
        assert records.find(JOB) == GOOD


def test_records_belong_to_a_target_and_a_program(tmp_path: Path) -> None:
    slow, fast = (replace(GOOD, times_us=(t,)) for t in (5.0, 1.0))
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        records.add(session, JOB, slow, State.CONFIRMED)
        records.add(session, replace(JOB, seed=1), CRASHED, State.CONFIRMED)
        records.add(session, replace(JOB, trace=OTHER), fast, State.CONFIRMED)
        records.add(session, replace(JOB, seed=2), fast, State.COMPARED)
        records.add(session, replace(JOB, threads=2), fast, State.CONFIRMED)
        records.add(session, replace(JOB, target="x86_64,cores=4"), fast, State.CONFIRMED)

        def best(program: Program = PROGRAM, target: str = JOB.target, threads: int = 1) -> list[Record]:
            return records.best(program, target, threads, State.CONFIRMED, count=9)

        assert [r.outcome.median_us for r in best()] == [1.0, 5.0]
        assert {r.job for r in best()} == {JOB, replace(JOB, trace=OTHER)}
        assert [r.job.threads for r in best(threads=2)] == [2]
        assert [r.job.seed for r in records.best(PROGRAM, JOB.target, 1, State.COMPARED)] == [2]
        assert records.has_any(JOB.target, 2, State.CONFIRMED)
        assert not records.has_any(JOB.target, 2, State.COMPARED)
        records.put(replace(JOB, trace=OTHER), State.REPEATED)
        assert [r.outcome.median_us for r in best()] == [5.0]
        assert best(target="aarch64") == []
        assert best(product("p", 5)) == []
        assert best(product("called otherwise", 4)) == best()


def test_the_id_is_that_of_the_measurement() -> None:
    same = replace(JOB, trace='{"steps":[],   "version":1}', target="x86_64,cores=02")
    assert same.id == JOB.id
    changed = [{"program": str(product("p", 5))}, {"trace": "[1]"}, {"target": "aarch64"}, {"threads": 2}, {"seed": 1}]
    timings = [Timing(3), Timing(cold=("A",), between_bytes=8), Timing(cold=("B",), between_bytes=8)]
    timed = [replace(JOB, timing=timing) for timing in timings]
    others = [replace(JOB, **change) for change in changed] + timed
    assert len({JOB.id, *(job.id for job in others)}) == 9
    assert [Row.of(job, Outcome(Verdict.TIMEOUT)).record().job for job in timed] == timed


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE workload SET ir = 'program q'",
        "UPDATE workload SET hash = 'that of another program'",
        "UPDATE target SET text = 'aarch64'",
        "UPDATE target SET fp = 'that of another target'",
    ],
)
def test_an_altered_program_or_target_is_noticed(tmp_path: Path, change: str) -> None:
    path = made(tmp_path / "r.db", GOOD)
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with Records.open(path) as records, pytest.raises(CorruptRecord, match=r"record 1.*hash differs"):
        list(records.all())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("times_us", "[1e-300]"),
        ("times_us", "[NaN]"),
        ("times_us", "[-1]"),
        ("times_us", "[]"),
        ("times_us", "[true]"),
        ("times_us", "7"),
        ("status", "crash"),
        ("status", "fine"),
        ("config", "{}"),
        ("schedule", '{"version": 1, "steps": [{"primitive": "melt"}]}'),
        ("schedule", "\x80\x04K\x01."),
        ("target", "x86_64; rm"),
        ("environment", "[" * 100_000),
    ],
)
def test_a_malformed_record_is_refused(column: str, value: str) -> None:
    row = Row.of(JOB, GOOD)
    assert row.record().outcome == GOOD
    with pytest.raises(CorruptRecord):
        replace(row, **{column: value}).record()


# --- files that are not ours -------------------------------------------------------------------------------------


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    path.write_text("my thesis " * 1000)
    with pytest.raises(CorruptRecord, match="no database of records"):
        Records.open(path)
    assert path.read_text().startswith("my thesis")


def test_a_database_of_another_program(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "r.db") as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    with pytest.raises(CorruptRecord, match="another program"):
        Records.open(tmp_path / "r.db")


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON record BEGIN UPDATE record SET median_us = 1; END",
        "CREATE VIEW best_ones AS SELECT * FROM record",
        "DROP TABLE meta",
    ],
)
def test_foreign_objects_in_the_file(tmp_path: Path, planted: str) -> None:
    path = made(tmp_path / "r.db", GOOD)
    with sqlite3.connect(path) as connection:
        connection.execute(planted)
    connection.close()
    with pytest.raises(CorruptRecord, match="just the tables of the records"):
        Records.open(path)


def test_a_newer_schema(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(CorruptRecord, match=r"newer Tilewright .its schema is 7"):
        Records.open(path)


def test_an_older_schema_is_copied_and_migrated(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD)
    newer = Schema(
        migrations=(
            *CURRENT.migrations,
            "INSERT INTO meta VALUES ('a', '1'); UPDATE record SET error = 'seen'",
        )
    )
    with Records.open(path, newer) as records:
        assert [r.outcome.detail for r in records.all()] == ["seen"]
    with Records.open(tmp_path / f"r.db.schema{CURRENT.version}") as copy:
        assert [r.outcome for r in copy.all()] == [GOOD]
    with Records.open(path, newer) as records:
        assert records.find(JOB) is not None


def test_a_database_of_version_1(tmp_path: Path) -> None:
    """Seeds and a table of those that must not be used said what a record is good for; texts were programs."""
    path = tmp_path / "r.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).parent / "version1.sql").read_text())
    with pytest.raises(CorruptRecord, match="was written by an older Tilewright"):
        Records.open_to_read(path)
    with Records.open(path) as records:
        found = [(r.job.seed, r.outcome.verdict, r.state) for r in records.all()]
        assert found == [
            (0, Verdict.OK, State.SEARCHED),
            (1, Verdict.OK, State.CONFIRMED),
            (2, Verdict.OK, State.REPEATED),
            (3, Verdict.OK, State.COMPARED),
            (1, Verdict.OK, State.REPEATED),
            (0, Verdict.CRASH, State.SEARCHED),
        ]
        used = replace(job("otherwise", 4), target="x86_64,znver4,cores=2", seed=1)
        assert records.find(used) == Outcome(Verdict.OK, times_us=(3.0,))
        (best,) = records.best(product("mm", 4), used.target, 1, State.CONFIRMED)
        assert best.job.id == used.id
        assert len(records.relatives(product("mm", 5), used.target, 1, State.CONFIRMED)) == 1
        records.check()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD)
    with pytest.raises(Exception, match="no such table"):
        Records.open(path, Schema(migrations=(*CURRENT.migrations, "DELETE FROM record; DELETE FROM nowhere")))
    with Records.open(path) as records:
        assert records.find(JOB) == GOOD


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't be written"):
        Records.open(tmp_path / "no" / "r.db")


def test_a_read_only_file(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    with Records(connection, path) as records, pytest.raises(BadInput, match="make the file and its folder writable"):
        records.add(1, replace(JOB, seed=9), GOOD)


def test_a_full_disk_loses_no_acknowledged_record(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA max_page_count = 60")
    with Records(connection, path) as records:
        kept = 1
        with pytest.raises(ResourceLimit, match=r"disk of .* is full"):
            for seed in range(1, 10_000):
                records.add(1, replace(JOB, program=f"{seed}" * 200, seed=seed), GOOD)
                kept += 1
        assert kept > 10
        assert len(list(records.all())) == kept
        records.check()
        connection.execute("PRAGMA max_page_count = 100000")
        assert records.add(1, replace(JOB, seed=-1), GOOD)


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "r.db", GOOD)
    monkeypatch.setattr("tilewright.measure.records.LEAST_FREE_BYTES", 1 << 60)
    with Records.open(path) as records:
        assert records.find(JOB) == GOOD
        with pytest.raises(ResourceLimit, match=r"r\.db has .* bytes left; records need"), records.session({}):
            pass


def test_a_network_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path}/far nfs4 rw 0 0\n")
    refuse_network(tmp_path / "near.db", mounts)
    with pytest.raises(BadInput, match=r"network file system .nfs4."):
        refuse_network(tmp_path / "far" / "r.db", mounts)


# --- other processes ----------------------------------------------------------------------------------------------

WRITER = """
import sys
from dataclasses import replace
from tests.measure.test_records import GOOD, JOB
from tilewright.measure.records import Records

path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Records.open(path) as records, records.session({}) as session:
    for seed in range(first, first + count):
        records.add(session, replace(JOB, seed=seed), GOOD)
        print(seed, flush=True)
"""


def writer(path: Path, first: int, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(count)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    writers = [writer(path, first, 50) for first in (0, 100)]
    assert [process.wait(120) for process in writers] == [0, 0]
    for process in writers:
        process.communicate()
    with Records.open(path) as records:
        assert sorted(r.job.seed for r in records.all()) == [*range(50), *range(100, 150)]


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    for first in (0, 1000, 2000):
        process = writer(path, first, 1000)
        assert process.stdout is not None
        acknowledged = {int(process.stdout.readline()) for _ in range(10)}
        time.sleep(0.002 * (first // 1000))
        process.send_signal(signal.SIGKILL)
        acknowledged |= {
            int(line) for line in process.communicate()[0].splitlines(keepends=True) if line.endswith("\n")
        }
        with Records.open(path) as records:
            kept = [r.job.seed for r in records.all()]
            assert acknowledged <= set(kept)
            assert len(kept) == len(set(kept))
            records.check()


def test_a_database_is_not_joined_by_copying(tmp_path: Path) -> None:
    path = made(tmp_path / "r.db", GOOD)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\0" * 4096 + content[len(content) // 2 :])
    with pytest.raises(CorruptRecord), Records.open(path) as records:
        records.check()
        list(records.all())
