"""Models after a search: `python -m benchmarks.searched operators|networks [--spaces sketches,all] [--minutes 2]`.

Each model is tuned by `tilewright tune` for some minutes in each of the spaces, from no records. Then the untuned
model, the tuned ones and the peers run in turns. Results are saved after every model, and a model that has results is
left out when the same command is given again. Needs the extra `bench`; for networks, the zoo's files. Measure on a
quiet machine.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.base.search import Spaces

from . import networks, operators
from .contest import Case, run_case
from .operator_models import BATCHES, OPERATORS, cases
from .options import add_terms, names, terms_of
from .results import Results, load, save
from .tables import OURS, geometric_mean, report

RESULTS = Path("benchmarks/results/searched.json")
PEERS = ("onnxruntime", "openvino", "torch_compile", OURS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search and measure what has no results yet; print the tables."""
    options = _options(arguments)
    terms, results = replace(terms_of(options), target=options.target), load(options.results)
    ours = [f"{OURS}_{space}" for space in options.spaces]
    for name, case in _cases(options):
        for threads in options.threads:
            if all(results.row(name, threads, peer) is not None for peer in (*options.peers, *ours)):
                continue
            print(f"{name}, threads: {threads}", flush=True)
            with TemporaryDirectory(prefix="tilewright-searched-") as folder:
                found = {f"{OURS}_{space}": Path(folder) / f"{space}.db" for space in options.spaces}
                for space in options.spaces:
                    tune(case, threads, options.minutes, space, options.target, found[f"{OURS}_{space}"])
                results = results.with_rows(run_case(case, threads, replace(terms, records=found)))
            save(results, options.results)
    print(report(results))
    for threads in options.threads:
        print("\n".join(gains(results, threads, ours)))


def tune(case: Case, threads: int, minutes: float, space: str, target: str, records: Path) -> None:
    """Tune the model as a user does. Raises CalledProcessError."""
    command = [sys.executable, "-m", "tilewright", "tune", str(case.model), "--threads", str(threads)]
    command += ["--minutes", str(minutes), "--space", space, "--records", str(records), "--target", target, "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def gains(results: Results, threads: int, ours: Sequence[str]) -> Iterator[str]:
    """How much faster than untuned each way to search made the models, and how many are as fast as the best peer."""
    known = list(dict.fromkeys(row.case for row in results.rows if row.threads == threads))
    for peer in ours:
        ratios = [results.ratio(case, threads, OURS, peer) for case in known]
        found = [ratio.median for ratio in ratios if ratio]
        if found:
            text = f"geometric mean {geometric_mean(found):.3f}, least {min(found):.3f}, of {len(found)} models"
            yield f"{peer}, threads: {threads}: time untuned / tuned: {text}"


def _cases(options: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    if options.models == "networks":
        for name in options.only or networks.NETWORKS:
            yield name, networks.prepare(name, options.zoo)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for of_table in cases(list(OPERATORS), list(BATCHES)):
        if not options.only or of_table.name in options.only:
            yield of_table.name, operators.prepare(of_table, options.folder)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.searched", description="Models after a search.")
    parser.add_argument("models", choices=["operators", "networks"])
    parser.add_argument("--only", type=names, default=[], help="names of models; default all")
    parser.add_argument("--spaces", type=names, default=[Spaces.SKETCHES.value, Spaces.ALL.value])
    parser.add_argument("--minutes", type=float, default=2.0, help="of searching each, default %(default)s")
    parser.add_argument("--target", default="host", help="a processor with fewer features, say; default this one")
    parser.add_argument("--folder", type=Path, default=Path("build/operators"), help="of models, default %(default)s")
    parser.add_argument("--zoo", type=Path, default=networks.ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file, default %(default)s")
    add_terms(parser, seconds=1.0)
    parser.set_defaults(peers=list(PEERS), threads=[1])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
