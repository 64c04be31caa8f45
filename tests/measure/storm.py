"""The fault storm: many candidates, a third of them faulty, and a tuner that is killed again and again.

    python -m tests.measure.storm [--candidates 1000] [--kills 100]

What must hold: every verdict is right, every record is there, and no process, file or memory is left.
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.measure.faulty_child import Fault
from tests.measure.jobs import job, runner
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Verdict

MARK = "MARKED_BY_TESTS"
"""An environment variable that all processes of a test inherit."""

KINDS = tuple(Fault)[:10]
EXPECTED = {
    Fault.SEGV: Verdict.CRASH,
    Fault.ABORT: Verdict.CRASH,
    Fault.FPE: Verdict.CRASH,
    Fault.LOOP: Verdict.TIMEOUT,
    Fault.LOCK: Verdict.TIMEOUT,
    Fault.STOP: Verdict.TIMEOUT,
    Fault.MEMORY: Verdict.OOM,
    Fault.FORK: Verdict.PROTOCOL,
    Fault.GARBAGE: Verdict.PROTOCOL,
    Fault.WRONG: Verdict.WRONG,
}
FAULTY_SHARE = 0.3
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Planned:
    """A job, and the verdict that is right for it."""

    job: Job
    verdict: Verdict


def plan(count: int, seed: int = 0) -> list[Planned]:
    """So many candidates in random order; of the faulty ones, as many of each kind."""
    faulty = round(count * FAULTY_SHARE)
    names = [(KINDS[i % len(KINDS)].value if i < faulty else "mm") + f"__{i}" for i in range(count)]
    random.Random(seed).shuffle(names)
    verdicts = {fault.value: verdict for fault, verdict in EXPECTED.items()}
    return [Planned(job(name), verdicts.get(name.partition("__")[0], Verdict.OK)) for name in names]


def marked(token: str) -> set[int]:
    """The processes whose environment has the mark."""
    wanted = f"{MARK}={token}".encode()
    found = set[int]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
            except OSError:
                continue
    return found


def measure(path: Path, jobs: Sequence[Planned], limits: Limits, lanes: int) -> Iterator[Planned]:
    """Measure what has no record yet; each candidate, when its record is acknowledged."""
    with (
        Records.open(path) as records,
        records.session({"lanes": lanes}) as session,
        runner(limits, lanes=lanes, spares=2) as at,
    ):
        left = {planned.job.id: planned for planned in jobs if records.find(planned.job) is None}
        for done, outcome in at.measure_all(planned.job for planned in left.values()):
            records.add(session, done, outcome)
            yield left[done.id]


@dataclass(frozen=True)
class Report:
    """What a storm came to; ``wrong``: candidates with another verdict than the right one."""

    candidates: int
    verdicts: dict[Verdict, int]
    wrong: tuple[str, ...]
    lost: int
    strays: int
    files: int
    peak_growth_mib: float
    seconds: float

    def __str__(self) -> str:
        told = ", ".join(f"{verdict.value} {count}" for verdict, count in sorted(self.verdicts.items(), key=str))
        return (
            f"{self.candidates} candidates in {self.seconds:.0f} s: {told}\n"
            f"wrong verdicts {len(self.wrong)}, records lost {self.lost}, stray processes {self.strays}, "
            f"stray files {self.files}, growth of this process {self.peak_growth_mib:.1f} MiB\n" + "\n".join(self.wrong)
        )

    @property
    def clean(self) -> bool:
        """Whether all is as it must be."""
        return not (self.wrong or self.lost or self.strays or self.files)


def storm(folder: Path, count: int, limits: Limits, lanes: int) -> Report:
    """Measure ``count`` candidates, with temporary files in ``folder``."""
    temporary, path = folder / "tmp", folder / "records.db"
    temporary.mkdir()
    token = f"storm-{os.getpid()}-{time.monotonic_ns()}"
    planned = plan(count)
    before, started = _peak_mib(), time.monotonic()
    with mock.patch.dict(os.environ, {MARK: token, "TMPDIR": str(temporary)}), mock.patch("tempfile.tempdir", None):
        acknowledged = {done.job.id for done in measure(path, planned, limits, lanes)}
    seconds, growth = time.monotonic() - started, _peak_mib() - before
    strays = len(marked(token) - {os.getpid()})
    with Records.open(path) as records:
        records.check()
        found = {record.job.id: record.outcome for record in records.all()}
    wrong = [
        f"{one.job.program.split('(')[0]}: {found[one.job.id]}, not {one.verdict.value}"
        for one in planned
        if one.job.id in found and found[one.job.id].verdict is not one.verdict
    ]
    verdicts = Counter(outcome.verdict for outcome in found.values())
    files = len(list(temporary.rglob("*")))
    lost = len(acknowledged - found.keys()) + count - len(found)
    return Report(count, dict(verdicts), tuple(wrong), lost, strays, files, growth, seconds)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- killed again and again ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kills:
    """What became of a tuner that was killed ``kills`` times: acknowledged records that are missing, and strays."""

    kills: int
    records: int
    acknowledged: int
    lost: int
    strays: int
    wrong: int

    def __str__(self) -> str:
        return (
            f"{self.kills} kills: {self.acknowledged} records acknowledged, {self.records} kept, {self.lost} lost, "
            f"{self.wrong} wrong, {self.strays} stray processes, integrity ok"
        )


def kill_again_and_again(folder: Path, kills: int, count: int, limits: Limits, seed: int = 0) -> Kills:
    """Start a tuner on ``count`` candidates, kill it at a random moment, look at the records; ``kills`` times."""
    path = folder / "killed.db"
    generator = random.Random(seed)
    acknowledged = set[str]()
    lost = strays = 0
    for number in range(kills):
        token = f"kill-{os.getpid()}-{number}"
        environment = {**os.environ, MARK: token, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        command = [sys.executable, "-m", "tests.measure.storm", "--tune", str(path), "--candidates", str(count)]
        command += ["--seconds", str(limits.run_seconds)]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        told = _killed(process, generator.uniform(0.0, 3.0), at_work=number % 4 != 0)
        acknowledged |= set(told[: told.rfind("\n") + 1].split())
        strays += _left_after(token, 10.0)
        with Records.open(path) as records:
            records.check()
            lost += len(acknowledged - {record.job.id for record in records.all()})
    right = {planned.job.id: planned.verdict for planned in plan(count)}
    with Records.open(path) as records:
        found = list(records.all())
    wrong = sum(record.outcome.verdict is not right[record.job.id] for record in found)
    lost += len(found) - len({record.job.id for record in found})
    return Kills(kills, len(found), len(acknowledged), lost, strays, wrong)


def _killed(process: "subprocess.Popen[str]", seconds: float, *, at_work: bool) -> str:
    """Kill a tuner after so many seconds, from its start or from its first record on; what it has acknowledged."""
    assert process.stdout is not None
    first = process.stdout.readline() if at_work else ""
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    return first + process.communicate()[0]


def _left_after(token: str, seconds: float) -> int:
    """How many processes with the mark are left when they have had some time to end."""
    end = time.monotonic() + seconds
    while (left := marked(token)) and time.monotonic() < end:
        time.sleep(0.02)
    return len(left)


def main() -> int:
    """Run the storm and say what it came to; 0 if all was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a candidate may run")
    parser.add_argument("--tune", type=Path, help="measure into this database and print what is acknowledged")
    given = parser.parse_args()
    limits = Limits(run_seconds=given.seconds)
    if given.tune is not None:
        for done in measure(given.tune, plan(given.candidates), limits, given.lanes):
            print(done.job.id, flush=True)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        report = storm(Path(folder), given.candidates, limits, given.lanes)
        print(report, flush=True)
        kills = kill_again_and_again(Path(folder), given.kills, given.candidates, Limits(run_seconds=given.seconds))
        print(kills, flush=True)
        print(json.dumps({"clean": report.clean, "lost": kills.lost, "strays": kills.strays}))
    return 0 if report.clean and not (kills.lost or kills.strays or kills.wrong) else 1


if __name__ == "__main__":
    raise SystemExit(main())
