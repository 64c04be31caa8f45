"""MiniLM-L6, batch 1: latency of each candidate and its error against float64.

`python -m benchmarks.minilm [--sequences 16,128] [--threads 1,2] [--candidates NAME,...] [--json PATH] [--lock PATH]`
prints a Markdown table. `ratio` is the candidate's time over the first candidate's, quartiles over the rounds.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from examples.sentence_similarity import reference
from examples.sentence_similarity.model import Config, build_model
from examples.sentence_similarity.sentences import tokenize
from examples.sentence_similarity.weights import Pretrained, default_cache, load_pretrained

from .accuracy import Accuracy, accuracy
from .candidates import load_feeds
from .harness import Plan, Samples, Spread, measure, ratio
from .processes import Spec, Worker, exclusive

CANDIDATES = ("onnxruntime_tuned", "onnxruntime", "tilewright")  # the strongest peer first: ratios are to it
TEXT = (
    "The harbour was quiet when the first boats came back, and the men who had waited on the quay since midnight stood "
    "up without a word. Nobody had slept. The storm had turned north at the last moment, so the islands were spared, "
    "but the nets were torn, two engines had failed, and the catch of a whole week was lost. By noon the market hall "
    "was full of people all the same: they came to hear what had happened, to bring bread and coffee, and to count the "
    "crews. Every name was read aloud, and after each of them somebody answered. Then the mayor closed the list, took "
    "off his glasses, and said that the festival would be held on Sunday, as it had been every year."
)


@dataclass(frozen=True, slots=True)
class Case:
    """One model file, its feeds and the exact answer."""

    sequence: int
    model: Path
    feeds: Path
    exact: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate in one case; times in seconds."""

    sequence: int
    threads: int
    candidate: str
    build: float
    latency: Spread
    ratio: Spread
    error: Accuracy


def main() -> None:
    """Measure all cases and print the table."""
    options = _options()
    pretrained = load_pretrained(options.cache)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        cases = [prepare(pretrained, sequence, Path(folder)) for sequence in options.sequences]
        for case in cases:
            for threads in options.threads:
                rows += run_case(case, threads, options.candidates, Plan(rounds=options.rounds), options.lock)
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def prepare(pretrained: Pretrained, sequence: int, folder: Path) -> Case:
    """Write model and feeds for one length; the text fills every token, so none is padding."""
    feeds = tokenize(pretrained.tokenizer, [TEXT], sequence)
    assert feeds["attention_mask"].all(), "the text is too short for this length"
    model, inputs = folder / f"minilm-{sequence}.onnx", folder / f"feeds-{sequence}.npz"
    onnx.save(build_model(pretrained.weights, 1, sequence), model)
    np.savez(inputs, **feeds)
    config = Config()
    exact = reference.embed(pretrained.weights, load_feeds(str(inputs)), config.heads, config.epsilon)
    return Case(sequence, model, inputs, exact)


def run_case(case: Case, threads: int, candidates: Sequence[str], plan: Plan, lock: Path | None) -> list[Row]:
    """Build all candidates side by side, then time them in turns, alone on the machine if `lock` says so."""
    arguments = {"model": str(case.model), "feeds": str(case.feeds)}
    specs = [Spec(name, f"benchmarks.candidates:{name}", arguments, threads) for name in candidates]
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(spec)) for spec in specs]
        build = {worker.name: worker.wait_ready() for worker in workers}
        errors = {worker.name: _error(worker, case) for worker in workers}
        with exclusive(lock):
            samples = measure(workers, plan)
    return list(_rows(case, threads, build, errors, samples))


def _error(worker: Worker, case: Case) -> Accuracy:
    path = case.model.with_name(f"{worker.name}-outputs.npz")
    worker.save_outputs(path)
    return accuracy([load_feeds(str(path))["output_0"]], [case.exact])


def _rows(
    case: Case, threads: int, build: dict[str, float], errors: dict[str, Accuracy], samples: dict[str, Samples]
) -> Iterator[Row]:
    baseline = next(iter(samples.values()))
    for name, of_name in samples.items():
        relative = ratio(of_name, baseline)
        yield Row(case.sequence, threads, name, build[name], of_name.spread, relative, errors[name])


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    lines = ["| tokens | threads | candidate | median ms (quartiles) | ratio (quartiles) | error, norm | error, max |"]
    lines.append("|---:|---:|---|---:|---:|---:|---:|")
    for row in rows:
        milliseconds = Spread(*(1e3 * value for value in (row.latency.low, row.latency.median, row.latency.high)))
        lines.append(
            f"| {row.sequence} | {row.threads} | {row.candidate} | {milliseconds} | {row.ratio} "
            f"| {row.error.norm:.1e} | {row.error.element:.1e} |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MiniLM-L6: latency in turns, error against float64.")
    parser.add_argument("--sequences", type=_integers, default=[16, 128], help="lengths in tokens, default 16,128")
    parser.add_argument("--threads", type=_integers, default=[1, 2], help="numbers of threads, default 1,2")
    parser.add_argument("--candidates", type=_names, default=list(CANDIDATES), help=f"default {','.join(CANDIDATES)}")
    parser.add_argument("--rounds", type=int, default=Plan().rounds, help="slots per candidate, default %(default)s")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of the model's wheel")
    return parser.parse_args()


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
