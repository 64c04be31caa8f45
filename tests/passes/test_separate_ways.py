"""Pools axis by axis, convolutions group by group, phase by phase, as products of taps, or of gathered taps: where that
saves work, with right results."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.ops.nodes import NodeCase, check
from tilewright.base.numerics import Math
from tilewright.frontend.onnx.read.importer import load
from tilewright.passes.alternatives import facts_of
from tilewright.passes.alternatives.gathered_taps import GATHERED_TAPS
from tilewright.target.target import Target

random = np.random.default_rng(3)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-1, 1, shape).astype(np.float32)


WINDOWS = [
    NodeCase("MaxPool", [f(1, 5, 14, 13)], {"kernel_shape": [8, 7], "pads": [3, 3, 4, 2], "strides": [2, 1]}),
    NodeCase("MaxPool", [f(1, 4, 7, 9, 8)], {"kernel_shape": [6, 1, 7], "strides": [1, 2, 2], "ceil_mode": 1}),
    NodeCase("AveragePool", [f(1, 3, 12, 15)], {"kernel_shape": [8, 8], "pads": [4, 3, 2, 1], "strides": [1, 3]}),
    NodeCase("AveragePool", [f(1, 3, 12, 9)], {"kernel_shape": [7, 6], "pads": [3] * 4, "count_include_pad": 1}),
    NodeCase("MaxPool", [f(1, 32, 20, 20)], {"kernel_shape": [5, 5], "pads": [2] * 4}),
]
MULTIPLIED = [
    NodeCase("Conv", [f(1, 2, 9, 8)], {"group": 2, "pads": [1] * 4, "dilations": [1, 2]}, [f(64, 1, 3, 3), f(64)]),
    NodeCase("Conv", [f(2, 3, 9)], {"group": 3, "strides": [2]}, [f(144, 1, 3)]),
]
"""Convolutions of a few channels, each of which has whole blocks of filters."""
GROUPED = [
    NodeCase("Conv", [f(2, 24, 9, 9)], {"group": 2, "pads": [1] * 4, "strides": [1, 2]}, [f(70, 12, 3, 3), f(70)]),
    NodeCase("Conv", [f(1, 36, 17)], {"group": 3, "strides": [2]}, [f(30, 12, 5)]),
    NodeCase("Conv", [f(1, 48, 15, 14), f(36, 24, 3, 3)], {"group": 2, "dilations": [2, 1]}, [f(36)]),
    NodeCase("Conv", [f(2, 96, 60), f(40, 48, 5), f(40)], {"group": 2, "pads": [2, 2]}),
    NodeCase("ConvTranspose", [f(1, 36, 7, 7)], {"group": 2, "strides": [2, 2]}, [f(36, 9, 3, 3), f(18)]),
    NodeCase("ConvTranspose", [f(1, 88, 6, 6)], {"group": 2, "strides": [2, 2]}, [f(88, 32, 5, 5)]),
]
PHASES = [
    NodeCase("ConvTranspose", [f(1, 20, 12, 12)], {"strides": [2, 2]}, [f(20, 200, 3, 3), f(200)]),
    NodeCase("ConvTranspose", [f(1, 7, 44, 44)], {"strides": [3, 3], "pads": [2] * 4}, [f(7, 48, 5, 5)]),
]
TAPS = [
    NodeCase("ConvTranspose", [f(1, 24, 8, 8)], {"strides": [2, 2], "pads": [2, 2, 2, 2]}, [f(24, 20, 3, 3)]),
    NodeCase("ConvTranspose", [f(1, 24, 8, 7)], {"strides": [2, 2], "pads": [2, 1, 2, 2]}, [f(24, 20, 5, 5), f(20)]),
    NodeCase("ConvTranspose", [f(2, 33, 9, 9)], {"strides": [2, 2]}, [f(33, 1, 3, 3)]),
    NodeCase("ConvTranspose", [f(1, 48, 9, 9)], {"strides": [3, 1], "pads": [1, 0, 0, 1]}, [f(48, 2, 4, 3), f(2)]),
    NodeCase("ConvTranspose", [f(1, 16, 9)], {"strides": [3], "pads": [1, 1], "output_padding": [1]}, [f(16, 3, 7)]),
    NodeCase("ConvTranspose", [f(1, 200, 8, 8)], {}, [f(200, 5, 3, 3), f(5)]),
    NodeCase("Conv", [f(2, 96, 12, 11)], {"pads": [2, 1, 0, 2], "dilations": [2, 1]}, [f(3, 96, 3, 3), f(3)]),
    NodeCase("Conv", [f(1, 120, 30)], {"pads": [3, 3]}, [f(2, 120, 7)], tolerance=1e-4),
]
"""Few filters."""
GATHERED = [
    NodeCase("Conv", [f(1, 8, 17, 16, 17)], {"group": 2, "pads": [0, 0, 0, 1, 1, 1]}, [f(184, 4, 2, 2, 2), f(184)]),
    NodeCase("Conv", [f(1, 4, 4, 6, 6)], {"group": 4, "pads": [1] * 6}, [f(160, 1, 3, 3, 3)]),
    NodeCase(
        "Conv", [f(2, 3, 20, 19)], {"strides": [1, 2], "dilations": [2, 1], "pads": [2, 1, 0, 3]}, [f(66, 3, 3, 3)]
    ),
    NodeCase("Conv", [f(1, 8, 505)], {"pads": [3, 2], "strides": [2], "group": 2}, [f(182, 4, 5), f(182)]),
]
"""Many filters of few channels."""
DIRECT = [
    NodeCase("MaxPool", [f(1, 5, 14, 13)], {"kernel_shape": [3, 3]}),
    NodeCase("MaxPool", [f(1, 5, 40, 13)], {"kernel_shape": [36, 1]}),
    NodeCase("Conv", [f(1, 32, 9, 9)], {"group": 2}, [f(64, 16, 5, 5)]),
    NodeCase("Conv", [f(1, 32, 9, 9)], {"group": 32}, [f(32, 1, 3, 3)]),
]


def ways(case: NodeCase, math: Math = Math.DEFAULT) -> set[str]:
    """How values are computed with vectors of 16 lanes."""
    target = "x86_64,znver4,l1=32K,l2=1M,l3=32M"
    choices = tilewright.compile(case.model(), target=target, math=math).compiled.choices
    return {how.removesuffix(", plain") for how, _ in choices.decisions.values()}


@pytest.mark.share(2)
@pytest.mark.parametrize("case", [*WINDOWS, *MULTIPLIED, *GROUPED, *PHASES, *TAPS, *GATHERED], ids=str)
def test_results_are_those_of_onnx_runtime(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_large_windows_are_pooled_axis_by_axis(case: NodeCase) -> None:
    assert "axis by axis" in ways(case)


@pytest.mark.parametrize("case", MULTIPLIED, ids=str)
def test_filters_of_one_channel_that_fill_blocks_are_lanes(case: NodeCase) -> None:
    assert "direct, in blocks" in ways(case)


@pytest.mark.parametrize("case", GROUPED, ids=str)
def test_groups_that_share_blocks_or_have_uneven_phases_are_separate(case: NodeCase) -> None:
    assert "group by group" in ways(case)


@pytest.mark.parametrize("case", PHASES, ids=str)
def test_uneven_phases_are_separate(case: NodeCase) -> None:
    assert "separate phases" in ways(case)


@pytest.mark.parametrize("case", TAPS, ids=str)
def test_taps_of_few_filters_are_rows_of_one_product(case: NodeCase) -> None:
    assert "products of taps" in ways(case)


@pytest.mark.parametrize("case", GATHERED, ids=str)
def test_many_filters_multiply_a_copy_of_their_windows(case: NodeCase) -> None:
    assert any(way.endswith("of gathered taps") for way in ways(case, Math.STRICT))


@pytest.mark.parametrize(("filters", "channels", "size"), [(7, 4, 8), (64, 4, 40), (8, 64, 80)])
def test_a_copy_that_does_not_pay_is_not_offered(filters: int, channels: int, size: int) -> None:
    """For few filters, terms of a sum in too many pages, or a copy beyond the second cache."""
    assert not is_offered(NodeCase("Conv", [f(1, channels, size, size)], {}, [f(filters, channels, 5, 5)]))


def test_a_copy_of_padding_or_of_one_row_is_not_offered() -> None:
    window = {"dilations": [12, 12], "pads": [6] * 4}
    assert not is_offered(NodeCase("Conv", [f(1, 8, 8, 8)], window, [f(64, 8, 2, 2)]))
    assert is_offered(NodeCase("Conv", [f(1, 8, 8, 8)], {"pads": [1] * 4}, [f(64, 8, 2, 2)]))
    assert not is_offered(NodeCase("Conv", [f(1, 8, 99)], {}, [f(64, 8, 3)]))
    assert is_offered(NodeCase("Conv", [f(1, 8, 99)], {"strides": [2]}, [f(64, 8, 3)]))


def is_offered(case: NodeCase) -> bool:
    """Whether a copy of what windows read is among the ways."""
    graph = load(case.model())
    facts = facts_of(graph, Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M"))
    return bool(list(GATHERED_TAPS.ways(graph.nodes[-1], facts)))


def test_an_infinity_stays_where_it_belongs() -> None:
    """Missing taps are in no sum."""
    case = TAPS[2]
    data = f(2, 33, 9, 9)
    data[0, 3, 4, 4] = np.inf
    check(NodeCase(case.op, [data], case.attributes, case.constants))


@pytest.mark.parametrize("case", DIRECT, ids=str)
def test_others_are_direct(case: NodeCase) -> None:
    assert ways(case).isdisjoint({"axis by axis", "group by group", "separate phases", "products of taps"})
