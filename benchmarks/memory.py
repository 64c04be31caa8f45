"""Memory that processes keep of a model: compiled, taken from the cache, loaded, mapped, shared with others.

`python -m benchmarks.memory [--width W --layers N --words V]`: a BERT-like encoder of random weights, with open batch
and sequence. Each case is a new process. What the interpreter and the libraries take is measured before and not
counted; so are pages of a mapped file, which the system shares and takes back.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

import tilewright
from examples.embeddings import random_weights
from examples.sentence_similarity.model import Config, build_model
from tilewright.base.settings import Settings

ROOT = Path(__file__).parent.parent
FORKS = 4

CHILD = """
import json, os, sys, time

def size(kind):
    fields = (line.split() for line in open("/proc/self/smaps_rollup") if ":" in line)
    sizes = {field[0]: 1024 * int(field[1]) for field in fields if field[1].isdigit()}
    return sizes[kind + ":"]

how, path, other = sys.argv[1:]
import numpy
import tilewright
if how in ("compile", "cached"):
    tilewright.compile(other)
else:
    tilewright.load(other)
before, begin = size("Anonymous"), time.process_time()
if how in ("compile", "cached"):
    model = tilewright.compile(path)
else:
    model = tilewright.load(path, mmap=how == "mapped")
seconds, made = time.process_time() - begin, size("Anonymous")
ids = numpy.ones((2, 16), numpy.int64)
feeds = dict.fromkeys(("input_ids", "attention_mask"), ids) | {"token_type_ids": 0 * ids}
model.run(None, feeds)
children = []
for _ in range(int(os.environ["FORKS"]) if how == "forked" else 0):
    out, into = os.pipe()
    if not os.fork():
        model.run(None, feeds)
        os.write(into, str(size("Private_Dirty")).encode())
        os._exit(0)
    children.append(int(os.read(out, 100)))
    os.wait()
ran = size("Anonymous")
print(json.dumps({"seconds": seconds, "made": made - before, "ran": ran - before, "whole": ran, "children": children}))
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one process: the CPU seconds until the model is there, and bytes.

    ``made``: kept of the model then, ``ran``: after a run; ``whole``: with the interpreter and the libraries;
    ``children``: what each forked child has for itself after a run.
    """

    seconds: float
    made: int
    ran: int
    whole: int
    children: Sequence[int]


def encoder(width: int, layers: int, words: int) -> tuple[onnx.ModelProto, int]:
    """The model, and the bytes of its weights."""
    weights = random_weights(width, layers, words, positions=512)
    proto = build_model(weights, "batch", "sequence", Config(heads=width // 64))
    return proto, sum(array.nbytes for array in weights.values())


def measured(how: str, path: Path, other: Path, folder: Path) -> Measured:
    """A new process in which the model of ``path`` is made; ``other``: a small one, which loads the libraries."""
    own = {"CACHE_DIR": str(folder / "cache"), "KEY_DIR": str(folder / "keys"), "NUM_THREADS": "2"}
    own |= {"CACHE_BYTES": str(1 << 30), "MODEL_CACHE_BYTES": str(4 << 30)}
    environment = os.environ | {f"TILEWRIGHT_{name}": value for name, value in own.items()} | {"FORKS": str(FORKS)}
    command = [sys.executable, "-c", CHILD, how, str(path), str(other)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    return Measured(**json.loads(done.stdout))


def all_cases(folder: Path, model: onnx.ModelProto, small: onnx.ModelProto) -> dict[str, Measured]:
    """By name: compiled with nothing in the cache, compiled again, loaded, mapped, and forked after loading."""
    for name, proto in (("model", model), ("small", small)):
        onnx.save(proto, folder / f"{name}.onnx")
    sources, artifacts = ([folder / f"{name}{end}" for name in ("model", "small")] for end in (".onnx", ".tw"))
    found = {how: measured(how, *sources, folder) for how in ("compile", "cached")}
    settings = Settings(cache_dir=folder / "cache", key_dir=folder / "keys")
    for source, to in zip(sources, artifacts, strict=True):
        tilewright.compile(source, settings=settings).save(to, settings=settings)
    return found | {how: measured(how, *artifacts, folder) for how in ("loaded", "mapped", "forked")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=768, help="of a token (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=12, help="(default: %(default)s)")
    parser.add_argument("--words", type=int, default=30522, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    model, size = encoder(options.width, options.layers, options.words)
    with tempfile.TemporaryDirectory() as folder:
        found = all_cases(Path(folder), model, encoder(64, 1, 100)[0])
    print(f"weights: {size / 1e6:.0f} MB")
    print("| process | CPU seconds | MB kept | of the weights | after a run | whole process |")
    print("|---|---:|---:|---:|---:|---:|")
    for how, one in found.items():
        sizes = f"{one.made / 1e6:.0f} | {one.made / size:.2f} | {one.ran / 1e6:.0f} | {one.whole / 1e6:.0f}"
        print(f"| {how} | {one.seconds:.2f} | {sizes} |")
    children = ", ".join(f"{count / 1e6:.0f}" for count in found["forked"].children)
    print(f"MB that each of {FORKS} children of the last has for itself: {children}")


if __name__ == "__main__":
    main()
