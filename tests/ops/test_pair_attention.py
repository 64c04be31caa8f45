"""Attention in pairs of bfloat16 as the interpreter runs it, against float64 on the same rounded operands."""

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.base.dtypes import bf16, boolean, f32
from tilewright.base.errors import BadProgram
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.ops.operator import require
from tilewright.tensor.build import placeholder

Floats = NDArray[np.float64]


def rounded(x: NDArray[np.float32]) -> Floats:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def pairs(x: NDArray[np.float32], rows: int, columns: int, are_columns: bool = False) -> NDArray[np.generic]:
    made = require("Pairs").apply(
        [placeholder(x.shape, f32, "x")], {"rows": rows, "columns": columns, "are_columns": are_columns}
    )
    return next(iter(interpret(lower(made), {"x": x}).values()))


def test_pairs_of_rows_and_of_columns() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
    expected = np.zeros((2, 6, 9))
    expected[:, :5, :7] = rounded(x)
    expected = expected.reshape(2, 3, 2, 9).transpose(0, 1, 3, 2)
    np.testing.assert_array_equal(pairs(x, 6, 9).astype(np.float64), expected)
    columns = np.ascontiguousarray(x.transpose(0, 2, 1))
    np.testing.assert_array_equal(pairs(columns, 6, 9, are_columns=True).astype(np.float64), expected)


@pytest.mark.parametrize(("count", "is_guarded"), [(16, False), (13, True)])
def test_the_definition(count: int, is_guarded: bool) -> None:
    random = np.random.default_rng(count)
    q, keys = (random.normal(size=shape).astype(np.float32) for shape in ((2, 5, 6), (2, count, 6)))
    v, mask = random.normal(size=(2, count, 16)).astype(np.float32), np.zeros((1, 5, count), np.float32)
    mask[:, 3] = -np.inf
    mask[:, 1, : count // 2] = -np.inf
    empty = np.zeros((2, 5, 1), np.bool_)
    empty[0, 2] = True
    given = {"q": q, "keys": pairs(keys, 6, 16, are_columns=True), "v": pairs(v, 16, 16), "mask": mask, "empty": empty}
    types = {"keys": bf16, "v": bf16, "empty": boolean}
    tensors = [placeholder(array.shape, types.get(name, f32), name) for name, array in given.items()]
    made = require("PairAttention").apply(tensors, {"count": count, "scale": 0.5, "is_guarded": is_guarded})
    found = interpret(lower(made, inputs=tensors), given)[made[0].name]
    with np.errstate(invalid="ignore"):
        scores = 0.5 * rounded(q) @ rounded(keys).transpose(0, 2, 1) + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ rounded(v)
    expected[:, 3] = 0 if is_guarded else np.nan
    expected[0, 2] = 0
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_other_operands_are_refused() -> None:
    q, x = placeholder((5, 6), f32, "q"), placeholder((5, 6), bf16, "x")
    with pytest.raises(BadProgram, match="matrices of f32"):
        require("Pairs").apply([x], {"rows": 6, "columns": 6})
    keys, v = placeholder((4, 16, 2), bf16, "keys"), placeholder((8, 16, 2), bf16, "v")
    with pytest.raises(BadProgram, match="do not fit"):
        require("PairAttention").apply([q, keys, v], {"count": 16})
