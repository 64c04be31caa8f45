"""What the checks of indices cost: `python -m benchmarks.index_checks [--threads N]`.

For each operator whose indices are data, the time with `checks="on"` over that with `checks="off"` (which clamps), in
turns, on indices that are in range. Prints a Markdown table. Wants a quiet machine.
"""

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tilewright.base.settings import Settings
from tilewright.measure.turns import Plan, measure, ratio

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Case:
    """A node on random data; `constants` are among its operands, after the inputs."""

    name: str
    op: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, object]
    constants: Mapping[str, Array]
    order: Sequence[str]
    opset: int = 21

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(self.op, self.order, ["y"], **self.attributes)
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        known = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], known)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def cases() -> Iterator[Case]:
    """Operators at sizes of networks; `x`: data, `i`: indices, `u`: updates."""
    random = np.random.default_rng(0)

    def f(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    def i(extent: int, *shape: int) -> Array:
        return random.integers(0, extent, shape)

    def case(name: str, op: str, inputs: Mapping[str, Array], opset: int = 21, **attributes: object) -> Case:
        return Case(name, op, inputs, attributes, {}, list(inputs), opset)

    yield case("Gather, rows of 384", "Gather", {"x": f(30522, 384), "i": i(30522, 1, 128)})
    yield case("Gather, rows of 8", "Gather", {"x": f(30522, 8), "i": i(30522, 4096)})
    yield case("Gather, elements", "Gather", {"x": f(30522), "i": i(30522, 65536)})
    yield case("Gather, last axis", "Gather", {"x": f(512, 64), "i": i(64, 128)}, axis=1)
    yield case("GatherElements", "GatherElements", {"x": f(128, 512), "i": i(512, 128, 512)}, axis=1)
    yield case("GatherND, elements", "GatherND", {"x": f(256, 256), "i": i(256, 16384, 2)})
    yield case("GatherND, rows of 64", "GatherND", {"x": f(256, 64), "i": i(256, 4096, 1)})
    yield case("ScatterElements", "ScatterElements", {"x": f(128, 512), "i": i(512, 128, 64), "u": f(128, 64)}, axis=1)
    yield case("ScatterND, elements", "ScatterND", {"x": f(256, 256), "i": i(256, 16384, 2), "u": f(16384)})
    yield case("ScatterND, rows of 64", "ScatterND", {"x": f(256, 64), "i": i(256, 1024, 1), "u": f(1024, 64)})
    yield case("ReverseSequence", "ReverseSequence", {"x": f(64, 32, 64), "i": i(64, 32)})
    yield case("NegativeLogLikelihoodLoss", "NegativeLogLikelihoodLoss", {"x": f(1024, 1000), "i": i(1000, 1024)})
    yield case(
        "TensorScatter", "TensorScatter", {"x": f(4, 512, 64), "u": f(4, 1, 64), "i": i(512, 4)}, opset=24, axis=1
    )
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield case("MaxUnpool", "MaxUnpool", {"x": f(1, 64, 28, 28), "i": i(64 * 56 * 56, 1, 64, 28, 28)}, **pool)
    weights = {"w": f(1, 512, 128) / 16, "r": f(1, 512, 128) / 16}
    inputs = {"x": f(64, 8, 128), "i": i(65, 8).astype(np.int32)}
    yield Case("LSTM", "LSTM", inputs, {"hidden_size": 128}, weights, ["x", "w", "r", "", "i"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each operator."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_checks", description="What checks cost.")
    parser.add_argument("--threads", type=int, default=1, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=60, help="default %(default)s")
    options = parser.parse_args(arguments)
    settings = Settings(model_cache_bytes=0)
    print("| operator | us, off | us, on | on / off (quartiles) |\n|---|---|---|---|")
    for case in cases():
        ways = {}
        for checks in ("off", "on"):
            model = tilewright.compile(case.model(), checks=checks, threads=options.threads, settings=settings)
            ways[checks] = lambda model=model, feeds=dict(case.inputs): model.run(None, feeds)
        timings = measure(ways, Plan(rounds=options.rounds, slot=0.03, rest=0.0))
        off, on = timings["off"], timings["on"]
        turns = [b / a for a, b in zip(off.medians, on.medians, strict=True)]
        low, _, high = statistics.quantiles(turns, n=4)
        times = f"{off.median * 1e6:.1f} | {on.median * 1e6:.1f}"
        print(f"| {case.name} | {times} | {ratio(on, off):.3f} ({low:.3f} to {high:.3f}) |", flush=True)


if __name__ == "__main__":
    main()
