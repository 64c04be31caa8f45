"""``python -m tests.onnx_nodes [--update-ledger] [WORD ...]``: run node tests, and write their lines of the ledger."""

import argparse
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.onnx_nodes import ledger
from tests.onnx_nodes.cases import all_cases
from tests.onnx_nodes.ledger import Outcome, Status
from tests.onnx_nodes.outcome import outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_nodes", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only tests whose names contain one; all by default")
    parser.add_argument("--update-ledger", action="store_true", help="write the ledger's lines of these tests anew")
    parser.add_argument("--bounds-check", action="store_true", help="compile with bounds checks on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    names = [name for name in all_cases() if not given.words or any(word in name for word in given.words)]
    found = _run(names, given.bounds_check, given.jobs)
    faults = {name: each for name, each in found.items() if each.status is Status.FAULT}
    for name, each in faults.items():
        print(f"{name}: {each}")
    known = ledger.read(ledger.PATH.read_text()) if ledger.PATH.exists() else {}
    for name, each in found.items():
        if name not in faults and known.get(name) != each:
            print(f"{name}: {known.get(name, 'new')} -> {each}")
    print(Counter(each.status.value for each in found.values()), f"{len(faults)} faults")
    if given.update_ledger:
        lines = {**known, **found}
        kept = {name: each for name, each in lines.items() if name in all_cases() and name not in faults}
        ledger.PATH.write_text(ledger.write(kept))
        print(ledger.summary(kept))
    return 1 if faults else 0


def _run(names: list[str], bounds_check: bool, jobs: int) -> dict[str, Outcome]:
    if jobs == 1:
        return {name: outcome(all_cases()[name], bounds_check) for name in names}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        results = pool.map(_one, names, [bounds_check] * len(names), chunksize=16)
        return dict(zip(names, results, strict=True))


def _one(name: str, bounds_check: bool) -> Outcome:
    return outcome(all_cases()[name], bounds_check)


if __name__ == "__main__":
    sys.exit(main())
