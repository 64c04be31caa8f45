"""Compile time of MiniLM's kernels: milliseconds of Python (lowering, schedule, text) and of LLVM, per kernel.

`python -m benchmarks.compile_time [--sequence N]` prints a table of the distinct kernels, and the medians over
the tiled contractions. Nothing comes from the object cache, nor from what earlier kernels left in Python's caches.
"""

import argparse
import sys
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from examples.sentence_similarity.model import build_model
from examples.sentence_similarity.weights import default_cache, load_pretrained
from tilewright.backend.cpu.image import kernel_text
from tilewright.backend.cpu.llvm import compile_object
from tilewright.compilation import Options, decide, prepare, transform
from tilewright.cost.analytic import schedule
from tilewright.frontend.onnx.read import importer
from tilewright.ops import FusionKind
from tilewright.passes.fuse import Group, fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import to_kernel
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

REPEATS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel; times in milliseconds, medians over ``REPEATS``."""

    name: str
    contraction: bool
    python: float
    llvm: float
    lines: int


def measure(group: Group, laid_out: LaidOut, target: Target) -> Row:
    """Compile the kernel of ``group`` several times."""
    python, llvm, lines = [], [], 0
    for _ in range(REPEATS):
        forget()
        start = perf_counter()
        program = replace(to_kernel(group, laid_out, target, {}).program, name="kernel")
        text = kernel_text(schedule(Schedule(program), target).program).text
        middle = perf_counter()
        compile_object(text, target)
        python.append(1e3 * (middle - start))
        llvm.append(1e3 * (perf_counter() - middle))
        lines = len(text.splitlines())
    contraction = any(node.op.kind is FusionKind.CONTRACTION for node in group.nodes)
    return Row(group.name, contraction, median(python), median(llvm), lines)


def forget() -> None:
    """Empty the compiler's caches in memory, so that a repeat does the work of a first time.

    LLVM's target and the symbols of the process are left: no model pays for those more than once.
    """
    for name, module in sys.modules.items():
        if name.startswith("tilewright.") and not name.startswith(
            ("tilewright.backend.cpu.llvm", "tilewright.runtime")
        ):
            for function in vars(module).values():
                clear = getattr(function, "cache_clear", None)
                if clear is not None:
                    clear()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequence", type=int, default=128)
    arguments = parser.parse_args()
    weights = load_pretrained(default_cache()).weights
    target = Target.host()
    options = Options(target)
    laid_out = transform(decide(prepare(importer.load(build_model(weights, 1, arguments.sequence))), options), options)
    rows: dict[str, Row] = {}
    for group in fuse(laid_out.graph):
        key = f"{group.name} {[v.shape for v in group.inputs]} {[v.shape for v in group.outputs]}"
        if key not in rows:
            rows[key] = measure(group, laid_out, target)
    print("| kernel | Python ms | LLVM ms | lines of IR |\n|---|---:|---:|---:|")
    for row in rows.values():
        print(f"| {row.name} | {row.python:.1f} | {row.llvm:.1f} | {row.lines} |")
    tiled = [row for row in rows.values() if row.contraction]
    middle = median(row.python for row in tiled), median(row.llvm for row in tiled)
    print(f"| **median of the {len(tiled)} contractions** | {middle[0]:.1f} | {middle[1]:.1f} | |")


if __name__ == "__main__":
    main()
