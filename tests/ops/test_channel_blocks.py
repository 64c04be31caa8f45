"""Convolutions of bfloat16 over whole blocks of channels as the interpreter runs them, against float64."""

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.base.dtypes import bf16, f32
from tilewright.base.errors import BadProgram
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives.places_in_rows import packed_in_pairs
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Tensor

Array = NDArray[np.generic]


def computed(op: str, arrays: list[Array], attributes: dict[str, Attribute]) -> Array:
    types = {array.dtype: bf16 if array.dtype == ml_dtypes.bfloat16 else f32 for array in arrays}
    tensors: list[Tensor | None] = [
        placeholder(array.shape, types[array.dtype], f"x{place}") for place, array in enumerate(arrays)
    ]
    made = require(op).apply(tensors, attributes)
    feeds = {f"x{place}": array for place, array in enumerate(arrays)}
    return next(iter(interpret(lower(made), feeds).values()))


@pytest.mark.parametrize(("stride", "dilation", "filters"), [(1, 1, 5), (2, 1, 4), (1, 2, 4)])
def test_the_convolution_with_zeros_around_and_behind(stride: int, dilation: int, filters: int) -> None:
    random = np.random.default_rng(stride + dilation)
    x, weight = (random.normal(size=s).astype(np.float32) for s in ((2, 5, 7, 6), (filters, 5, 3, 2)))
    bias = random.normal(size=filters).astype(np.float32)
    whole = computed("WholeChannels", [x], {"channels": 8, "before": (1, 0), "after": (2, 1)})
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    padded = np.pad(rounded, ((0, 0), (0, 3), (1, 2), (0, 1)))
    np.testing.assert_array_equal(whole.astype(np.float64), padded)
    attributes: dict[str, Attribute] = {
        "filters": filters,
        "strides": (stride, 1),
        "dilations": (dilation, 1),
    }
    found = computed("PairConv", [whole, packed_in_pairs(4, 2, weight), bias], attributes)
    narrow = weight.astype(ml_dtypes.bfloat16).astype(np.float64)
    rows = range(0, padded.shape[2] - 2 * dilation, stride)
    expected = np.zeros((2, filters, len(rows), 6))
    for y, row in enumerate(rows):
        for column in range(6):
            window = padded[:, :5, row : row + 2 * dilation + 1 : dilation, column : column + 2]
            expected[:, :, y, column] = np.einsum("nckl,fckl->nf", window, narrow)
    np.testing.assert_allclose(found.astype(np.float64), expected + bias.reshape(-1, 1, 1), rtol=1e-5, atol=1e-5)


def test_other_operands_are_refused() -> None:
    x, narrow = placeholder((1, 5, 7), f32, "x"), placeholder((1, 8, 7), bf16, "y")
    with pytest.raises(BadProgram, match="have no room for 5"):
        require("WholeChannels").apply([x], {"channels": 4, "before": (0,), "after": (0,)})
    weight = placeholder((1, 1, 3, 2, 4, 2), bf16, "w")
    attributes: dict[str, Attribute] = {"filters": 4, "strides": (1,), "dilations": (1,)}
    with pytest.raises(BadProgram, match="has not 1 blocks of 4 channels"):
        require("PairConv").apply([narrow, weight], attributes)
    with pytest.raises(BadProgram, match="images of bf16"):
        require("PairConv").apply([x, weight], attributes)
