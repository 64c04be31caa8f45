"""``python -m tests.random_graphs SEED ...``: run seeds (or FIRST:END); ``--minimize`` makes the failing ones small."""

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

from tests.random_graphs import shards
from tests.random_graphs.case import Case, to_json
from tests.random_graphs.generator import generate
from tests.random_graphs.minimize import minimize
from tests.random_graphs.verdict import Kind, Verdict, judge

REGRESSIONS = Path(__file__).parent / "regressions"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_graphs", description=__doc__)
    parser.add_argument("seeds", nargs="+", metavar="SEED", help="a seed, or FIRST:END")
    parser.add_argument("--show", action="store_true", help="print the models")
    parser.add_argument("--minimize", action="store_true", help="make failing models small (in this process)")
    parser.add_argument("--save", metavar="NAME", help="with --minimize: keep it under regressions/")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seeds = [seed for text in given.seeds for seed in _seeds(text)]
    if given.child:
        return _child(seeds)
    counts: Counter[Kind] = Counter()
    for seed, verdict in shards.run(seeds):
        counts[verdict.kind] += 1
        if verdict.kind is not Kind.RIGHT or given.show:
            print(f"{seed} {verdict}", flush=True)
        if given.show:
            print(generate(seed))
        if verdict.kind.is_failure and given.minimize:
            _minimize(seed, verdict, f"{given.save}_{seed}" if given.save and len(seeds) > 1 else given.save)
    print(", ".join(f"{count} {kind.value}" for kind, count in counts.items()))
    return int(any(kind.is_failure for kind in counts))


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def _child(seeds: list[int]) -> int:
    """See ``shards``."""
    warnings.simplefilter("ignore")  # NumPy's, about infinities and NaN
    for seed in seeds:
        print(f"at {seed} generating", flush=True)
        case = generate(seed)
        verdict = judge(case, lambda stage, seed=seed: print(f"at {seed} {stage}", flush=True))
        print(f"is {seed} {str(verdict).replace(chr(10), ' ')}", flush=True)
    return 0


def _minimize(seed: int, verdict: Verdict, name: str | None) -> None:
    if verdict.kind not in (Kind.WRONG, Kind.ERROR):
        print(f"{generate(seed)}\n(a {verdict.kind.value} is not made smaller)")
        return
    words = verdict.text.split(":")[0] if verdict.kind is Kind.ERROR else ""

    def fails(case: Case) -> bool:
        found = judge(case)
        return found.kind is verdict.kind and found.text.startswith(words)

    small = minimize(generate(seed), fails)
    print(f"{small}\n{judge(small)}")
    if name:
        REGRESSIONS.mkdir(exist_ok=True)
        (REGRESSIONS / f"{name}.json").write_text(to_json(small))


if __name__ == "__main__":
    sys.exit(main())
