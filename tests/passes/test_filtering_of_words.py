"""Winograd's convolutions of bytes in words, against NumPy's integers; which convolutions are computed so."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model
from tests.passes.test_integer_products import Window
from tilewright.base.dtypes import i16
from tilewright.compilation import Options
from tilewright.cost.kernels import kernel_cycles, pass_cycles, work_of
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.graph import Node
from tilewright.loops.ir import Alloc
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.visit import walk
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.ops.winograd import filter_in_words, transformed_filter
from tilewright.passes.alternatives import Alternative, Facts, Way, known
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.alternatives.filtering_of_words import FILTERING_OF_WORDS
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder

Array = NDArray[np.generic]
ZEN3 = Target.parse("x86_64,znver3")
AVX2 = Target.parse("x86_64,x86-64-v3")


class Otherwise:
    """Direct sums, only where there is no filtering of words."""

    name = DIRECT.name

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if not list(FILTERING_OF_WORDS.ways(node, facts)):
            yield from DIRECT.ways(node, facts)


def names_of(case: Window, target: Target, alternatives: tuple[Alternative, ...] = ()) -> list[str]:
    compiled = compile_graph(load(case.model()), Options(target=target, alternatives=known(alternatives)))
    return [kernel.program.name for kernel in compiled.kernels]


def check(case: Window) -> None:
    if not set(AVX2.features) <= set(Target.host().features):
        pytest.skip("this machine has no AVX2")
    made = tilewright.compile(case.model(), target=AVX2, alternatives=[Otherwise()])
    np.testing.assert_array_equal(made.run(None, {"x": case.x})[0], case.expected)


def drawn(dtype: type, shape: tuple[int, ...], seed: int) -> Array:
    """All numbers, and the least and the greatest more often."""
    info, random = np.iinfo(dtype), np.random.default_rng(seed)
    some = random.integers(info.min, info.max, shape, endpoint=True)
    return np.where(random.random(shape) < 0.4, random.choice([info.min, info.max], shape), some).astype(dtype)


@settings(max_examples=12)
@given(
    dtype=st.sampled_from((np.uint8, np.int8)),
    channels=st.sampled_from((8, 20, 32)),
    filters=st.sampled_from((8, 17, 40)),
    size=st.tuples(st.integers(1, 2), st.integers(13, 16), st.integers(14, 19)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    zeros=st.tuples(st.integers(0, 127), st.integers(-3, 3)),
    seed=st.integers(0, 99),
)
def test_any_convolution_is_exact(
    dtype: type,
    channels: int,
    filters: int,
    size: tuple[int, int, int],
    pads: tuple[int, int, int, int],
    zeros: tuple[int, int],
    seed: int,
) -> None:
    batch, height, width = size
    x, weight = drawn(dtype, (batch, channels, height, width), seed), drawn(np.int8, (filters, channels, 3, 3), seed)
    check(Window(x, weight, zeros[0], (zeros[1],), pads))


def test_the_largest_sums_are_exact() -> None:
    """Four times the result is nearly -2^31; of more channels it would be beyond."""
    x, weight = np.full((8, 1824, 6, 6), 255, np.uint8), np.full((8, 1824, 3, 3), -128, np.int8)
    case = Window(x, weight)
    assert case.expected.min() == -255 * 128 * 9 * 1824 >= -(2**31) // 4
    check(case)
    assert any("winograd" in name for name in names_of(case, AVX2, (Otherwise(),)))
    more = replace(case, x=np.full((8, 1832, 6, 6), 255, np.uint8), weight=np.full((8, 1832, 3, 3), -128, np.int8))
    assert not any("winograd" in name for name in names_of(more, AVX2, (Otherwise(),)))


def test_filters_are_integers() -> None:
    weight = drawn(np.int8, (5, 3, 3, 3), 0)
    found = filter_in_words(weight, (2, 2))
    np.testing.assert_array_equal(found, 4 * transformed_filter(weight, (2, 2), 1))
    assert filter_in_words(np.full((1, 1, 3, 3), -128, np.int8), (2, 2)).min() == -9 * 128


def test_where_no_instruction_multiplies_four_bytes() -> None:
    case = Window(drawn(np.uint8, (1, 64, 28, 28), 0), drawn(np.int8, (64, 64, 3, 3), 0), 7, pads=(1, 1, 1, 1))
    compiled = compile_graph(load(case.model()), Options(target=ZEN3))
    made = {kernel.program.name: str(kernel.program) for kernel in compiled.kernels}
    assert any("winogradproducts" in name and "pmaddwd_pairs_ymm_add(" in text for name, text in made.items())
    plain = (case, Target.parse("x86_64,znver4")), (replace(case, strides=(2, 2)), ZEN3)
    others = (replace(case, dilations=(2, 2)), ZEN3), (replace(case, weight=case.weight[:, :, :1]), ZEN3)
    few = replace(case, x=case.x[:, :, :7, :7]), ZEN3
    limited = replace(case, weight=np.clip(case.weight, -64, 64)), ZEN3
    for one, target in (*plain, *others, few, limited):
        assert not any("winograd" in name for name in names_of(one, target))


def test_a_limit_of_memory_is_kept() -> None:
    """Filters are 32/9 times as large, and kept out where memory is short."""
    case = Window(drawn(np.uint8, (1, 64, 28, 28), 0), drawn(np.int8, (64, 64, 3, 3), 0), pads=(1, 1, 1, 1))
    whole = compile_graph(load(case.model()), Options(target=ZEN3))
    assert whole.choices.more_bytes == 64 * 64 * (16 * 2 - 9)
    lean = compile_graph(load(case.model()), Options(target=ZEN3, memory_limit=650_000))
    assert not any("winograd" in kernel.program.name for kernel in lean.kernels)


def test_a_transform_costs_its_vectors() -> None:
    """Its choices are made while compiling: a pass that evaluates them would take several times as long."""
    options = {
        "tile": (2, 2),
        "taps": (3, 3),
        "strides": (1, 1),
        "dilations": (1, 1),
        "depth": 1,
        "pads": (1, 1),
        "outputs": (28, 28),
    }
    program = lower(require("WinogradInput").apply([placeholder((1, 64, 28, 28), i16, "x")], options)[0])
    vectors = 16 * 14 * 14 * 64 / 16
    found = kernel_cycles(program, ZEN3)
    assert found == ZEN3.machine.kernel_start + ZEN3.machine.transform_cycles * vectors
    assert found < pass_cycles(work_of(program), ZEN3) / 3


def test_sums_are_complete_where_blocks_read_them() -> None:
    """An image of three channels, whose sums are convolved again: a tile is rounded at once, not all columns."""
    first = Window(drawn(np.uint8, (1, 3, 20, 20), 0), drawn(np.int8, (64, 3, 5, 5), 0))
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "wz", "s", "z"], ["m"]),
        helper.make_node("QLinearConv", ["m", "s", "z", "v", "s", "wz", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.5), "z": np.uint8(0), "wz": np.int8(0), "w": first.weight}
    constants["v"] = drawn(np.int8, (64, 64, 1, 1), 0)
    made = compile_graph(load(model(nodes, {"x": first.x}, ["y"], constants)), Options(target=ZEN3))
    sums = next(kernel.program for kernel in made.kernels if "_dotconvolution" in kernel.program.name)
    (tile,) = [alloc for alloc in walk(sums.body) if isinstance(alloc, Alloc)]
    assert tile.buffer.memory == LOCAL
    assert static(tile.buffer.shape) == (1, 1, 6, 2, 8)
