"""Convolutions of bytes over rows of pixels, for a matrix unit that need not be here: evaluated, against NumPy."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tilewright.base.dtypes import i8, u8
from tilewright.frontend.onnx.read.importer import load
from tilewright.graph import Graph
from tilewright.graph.evaluate import evaluate_graph
from tilewright.kernels.tile_descriptions import TileUnit, steps_at_once
from tilewright.kernels.tile_products import tile_unit
from tilewright.passes.alternatives import expand, facts_of
from tilewright.passes.alternatives.api import AS_IT_IS, Alternative, Way, computed
from tilewright.passes.alternatives.byte_rows import BYTE_ROWS, filling
from tilewright.passes.alternatives.places_in_rows import BYTE_PLACES_IN_ROWS
from tilewright.passes.normalize import normalize
from tilewright.target.target import Target

Array = NDArray[np.generic]
UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")
ZERO = 7


def model(x: Array, weight: Array, pads: tuple[int, ...], strides: tuple[int, ...]) -> onnx.ModelProto:
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=pads, strides=strides)
    data = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, x.shape)
    constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array(ZERO, np.uint8), "z")]
    graph = helper.make_graph([node], "g", [data], [onnx.ValueInfoProto(name="y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def expected(x: Array, weight: Array, pads: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    rank = len(strides)
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded, axes = np.pad(x.astype(np.int64) - ZERO, around), tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, stride) for stride in strides))]
    letters, taps = "hwd"[:rank], "ijk"[:rank]
    return np.einsum(f"nc{letters}{taps},fc{taps}->nf{letters}", windows, weight.astype(np.int64))


def remade(graph: Graph, alternative: Alternative) -> tuple[Graph, list[str]]:
    """``graph`` with its one convolution in blocks computed by the first way of ``alternative``; its operators."""
    facts = facts_of(graph, UNIT)
    opened = expand(graph, facts)
    facts = replace(facts_of(opened, UNIT), names=opened.names())
    ways = {node.outputs[0]: next(iter(alternative.ways(node, facts)), Way(AS_IT_IS)) for node in opened.nodes}
    made = computed(opened, ways, facts.names).graph
    return made, [node.op.name for node in made.nodes]


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "pads", "strides"),
    [
        (80, (4, 7), (3, 3), (0, 0, 0, 0), (1, 1)),
        (48, (6, 5), (5, 5), (2, 2, 2, 2), (1, 1)),
        (96, (4, 5), (3, 3), (1, 0, 1, 2), (2, 2)),  # words of zeros, which read pixels behind the rows
        (16, (3, 4, 5), (2, 1, 3), (1, 0, 1, 0, 0, 1), (1, 2, 1)),
    ],
)
def test_rows_of_pixels(
    channels: int, size: tuple[int, ...], kernel: tuple[int, ...], pads: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    random = np.random.default_rng(channels)
    x = random.integers(0, 256, (1, channels, *size)).astype(np.uint8)
    weight = random.integers(-128, 128, (20, channels, *kernel)).astype(np.int8)
    graph, names = remade(normalize(load(model(x, weight, pads, strides))), BYTE_ROWS)
    assert "PixelRowConv" in names and "BlockedDotConvolution" not in names
    (found,) = evaluate_graph(graph, {"x": x})
    np.testing.assert_array_equal(found, expected(x, weight, pads, strides))


@pytest.mark.parametrize("channels", [48, 80, 96])
def test_places_have_whole_rows_of_channels(channels: int) -> None:
    """With zeros for those that are missing."""
    random = np.random.default_rng(channels)
    x = random.integers(0, 256, (1, channels, 5, 6)).astype(np.uint8)
    weight = random.integers(-128, 128, (20, channels, 3, 3)).astype(np.int8)
    moves = (1, 1, 1, 1), (1, 1)
    graph, names = remade(normalize(load(model(x, weight, *moves))), BYTE_PLACES_IN_ROWS)
    (place,) = [node for node in graph.nodes if node.op.name == "PlaceDotConvolution"]
    assert "BlockedDotConvolution" not in names
    assert place.inputs[1] is not None and graph.constants[place.inputs[1]].shape[-3] == 16
    (found,) = evaluate_graph(graph, {"x": x})
    np.testing.assert_array_equal(found, expected(x, weight, *moves))


def test_rows_that_are_full_stay_as_they_are() -> None:
    x, weight = np.zeros((1, 64, 4, 4), np.uint8), np.ones((16, 64, 3, 3), np.int8)
    assert "PixelRowConv" not in remade(normalize(load(model(x, weight, (0,) * 4, (1, 1)))), BYTE_ROWS)[1]


def test_words_are_added_where_that_needs_fewer_instructions() -> None:
    unit = tile_unit(UNIT, u8, i8)
    assert isinstance(unit, TileUnit)
    for words in range(1, 100):
        chosen = filling(words, unit)
        fewest = min(count // steps_at_once(count, unit) for count in range(words, words + 16))
        assert chosen // steps_at_once(chosen, unit) == fewest
        assert all(count // steps_at_once(count, unit) > fewest for count in range(words, chosen))
