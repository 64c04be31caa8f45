"""The demo: eight sentences through MiniLM-L6, compiled by Tilewright and, on the same graph, run by ONNX Runtime.

`python -m examples.sentence_similarity.main` from the root of the repository. Exit status: 0, 1 when the two differ by
more than 1e-4, 2 when the weights can't be had.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import onnx
import onnxruntime
from rich.console import Console

import tilewright

from .model import build_model
from .report import Session, compare
from .sentences import SENTENCES, tokenize
from .weights import FetchError, default_cache, load_pretrained


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, build, compile, compare; the exit status."""
    options = _options(arguments)
    console = Console()
    console.print(f"Weights and tokenizer: {options.cache}", markup=False, soft_wrap=True)
    try:
        pretrained = load_pretrained(options.cache)
    except FetchError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    feeds = tokenize(pretrained.tokenizer, SENTENCES)
    batch, sequence = feeds["input_ids"].shape
    path = options.cache / f"minilm-l6-{batch}x{sequence}.onnx"
    onnx.save(build_model(pretrained.weights, batch, sequence), path)
    console.print(f"Compiling {path.name}: {batch} sentences, {sequence} tokens each; threads: {options.threads}")
    ours: Session = tilewright.compile(path, threads=options.threads)
    agree = compare(ours, _onnxruntime(path, options.threads), feeds, options.threads, console)
    return 0 if agree else 1


def _onnxruntime(path: Path, threads: int) -> Session:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return cast(Session, onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description="Sentence similarity with MiniLM-L6, compiled by Tilewright.")
    parser.add_argument("--threads", type=int, default=cpus, help="threads of both sides (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of the wheel and the ONNX file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
