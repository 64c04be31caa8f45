"""Products of operands of all ranks, vectors and extents of 1 among them, that come from other nodes.

What inlining leaves of a contraction is no contraction any more in some of them: the simplifier orders the terms of
integer sums, and an extent of 1 has no axis. They compile, and are NumPy's products.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.base.arrays import Array

SHAPES = ((1,), (2,), (1, 1), (1, 2), (2, 1), (3, 2), (2, 3), (1, 3, 1), (1, 1, 3), (2, 3, 2), (2, 2, 3))
PARTS = 3
"""Of the products: not a divisor of the number of ways, so that each part has all."""
WAYS = ("plain", "negated", "transposed", "joined", "joined and transposed")


@dataclass(frozen=True)
class Operand:
    """A value of a shape, which nodes make of inputs in some way."""

    name: str
    shape: tuple[int, ...]
    way: str

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs."""
        turned = "transposed" in self.way and len(self.shape) > 1
        source = (*self.shape[:-2], self.shape[-1], self.shape[-2]) if turned else self.shape
        axis = self.axis
        if "joined" not in self.way or source[axis] < 2:
            return (source,)
        return tuple((*source[:axis], extent, *source[axis + 1 :]) for extent in (1, source[axis] - 1))

    @property
    def axis(self) -> int:
        """The last one, which a transposition makes the one before."""
        return len(self.shape) - 1

    def nodes(self) -> list[object]:
        names = [f"{self.name}_{position}" for position in range(len(self.parts))]
        joined = f"{self.name}_joined"
        made: list[object] = [helper.make_node("Concat", names, [joined], axis=self.axis)]
        if self.way == "negated":
            return [*made, helper.make_node("Neg", [joined], [self.name])]
        if "transposed" in self.way and len(self.shape) > 1:
            order = [*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2]
            return [*made, helper.make_node("Transpose", [joined], [self.name], perm=order)]
        return [*made, helper.make_node("Identity", [joined], [self.name])]

    def value(self, parts: list[Array]) -> Array:
        joined = np.concatenate(parts, self.axis)
        if self.way == "negated":
            return np.negative(joined)
        return np.swapaxes(joined, -1, -2) if "transposed" in self.way and len(self.shape) > 1 else joined


def products() -> list[tuple[Operand, Operand]]:
    """Those that NumPy can multiply; the ways take turns."""
    ways = itertools.cycle(itertools.product(WAYS, WAYS))
    found: list[tuple[Operand, Operand]] = []
    for a, b in itertools.product(SHAPES, SHAPES):
        if a[-1] == b[-2 if len(b) > 1 else 0] and (len(a) < 3 or len(b) < 3 or a[0] == b[0]):
            first, second = next(ways)
            number = len(found)
            found.append((Operand(f"a{number}", a, first), Operand(f"b{number}", b, second)))
    return found


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_any_product(dtype: str, part: int) -> None:
    random = np.random.default_rng(part)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes: list[object] = []
    inputs: list[object] = []
    feeds: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    for number, pair in enumerate(products()[part::PARTS]):
        values: list[Array] = []
        for operand in pair:
            parts = [random.integers(-4, 5, shape).astype(dtype) for shape in operand.parts]
            names = [f"{operand.name}_{position}" for position in range(len(parts))]
            inputs += [helper.make_tensor_value_info(n, code, p.shape) for n, p in zip(names, parts, strict=True)]
            feeds.update(zip(names, parts, strict=True))
            nodes += operand.nodes()
            values.append(operand.value(parts))
        nodes.append(helper.make_node("MatMul", [operand.name for operand in pair], [f"y{number}"]))
        expected[f"y{number}"] = np.asarray(np.matmul(*values))
    outputs = [helper.make_tensor_value_info(name, code, value.shape) for name, value in expected.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    for name, found in zip(expected, model.run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


def test_an_integer_column_times_one_number() -> None:
    """int64 [1, 3, 1], the transpose of what was joined, times a vector of one element."""
    values = [helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in (("a", [1, 1, 1]), ("b", [1, 1, 2]))]
    vector = helper.make_tensor_value_info("v", TensorProto.INT64, [1])
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["c"], axis=2),
        helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "v"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.INT64, [1, 3])
    graph = helper.make_graph(nodes, "g", [*values, vector], [result])
    model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    (found,) = model.run(None, {"a": np.array([[[2]]]), "b": np.array([[[3, 5]]]), "v": np.array([7])})
    np.testing.assert_array_equal(found, [[14, 21, 35]])
