"""Rows do not see each other: a batch of 2n gives the bits that its two halves give.

That is promised for one model whose batch is known at run time only: its kernels split sums in one way, whatever the
number of rows, and wherever a row stands. Models that are compiled for batches of fixed sizes are different models,
whose sums may be split otherwise and whose convolutions may be computed by other algorithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model
from tilewright.base.arrays import Array

BATCHES = (1, 3, 8)
"""The numbers of rows in a half: with tiles that are filled, and with tails."""


def floats(*shape: int) -> NDArray[np.generic]:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class RowWise:
    """Nodes that compute ``y`` from ``x`` row by row: the names of operators, operands, and attributes."""

    name: str
    row: tuple[int, ...]
    nodes: Sequence[onnx.NodeProto]
    constants: dict[str, NDArray[np.generic]] = field(default_factory=dict[str, NDArray[np.generic]])

    def model(self) -> onnx.ModelProto:
        """With the number of rows called ``rows``."""
        made = model(self.nodes, {"x": floats(1, *self.row)}, ["y"], self.constants)
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        return made

    def __str__(self) -> str:
        return self.name


def one(op: str, row: tuple[int, ...], *constants: NDArray[np.generic], **attributes: object) -> RowWise:
    """A node alone."""
    named = {f"c{position}": array for position, array in enumerate(constants)}
    shapes = "-".join("x".join(map(str, array.shape)) for array in (np.empty(row, bool), *constants))
    return RowWise(f"{op}-{shapes}", row, [helper.make_node(op, ["x", *named], ["y"], **attributes)], named)


PADS = (1, 1, 1, 1)
CASES = (
    one("Tanh", (5, 13)),
    *(one("MatMul", (k,), floats(k, n)) for k, n in ((7, 1), (64, 33), (300, 64), (1000, 10))),
    one("Gemm", (64,), floats(64, 40), floats(40)),
    one("Einsum", (5, 30), floats(30, 20), equation="bij,jk->bik"),
    one("Softmax", (77,)),
    one("ReduceMean", (5, 77), np.array([1, 2])),
    one("ReduceSum", (5, 7, 9), np.array([2])),
    one("ArgMax", (77,), axis=1),
    one("CumSum", (50,), np.array(1)),
    one("LayerNormalization", (5, 64), floats(64), floats(64)),
    one("InstanceNormalization", (8, 9, 9), floats(8), floats(8)),
    one("LRN", (8, 9, 9), size=5),
    one("Conv", (8, 12, 12), floats(16, 8, 3, 3), pads=PADS),
    one("Conv", (64, 7, 7), floats(32, 64, 1, 1)),
    one("Conv", (32, 9, 9), floats(32, 1, 3, 3), pads=PADS, group=32),
    one("ConvTranspose", (8, 6, 6), floats(8, 4, 3, 3), strides=[2, 2]),
    one("GlobalAveragePool", (8, 9, 9)),
    one("AveragePool", (8, 9, 9), kernel_shape=[3, 3]),
    one("MaxPool", (8, 9, 9), kernel_shape=[3, 3]),
    RowWise(
        "perceptron",
        (100,),
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("MatMul", ["active", "v"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["y"]),
        ],
        {"w": floats(100, 70), "b": floats(70), "v": floats(70, 10)},
    ),
    RowWise(
        "attention",
        (17, 32),
        [
            helper.make_node("Transpose", ["x"], ["keys"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["x", "keys"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["weights"]),
            helper.make_node("MatMul", ["weights", "x"], ["y"]),
        ],
    ),
)


@pytest.mark.share(4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_halves_of_a_batch(case: RowWise) -> None:
    compiled = tilewright.compile(case.model(), threads=2, dynamic="symbolic")

    def run(x: Array) -> Array:
        (result,) = compiled.run(None, {"x": x})
        return result

    for rows in BATCHES:
        x = floats(2 * rows, *case.row)
        halves = np.concatenate([run(x[:rows]), run(x[rows:])])
        whole = run(x)
        assert (whole.dtype, whole.shape) == (halves.dtype, halves.shape)
        assert whole.tobytes() == halves.tobytes()
