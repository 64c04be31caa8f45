"""Convolutions of bytes with all places as rows, as the interpreter runs them, against NumPy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.base.dtypes import f32, i8, u8
from tilewright.base.errors import BadProgram
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives.byte_packing import packed_blocks
from tilewright.tensor.build import placeholder

Array = NDArray[np.generic]
PLACES = require("PlaceDotConvolution")


def moves(stride: int, dilation: int, *, is_gathered: bool) -> dict[str, Attribute]:
    return {
        "filters": 3,
        "strides": (stride, stride),
        "pads": (1, 0, 2, 1),
        "dilations": (dilation, 1),
        "is_gathered": is_gathered,
    }


@pytest.mark.parametrize(
    ("stride", "dilation", "is_gathered"), [(1, 1, False), (1, 2, False), (1, 1, True), (2, 1, True), (2, 2, True)]
)
def test_places_are_rows(stride: int, dilation: int, is_gathered: bool) -> None:
    random = np.random.default_rng(stride + dilation)
    x = random.integers(0, 256, (1, 8, 6, 3)).astype(np.uint8)
    weight = random.integers(-128, 128, (3, 8, 3, 2)).astype(np.int8)
    packed, around = packed_blocks(weight, 4, 4), 7
    tensors = [placeholder(x.shape, u8, "x"), placeholder(packed.shape, i8, "w"), placeholder((), u8, "z")]
    result = PLACES.apply(tensors, moves(stride, dilation, is_gathered=is_gathered))
    (found,) = interpret(lower(result), {"x": x, "w": packed, "z": np.array(around, np.uint8)}).values()
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 2), (0, 1)), constant_values=around)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * dilation + 1, 2), (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation]
    np.testing.assert_array_equal(found, np.einsum("nchwij,fcij->nfhw", windows, weight.astype(np.int64)))


def test_other_operands_are_refused() -> None:
    data, weight = placeholder((1, 8, 6, 5), u8, "x"), placeholder((1, 2, 3, 2, 1, 4, 4), i8, "w")
    with pytest.raises(BadProgram, match="bytes, and filters of i8"):
        PLACES.apply([placeholder((1, 8, 6, 5), f32, "x"), weight], moves(1, 1, is_gathered=False))
    with pytest.raises(BadProgram, match="have strides of 1"):
        PLACES.apply([data, weight], moves(2, 1, is_gathered=False))
