"""Random single operators against peers, sorted by loss: `python -m benchmarks.cases --count 2000 --seed 1`.

`case_families.py` draws them. Each case runs in a child process, Tilewright and its peers in turns in one thread; a
child that crashes or hangs is a row, and another one goes on. What Tilewright computes is compared with ONNX Runtime's
result. Rows are kept in a file as they are made, and what it has is not measured again. Needs the extra `bench`;
measure on a quiet machine.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import exp, inf, log, nan
from pathlib import Path
from statistics import fmean

import numpy as np
import onnx

from . import candidates
from .accuracy import accuracy
from .candidates import Session
from .case_families import FAMILIES, RandomCase, random_case
from .harness import Local, Plan, measure
from .options import names
from .processes import ROOT, THREAD_VARIABLES, exclusive

RESULTS = Path("benchmarks/results/cases.json")
PEERS = ("onnxruntime", "openvino")
OURS = "tilewright"
LOSS = 0.77
"""The best peer's time divided by ours below which a case counts as lost."""
MOST_DIFFERENCE = 1e-3
"""From ONNX Runtime's result, as a share of the largest element: what is beyond is wrong."""
ROUNDS = 4
LIMIT = 120.0
"""Seconds that a case may take."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case as it was measured: seconds by peer, why peers failed, and how far results are apart."""

    index: int
    family: str
    text: str
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    difference: float = 0.0

    @property
    def ratio(self) -> float:
        """The best peer's time divided by ours; NaN if there are not both."""
        others = [seconds for peer, seconds in self.seconds.items() if peer != OURS]
        return min(others) / self.seconds[OURS] if others and OURS in self.seconds else nan

    @property
    def is_wrong(self) -> bool:
        """Whether our result is not ONNX Runtime's."""
        return not self.difference <= MOST_DIFFERENCE


@dataclass(frozen=True, slots=True)
class Terms:
    """Which cases, against whom, and how long each side of a case is timed."""

    seed: int
    families: Sequence[str]
    peers: Sequence[str]
    seconds: float

    @property
    def plan(self) -> Plan:
        """The seconds of a side in a few slots."""
        slot = self.seconds / ROUNDS
        return Plan(ROUNDS, slot, warm_up=slot / 4)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and print the table."""
    options = _options(arguments)
    terms = Terms(options.seed, options.families, options.peers, options.seconds)
    if options.child:
        _serve(terms, options.lock)
        return
    rows = load(options.results, terms)
    wanted = range(options.start, options.start + options.count) if options.only is None else options.only
    known = set() if options.again else {row.index for row in rows}
    for row in measured([index for index in wanted if index not in known], terms, options.lock):
        rows = [*(old for old in rows if old.index != row.index), row]
        save(rows, options.results, terms)
        print(_line(row), flush=True)
    print(report([row for row in rows if row.index in wanted], options.shown))


def measured(indices: Iterable[int], terms: Terms, lock: Path | None) -> Iterator[CaseRow]:
    """A row for each case, from children that are started again when they fail."""
    left = list(indices)
    while left:
        with _child(terms, lock) as child:
            while left:
                row = _answer(child, left[0])
                yield row or _failed(left[0], terms, child)
                left.pop(0)
                if row is None:
                    break


@contextmanager
def _child(terms: Terms, lock: Path | None) -> Iterator["subprocess.Popen[str]"]:
    given = [f"--seed={terms.seed}", f"--families={','.join(terms.families)}", f"--peers={','.join(terms.peers)}"]
    given += [f"--seconds={terms.seconds}", *([] if lock is None else [f"--lock={lock}"])]
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cases", "--child", *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
        start_new_session=True,
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _answer(child: "subprocess.Popen[str]", index: int) -> CaseRow | None:
    """What the child measures; None if it ends or takes too long."""
    stdin, stdout = child.stdin, child.stdout
    assert stdin is not None and stdout is not None, "the child is started with pipes"
    try:
        print(index, file=stdin, flush=True)
    except BrokenPipeError:
        return None
    line = stdout.readline() if select.select([stdout], [], [], LIMIT)[0] else ""
    return CaseRow(**json.loads(line)) if line else None


def _failed(index: int, terms: Terms, child: "subprocess.Popen[str]") -> CaseRow:
    case, status = random_case(terms.seed, index, terms.families), child.poll()
    reason = f"no answer within {LIMIT:g} s" if status is None else f"the process ended with status {status}"
    return CaseRow(index, case.family, case.text, failures={"child": reason})


def _serve(terms: Terms, lock: Path | None) -> None:
    """Answer indices on standard input by rows."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for line in sys.stdin:
        row = measure_case(int(line), random_case(terms.seed, int(line), terms.families), terms, lock)
        print(json.dumps(asdict(row)), file=answers, flush=True)


def measure_case(index: int, case: RandomCase, terms: Terms, lock: Path | None = None) -> CaseRow:
    """Run all that can run the case, compare, and time them in turns."""
    sessions, failures = _sessions(case, (OURS, *terms.peers))
    difference = 0.0
    if OURS in sessions and PEERS[0] in sessions:
        difference = _difference(sessions[OURS](), sessions[PEERS[0]]())
    with exclusive(lock):
        samples = measure([Local(name, session) for name, session in sessions.items()], terms.plan)
    seconds = {name: min(of_peer.slot_medians) for name, of_peer in samples.items()}
    return CaseRow(index, case.family, case.text, seconds, failures, difference)


def _sessions(case: RandomCase, peers: Sequence[str]) -> tuple[dict[str, Session], dict[str, str]]:
    """What runs the case, and why others do not, by name."""
    sessions: dict[str, Session] = {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        model, feeds = (str(Path(folder) / name) for name in ("case.onnx", "feeds.npz"))
        onnx.save(case.model, model)
        np.savez(feeds, allow_pickle=False, **case.feeds)
        for peer in peers:
            try:
                session: Session = getattr(candidates, peer)(model, feeds, threads=1)
                session()
                sessions[peer] = session
            except Exception as error:  # noqa: BLE001  whatever a peer raises is its result
                failures[peer] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return sessions, failures


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    try:
        error = accuracy(ours, [np.asarray(array, np.float64) for array in theirs]).element
    except ValueError:  # outputs of another shape
        return inf
    return inf if np.isnan(error) else error


def save(rows: Sequence[CaseRow], path: Path, terms: Terms) -> None:
    """Write the file; another one in its place if the process ends meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {"seed": terms.seed, "families": list(terms.families), "rows": [asdict(row) for row in rows]}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(stored, indent=1) + "\n")
    draft.replace(path)


def load(path: Path, terms: Terms) -> list[CaseRow]:
    """The rows of a file; none if it does not exist. Raises ValueError if it has those of other cases."""
    if not path.exists():
        return []
    stored = json.loads(path.read_text())
    if (stored["seed"], stored["families"]) != (terms.seed, list(terms.families)):
        raise ValueError(f"{path} has cases of seed {stored['seed']} and {stored['families']}: name another file")
    return [CaseRow(**row) for row in stored["rows"]]


def report(rows: Sequence[CaseRow], shown: int) -> str:
    """Means, wrong results and failures, and the largest losses as Markdown."""
    timed = sorted((row for row in rows if row.ratio > 0), key=lambda row: row.ratio)
    lines = [_summary("all", timed)]
    lines += [_summary(name, own) for name in FAMILIES if (own := [row for row in timed if row.family == name])]
    lines += [f"wrong by {row.difference:.1e}: {row.index}, {row.text}" for row in rows if row.is_wrong]
    failed = [(row, peer) for row in rows for peer in (OURS, "child") if peer in row.failures]
    lines += [f"failed: {row.index}, {row.text}: {row.failures[peer]}" for row, peer in failed]
    lines += ["", "| case | best peer / Tilewright | |", "|---:|---:|---|"]
    lines += [f"| {row.index} | {row.ratio:.2f} | {row.text} |" for row in timed[:shown]]
    return "\n".join(lines)


def _summary(name: str, rows: Sequence[CaseRow]) -> str:
    if not rows:
        return f"{name}: nothing was timed"
    mean, lost = exp(fmean(log(row.ratio) for row in rows)), sum(row.ratio < LOSS for row in rows)
    return f"{name}: best peer / Tilewright {mean:.2f} (geometric mean of {len(rows)}), below {LOSS} in {lost}"


def _line(row: CaseRow) -> str:
    marks = " WRONG" * row.is_wrong + "".join(f" {peer} failed" for peer in row.failures)
    return f"{row.index} {row.ratio:.2f}{marks} {row.text}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cases", description="Random operators, peers in turns.")
    parser.add_argument("--count", type=int, default=2000, help="of cases, default %(default)s")
    parser.add_argument("--start", type=int, default=0, help="the first case, default %(default)s")
    parser.add_argument("--only", type=_indices, help="these cases instead, as in 3,17")
    parser.add_argument("--again", action="store_true", help="measure cases again that the results have")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn, default %(default)s")
    parser.add_argument("--families", type=names, default=list(FAMILIES), help=f"default {','.join(FAMILIES)}")
    parser.add_argument("--peers", type=names, default=list(PEERS), help=f"default {','.join(PEERS)}")
    parser.add_argument("--seconds", type=float, default=0.1, help="of timing each side, default %(default)s")
    parser.add_argument("--shown", type=int, default=40, help="rows of the table, default %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file, default %(default)s")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _indices(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
