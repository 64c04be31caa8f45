"""Products with weights of 4 and 8 bits, beside ONNX Runtime's, and the bandwidth of memory.

`python -m benchmarks.weights [--rounds N] [--threads N]` prints a table. All are timed in turns: Tilewright, ONNX
Runtime, and a probe that reads an array beyond the caches; the best times are compared. Weights that fit in caches have
no share of memory's bandwidth. Errors are relative to float64.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tilewright.insight.peak import beyond_caches
from tilewright.insight.probes import read_probe
from tilewright.target.target import Target

SIZE = 32
"""Rows with one scale."""


@dataclass(frozen=True, slots=True)
class Case:
    """`rows x depth` by `depth x columns`, by MatMulNBits."""

    rows: int
    depth: int
    columns: int
    bits: int = 4
    accuracy: int = 0

    @property
    def weight_bytes(self) -> int:
        """Codes, and scales in float32."""
        return self.depth * self.columns * self.bits // 8 + self.depth // SIZE * self.columns * 4


CASES = (
    *(Case(rows, 2048, 2048, 4, accuracy) for rows in (1, 4, 64) for accuracy in (0, 4)),
    *(Case(1, 2048, 8192, 4, accuracy) for accuracy in (0, 4)),
    *(Case(1, 4096, 32768, 4, accuracy) for accuracy in (0, 4)),
    Case(1, 4096, 16384, 8, 4),
)


def weight(case: Case) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Packed codes and scales."""
    random = np.random.default_rng(0)
    shape = (case.columns, case.depth // SIZE)
    codes = random.integers(0, 256, (*shape, SIZE * case.bits // 8), np.uint8)
    return codes, random.uniform(0.01, 0.02, shape).astype(np.float32)


def model(case: Case) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(array, name) for array, name in zip(weight(case), "bs", strict=True)]
    options = {"K": case.depth, "N": case.columns, "bits": case.bits, "block_size": SIZE}
    node = helper.make_node(
        "MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", accuracy_level=case.accuracy, **options
    )
    kind = onnx.TensorProto.FLOAT
    a, y = (
        helper.make_tensor_value_info(name, kind, (case.rows, extent))
        for name, extent in (("a", case.depth), ("y", case.columns))
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", [a], [y], constants), opset_imports=opsets, ir_version=10)


def exact(case: Case, a: NDArray[np.float32]) -> NDArray[np.float64]:
    codes, scale = weight(case)
    halves = np.stack([codes & 15, codes >> 4], axis=-1) if case.bits == 4 else codes[..., None]
    dense = (halves.reshape(*scale.shape, SIZE) - float(1 << (case.bits - 1))) * scale[..., None]
    return a.astype(np.float64) @ dense.reshape(case.columns, case.depth).T


def best(run: Callable[[], object], before: float, times: int) -> float:
    """The best of `before` and some runs, in seconds."""
    for _ in range(times):
        begin = perf_counter()
        run()
        before = min(before, perf_counter() - begin)
    return before


def row(case: Case, rounds: int, threads: int) -> str:
    proto = model(case)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    compiled = tilewright.compile(proto, threads=threads)
    feeds = {"a": np.random.default_rng(1).standard_normal((case.rows, case.depth)).astype(np.float32)}
    probe = read_probe(target := Target.host(), beyond_caches(target), threads)
    own = peer = float("inf")
    bandwidth = 0.0
    for _ in range(rounds):
        own = best(lambda: compiled.run(None, feeds), own, 5)
        peer = best(lambda: session.run(None, feeds), peer, 5)
        bandwidth = max(bandwidth, probe())
    expected = exact(case, feeds["a"])
    errors = [
        float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        for found in (np.asarray(compiled.run(None, feeds)[0]), np.asarray(session.run(None, feeds)[0]))
    ]
    rate = case.weight_bytes / own / 1e9
    name = f"{case.rows} x {case.depth} x {case.columns}, {case.bits} bits, accuracy_level {case.accuracy}"
    share = f"{rate / bandwidth:.2f}" if case.weight_bytes > 2 * target.l3_bytes else ""
    rates = f"{peer / own:.2f} | {rate:.0f} | {share}"
    return f"| {name} | {own * 1e3:.3g} | {rates} | {errors[0]:.0e} | {errors[1]:.0e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print("| product | ms | ONNX Runtime's time / ours | GB/s of weights | of memory's | error | ONNX Runtime's |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for case in CASES:
        print(row(case, arguments.rounds, arguments.threads), flush=True)


if __name__ == "__main__":
    main()
