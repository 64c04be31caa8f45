"""The most memory that a network takes: made and run once, here and in ONNX Runtime.

`python -m benchmarks.peak_memory [--precision fp32|bf16|int8] [--networks NAME,...] [--ways WAY,...]`: for each network
of the zoo, new processes, with one thread: ONNX Runtime makes a session of the file (in bf16, of the float32 one, which
is all it has) and runs it; Tilewright loads an artifact and runs it, compiles the file with nothing in a cache, or with
the model in it. The peak of resident memory in MB, less what the process had with the libraries and a small network in
use before; in parentheses, as a part of the first way's. Mapped pages of files count, as for any process. Linux only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tilewright
from tilewright.base.settings import Settings

from .networks import NETWORKS, ZOO
from .options import names
from .zoo import quantized_path

ROOT = Path(__file__).parent.parent
OTHER = "mlp"
WAYS = ("onnxruntime", "loaded", "compiled", "cached")

CHILD = """
import json, sys
from pathlib import Path
from benchmarks.zoo.samples import load_samples

how, precision, *files = sys.argv[1:]
if how == "onnxruntime":
    import onnxruntime
    def made(path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, feeds)
else:
    import tilewright
    def made(path):
        if how == "loaded":
            model = tilewright.load(path, threads=1)
        else:
            model = tilewright.compile(path, threads=1, precision=precision)
        return lambda feeds: model.run(None, feeds)

def kept(name):
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[name].split()[0])

inputs = [load_samples(Path(path))[0].inputs for path in files[1::2]]
small = made(files[0])
small(inputs[0])
Path("/proc/self/clear_refs").write_text("5")
before = kept("VmRSS")
model = made(files[2])
model(inputs[1])
print(json.dumps(kept("VmHWM") - before))
"""


def measured(how: str, precision: str, files: Sequence[Path], folder: Path) -> int:
    """Bytes, of a new process. ``files``: a small network and its samples, the network and its samples."""
    own = {"CACHE_DIR": str(folder / "cache"), "KEY_DIR": str(folder / "keys"), "NUM_THREADS": "1"}
    if how == "compiled":
        own |= {"MODEL_CACHE_BYTES": "0", "CACHE_DIR": "off"}
    environment = os.environ | {f"TILEWRIGHT_{name}": value for name, value in own.items()}
    precision = "fp32" if precision == "int8" else precision  # the file says it
    command = [sys.executable, "-c", CHILD, how, precision, *map(str, files)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    return int(json.loads(done.stdout))


def row(name: str, precision: str, zoo: Path, ways: Sequence[str] = WAYS) -> dict[str, int]:
    """Bytes of each of ``ways``."""
    model = quantized_path(name, zoo) if precision == "int8" else zoo / f"{name}.onnx"
    others = [zoo / f"{OTHER}.onnx", zoo / f"{OTHER}.npz"]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        settings = replace(Settings.from_environment(), cache_dir=folder / "cache", key_dir=folder / "keys")
        compiled = "fp32" if precision == "int8" else precision
        artifacts = [folder / "small.tw", folder / "model.tw"]
        for source, to in zip((others[0], model), artifacts, strict=True) if {"loaded", "cached"} & {*ways} else ():
            tilewright.compile(source, threads=1, precision=compiled, settings=settings).save(to, settings=settings)
        found: dict[str, int] = {}
        for how in ways:
            small, file = artifacts if how == "loaded" else (others[0], model)
            found[how] = measured(how, precision, (small, others[1], file, zoo / f"{name}.npz"), folder)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peak_memory", description="Peaks of memory.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help=f"default {','.join(NETWORKS)}")
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="fp32", help="default %(default)s")
    parser.add_argument("--ways", type=names, default=list(WAYS), help=f"default {','.join(WAYS)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    options = parser.parse_args(arguments)
    if unknown := [way for way in options.ways if way not in WAYS]:
        parser.error(f"--ways: there is no {', '.join(unknown)}; give some of {', '.join(WAYS)}")
    print(f"| network | {' | '.join(options.ways)} |")
    print(f"|---|{'---:|' * len(options.ways)}", flush=True)
    for name in options.networks:
        found = row(name, options.precision, options.zoo.absolute(), options.ways)
        first = found[options.ways[0]]
        sizes = " | ".join(f"{bytes_ / 1e6:.1f} ({bytes_ / first:.2f})" for bytes_ in found.values())
        print(f"| {name} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()
