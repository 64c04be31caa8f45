"""Which way is estimated to be fastest where the products alone do not tell."""

import numpy as np
import pytest

from tests.passes import graphs
from tests.passes.graphs import apply
from tilewright.base.dtypes import f32
from tilewright.base.numerics import Math
from tilewright.graph import Graph, Value
from tilewright.ops.operator import Attribute
from tilewright.passes.alternatives import Way, candidates, facts_of
from tilewright.passes.alternatives.gathered_taps import GATHERED_TAPS
from tilewright.target.target import Target

ZEN3 = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M")
RAPIDS = Target.parse("x86_64,graniterapids,l1=48K,l2=2M,l3=64M")
Shape = tuple[int, ...]


def estimated(
    data: Shape,
    weight: Shape,
    is_known: bool = True,
    target: Target = RAPIDS,
    math: Math = Math.DEFAULT,
    **attributes: Attribute,
) -> tuple[Way, ...]:
    """The ways of a convolution."""
    x, w = graphs.value("x", *data), graphs.value("w", *weight)
    node = apply("Conv", [x, w], "y", **attributes)
    known: dict[Value, np.ndarray] = {w: np.zeros(weight, np.float32)} if is_known else {}
    graph = Graph("g", (x,) if is_known else (x, w), node.outputs, (node,), known)
    return candidates(node, facts_of(graph, target, math))


def fastest(ways: tuple[Way, ...]) -> str:
    return min(ways, key=lambda way: way.cycles).name


def test_a_block_of_filters_with_short_rows_is_slower_than_products_of_taps() -> None:
    for size, expected in ((8, "products of taps, plain"), (28, "direct, in blocks")):
        found = estimated((1, 464, size, size), (16, 464, 5, 5), math=Math.STRICT, pads=(2,) * 4)
        assert fastest(found) == expected


def cycles_of(name: str, ways: tuple[Way, ...]) -> float:
    return next(way.cycles for way in ways if way.name == name)


@pytest.mark.parametrize(("target", "filters", "is_slower"), [(ZEN3, 8, True), (RAPIDS, 16, False)])
def test_a_single_block_of_filters_has_more_broadcasts_where_these_are_instructions(
    target: Target, filters: int, is_slower: bool
) -> None:
    one, two = (
        cycles_of("direct, in blocks", estimated((1, 160, 56, 56), (count, 160, 4, 4), target=target))
        for count in (filters, 2 * filters)
    )
    assert (one > 1.15 * two / 2) == is_slower


@pytest.mark.parametrize(("extent", "most"), [(8, 0.6), (40, 1.0)])
def test_terms_that_read_padding_are_left_out_if_they_are_many(extent: int, most: float) -> None:
    """Of three taps six rows apart on eight rows, each reads two to eight of them."""
    shapes = (1, 64, extent, extent), (64, 64, 3, 3)
    padded = cycles_of("direct, in blocks", estimated(*shapes, pads=(6,) * 4, dilations=(6, 6)))
    larger = (1, 64, extent + 12, extent + 12)
    bare = cycles_of("direct, in blocks", estimated(larger, shapes[1], dilations=(6, 6)))
    assert most - 0.2 < padded / bare < most + 0.2


def test_rows_of_few_places_wait_for_filters_from_the_second_cache() -> None:
    shapes, dilated = ((1, 512, 7, 7), (512, 512, 3, 3)), {"pads": (1,) * 4, "dilations": (2, 2)}
    assert fastest(estimated(*shapes, math=Math.STRICT, **dilated)) == "direct of gathered taps, in blocks"
    assert fastest(estimated((1, 512, 12, 12), shapes[1], math=Math.STRICT, **dilated)) == "direct, in blocks"


def test_the_padded_copy_of_the_data_counts() -> None:
    padded, bare = (
        next(way for way in estimated((4, 64, 32, 32), (12, 64, 2, 2), pads=pads) if way.name == "direct, in blocks")
        for pads in ((1,) * 4, (0,) * 4)
    )
    more_places = (33 * 33) / (31 * 31)
    assert padded.cycles - more_places * bare.cycles >= 4 * 64 * 34 * 34 / 16 * RAPIDS.machine.copy_cycles


def test_large_weights_of_run_time_are_not_copied_for_few_places() -> None:
    shapes = (1, 312, 24), (516, 312, 3)
    assert fastest(estimated(*shapes, is_known=False, pads=(2, 2), dilations=(2,))) == "direct, plain"
    assert fastest(estimated((1, 312, 192), shapes[1], is_known=False, pads=(2, 2))) == "direct, in blocks"


@pytest.mark.parametrize("channels", [1, 4])
def test_the_transformed_domain_of_few_channels_takes_as_long_as_storing_it(channels: int) -> None:
    (way,) = (w for w in estimated((1, channels, 64, 64), (64, channels, 3, 3), pads=(1,) * 4) if "F(4x4)" in w.name)
    stored = f32.itemsize * 36 * 16 * 16 * 64
    assert way.cycles > 2 * stored / RAPIDS.machine.far_bytes


@pytest.mark.parametrize(
    ("data", "weight", "attributes"),
    [
        ((8, 8, 616), (551, 8, 5), {"pads": (24, 24), "dilations": (12,)}),
        ((1, 184, 65, 65), (16, 184, 3, 7), {"pads": (1, 9) * 2, "dilations": (1, 3), "strides": (3, 1)}),
    ],
)
def test_transformed_elements_are_moved(data: Shape, weight: Shape, attributes: dict[str, Attribute]) -> None:
    """Many results of few channels, or many channels for few results: storing them takes longer than summing. Direct
    sums took half of the time on a Zen 4."""
    zen4 = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")
    assert fastest(estimated(data, weight, target=zen4, **attributes)) == "direct, in blocks"


def test_the_copy_of_windows_counts_once_for_nodes_that_share_it() -> None:
    ways = estimated((1, 4, 8, 8, 8), (616, 1, 3, 3, 3), pads=(1,) * 6, group=4)
    assert fastest(ways) == f"flat positions of {GATHERED_TAPS.name}, plain"
    gathered = [way for way in ways if GATHERED_TAPS.name in way.name]
    assert all(way.first is not None and 0 < way.first.cycles < way.cycles for way in gathered)


@pytest.mark.parametrize("target", [ZEN3, RAPIDS])
@pytest.mark.parametrize(("side", "is_blocked"), [(32, False), (64, False), (37, True)])
def test_tiles_of_filters_load_channels_anew_that_evict_one_another(
    target: Target, side: int, is_blocked: bool
) -> None:
    """Each channel of plain data begins at a multiple of 4,096 bytes, but for images of 37 x 37."""
    ways = estimated((1, 512, side, side), (128, 512, 1, 1), target=target)
    assert (fastest(ways) == "direct, in blocks") is is_blocked


@pytest.mark.parametrize(("stride", "are_gathered"), [(1, False), (2, True)])
def test_places_are_gathered_for_a_single_tap_with_a_stride(stride: int, are_gathered: bool) -> None:
    names = {way.name for way in estimated((1, 64, 64, 64), (256, 64, 1, 1), target=ZEN3, strides=(stride, stride))}
    assert any(GATHERED_TAPS.name in name for name in names) is are_gathered
