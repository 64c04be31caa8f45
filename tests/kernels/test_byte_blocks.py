"""Convolutions of bytes by the matrix unit of x86, with channels in blocks that fill its rows: compared with NumPy.

They run where the processor has the unit and the system grants it; elsewhere they are compiled.
"""

import re
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tilewright.target.target import Target

Array = NDArray[np.generic]

HOST = Target.host()
UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")


@dataclass(frozen=True)
class Window:
    """A convolution with padding, by windows of three places along each dimension, and zero points of data."""

    channels: int
    filters: int
    size: tuple[int, ...]
    stride: int = 1
    groups: int = 1
    kernel: int = 3

    @property
    def weight(self) -> Array:
        shape = (self.filters, self.channels // self.groups, *self._kernel)
        return np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)

    @property
    def data(self) -> Array:
        return np.random.default_rng(1).choice([0, 1, 200, 255], (1, self.channels, *self.size)).astype(np.uint8)

    def model(self) -> onnx.ModelProto:
        pads, strides = [self.kernel // 2] * (2 * len(self.size)), [self.stride] * len(self.size)
        node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], group=self.groups, pads=pads, strides=strides)
        x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, self.data.shape)
        constants = [numpy_helper.from_array(self.weight, "w"), numpy_helper.from_array(np.array(7, np.uint8), "z")]
        graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    @property
    def expected(self) -> Array:
        reach, rank = self.kernel // 2, len(self.size)
        padded = np.pad(self.data.astype(np.int32) - 7, [(0, 0), (0, 0), *[(reach, reach)] * rank])
        windows = np.lib.stride_tricks.sliding_window_view(padded, self._kernel, tuple(range(2, 2 + rank)))
        windows = windows[(slice(None), slice(None), *[slice(None, None, self.stride)] * rank)]
        places = windows.shape[2 : 2 + rank]
        columns = np.moveaxis(windows, 1, 1 + rank).reshape(prod(places), self.groups, -1).astype(np.float64)
        weight = self.weight.reshape(self.groups, self.filters // self.groups, -1).astype(np.float64)
        found = np.einsum("pgk,gfk->gfp", columns, weight, optimize=True)  # sums below 2 ** 53 are exact
        return found.reshape(1, self.filters, *places).astype(np.int32)

    @property
    def _kernel(self) -> tuple[int, ...]:
        return (self.kernel,) * len(self.size)


WINDOWS = [
    Window(64, 64, (9, 14)),  # whole rows
    Window(56, 96, (8, 15), stride=2),  # channels beside which there are zeros, and blocks of half a row
    Window(128, 128, (7, 16), groups=32),  # sixteen groups share a block
    Window(64, 128, (6, 17), groups=8),  # with more filters than channels
    Window(64, 64, (2, 7, 7)),  # all places in rows of tiles
    Window(80, 48, (6, 40)),  # rows of pixels, in which taps lie side by side
    *(
        pytest.param(window, marks=pytest.mark.slow)
        for window in (
            Window(192, 24, (14, 14), kernel=1),
            Window(48, 80, (17, 17)),
            Window(24, 144, (28, 28), kernel=1),
            Window(256, 256, (14, 14), stride=2, groups=4),
            Window(192, 192, (14, 14), groups=4),
            Window(96, 160, (16, 16), kernel=5),
            Window(128, 64, (7, 7)),
            Window(320, 1280, (7, 7), kernel=1),
            Window(128, 256, (4, 8, 8), stride=2),
            Window(192, 192, (17, 17)),
            Window(768, 192, (17, 17), kernel=1),
            Window(64, 64, (3, 14, 14)),
            Window(80, 192, (73, 73)),
            Window(48, 64, (35, 35), kernel=5),
            Window(96, 96, (35, 35), stride=2),
        )
    ),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_sums_are_exact(window: Window) -> None:
    compiled = tilewright.compile(window.model(), target=UNIT, threads=2)
    assert any("tdpbusd" in str(kernel.schedule.program) for kernel in compiled.compiled.kernels)
    if not set(UNIT.features) <= set(HOST.features):
        pytest.skip("compiled; running needs AMX, and a kernel that grants it")
    np.testing.assert_array_equal(compiled(window.data), window.expected)


def test_rows_of_tiles_are_whole() -> None:
    """Sixteen words of a block of channels at a time, or fifteen of those of a row's taps."""
    for channels, size, words in ((64, (9, 14), "3_3_16"), (96, (9, 14), "3_75"), (80, (20, 64), "3_60")):
        compiled = tilewright.compile(Window(channels, 64, size).model(), target=UNIT)
        called = "".join(str(kernel.schedule.program) for kernel in compiled.compiled.kernels)
        assert f"{words}_4_" in called, channels
        # Rows of 60 bytes lie in two lines, and take long to load: for 16 columns each would be loaded twice as often.
        assert channels != 80 or re.search("tdpbusd_s64_(32|64)_r3_60", called)


def test_all_places_are_rows_where_a_row_of_them_is_short() -> None:
    """The filters are read once for an image, instead of once for each row."""
    for size, rows in (((7, 7), 61), ((2, 7, 7), 61), ((28, 28), 28)):
        compiled = tilewright.compile(Window(64, 64, size).model(), target=UNIT)
        called = "".join(str(kernel.schedule.program) for kernel in compiled.compiled.kernels)
        assert re.search(f"tdpbusd_s[0-9_]*{rows}_[0-9]+_r", called), size
