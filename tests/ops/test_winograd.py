"""Winograd's transforms and products are the convolution; which convolutions are computed so."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.passes.graphs import apply, value
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.errors import BadInput, BadProgram
from tilewright.compilation import Math, Options
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Node, Value, evaluate_graph, verify
from tilewright.loops.ir import Alloc
from tilewright.loops.memory import LOCAL
from tilewright.loops.visit import walk
from tilewright.ops.minimal_filtering import filtering, has_filtering
from tilewright.ops.winograd import transformed_filter
from tilewright.passes.alternatives import BUILT_IN, OTHER_TERMS, Alternative
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.alternatives.minimal_filtering import F2, F3, F4, filterings_of
from tilewright.passes.choose import choose
from tilewright.target.target import Target

Array = NDArray[np.generic]
HOST = Target.host()
ZEN4 = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=2")
ZEN5 = Target.parse("x86_64,znver5,l1=48K,l2=1M,l3=32M,cores=2")


def convolution(
    size: tuple[int, ...],
    channels: int,
    filters: int,
    *,
    batch: int = 1,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    depth: tuple[int, ...] = (),
    bias: bool = True,
    group: int = 1,
    strides: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    taps: tuple[int, ...] = (3, 3),
) -> Graph:
    random = np.random.default_rng(size[0] + channels)
    shape = (filters, channels // group, *depth, *taps)
    known: dict[Value, Array] = {value("w", *shape): random.standard_normal(shape).astype(np.float32) / 3}
    if bias:
        known[value("b", filters)] = random.standard_normal(filters).astype(np.float32)
    x = value("x", batch, channels, *size)
    across = {"strides": strides or (1,) * len(size), "dilations": dilations or (1,) * len(size)}
    conv = apply("Conv", [x, *known], "y", pads=pads, group=group, **across)
    relu = apply("Relu", conv.outputs, "z")
    return Graph("g", (x,), relu.outputs, (conv, relu), known)


@pytest.mark.parametrize(("size", "depth"), [((8, 8, 8), (3,)), ((16, 16), ())])
def test_what_a_tile_reads_is_part_of_its_first_stage(size: tuple[int, ...], depth: tuple[int, ...]) -> None:
    """Both stages of a tile are in registers: then no kernel makes a buffer of whole images."""
    graph = convolution(size, 64, 64, depth=depth, pads=(1,) * (4 + 2 * len(depth)))
    compiled = compile_graph(graph, Options(target=ZEN5, threads=1))
    (program,) = [kernel.program for kernel in compiled.kernels if "winogradinput" in kernel.program.name]
    made = [stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc)]
    assert len(made) == 1
    assert made[0].memory == LOCAL


def feeds(graph: Graph) -> dict[str, Array]:
    shape = [int(str(extent)) for extent in graph.inputs[0].shape]
    return {"x": np.random.default_rng(3).standard_normal(shape).astype(np.float32)}


def operators(nodes: tuple[Node, ...]) -> list[str]:
    return [node.op.name for node in nodes]


WINOGRAD = ["WinogradInput", "Reshape", "WinogradProducts", "Reshape", "WinogradOutput", "Relu"]


def only(tile: int) -> tuple[Alternative, ...]:
    """Every convolution is computed by tiles of this size."""
    (chosen,) = (known for known in (F2, F3, F4) if known.outputs == tile)
    return DIRECT, replace(chosen, errors=replace(OTHER_TERMS, estimated=-1e9))


def chosen(graph: Graph, target: Target = HOST, alternatives: Sequence[Alternative] = BUILT_IN) -> Graph:
    """``graph`` as it is computed."""
    return choose(graph, target, alternatives=alternatives).apply().graph


def steps(graph: Graph) -> list[str]:
    """Its operators, but for copies to other layouts."""
    return [name for name in operators(graph.nodes) if name != "Copy"]


def check(graph: Graph, tile: int, checked: bool = False) -> None:
    after = chosen(graph, alternatives=only(tile))
    verify(after)
    assert steps(after) == WINOGRAD
    given_feeds = feeds(graph)
    expected, evaluated = (evaluate_graph(g, given_feeds)[0].astype(np.float64) for g in (graph, after))
    options = Options(HOST, threads=2, checked=checked, alternatives=only(tile))
    (native,) = compile_graph(graph, options).executable.run(given_feeds)
    scale = np.abs(expected).max() + 1
    assert np.abs(evaluated - expected).max() <= 1e-4 * scale
    assert np.abs(native - expected).max() <= 1e-4 * scale


@given(
    st.sampled_from([2, 3, 4]),
    st.tuples(st.integers(1, 10), st.integers(1, 10)),
    st.sampled_from([1, 3, 16, 24]),
    st.sampled_from([1, 5, 16, 33]),
    st.integers(1, 2),
    st.sampled_from([1, 1, 2]),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.booleans(),
)
@settings(max_examples=10)
def test_it_is_the_convolution(
    tile: int,
    size: tuple[int, int],
    channels: int,
    filters: int,
    batch: int,
    group: int,
    pads: tuple[int, ...],
    bias: bool,
) -> None:
    taps = {2: 3, 3: 2, 4: 3}[tile]
    if size[0] + pads[0] + pads[2] < taps or size[1] + pads[1] + pads[3] < taps:
        return
    channels, filters = group * channels, group * filters
    whole = (taps, taps)
    check(convolution(size, channels, filters, batch=batch, pads=pads, bias=bias, group=group, taps=whole), tile)


@given(
    st.sampled_from([2, 4]),
    st.tuples(st.integers(3, 5), st.integers(3, 9), st.integers(3, 9)),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 2),
    st.sampled_from([1, 2]),
    st.tuples(*[st.integers(0, 1)] * 6),
)
@settings(max_examples=6)
def test_it_is_the_convolution_in_three_dimensions(
    tile: int, size: tuple[int, ...], depth: int, batch: int, group: int, pads: tuple[int, ...]
) -> None:
    check(convolution(size, 16 * group, 16 * group, batch=batch, depth=(depth,), pads=pads, group=group), tile)


@given(
    st.sampled_from([(4, (1, 3)), (4, (3, 1)), (4, (1, 7)), (4, (7, 1)), (2, (1, 9)), (4, (5,)), (3, (8,)), (2, (3,))]),
    st.tuples(st.integers(1, 20), st.integers(9, 20)),
    st.sampled_from([1, 3, 16, 24]),
    st.sampled_from([1, 5, 16, 33]),
    st.integers(1, 2),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 3),
)
@settings(max_examples=12)
def test_it_is_the_convolution_in_one_dimension(
    tiles: tuple[int, tuple[int, ...]],
    size: tuple[int, int],
    channels: int,
    filters: int,
    batch: int,
    group: int,
    pad: int,
) -> None:
    """Of an image, or of a line."""
    (tile, taps), (across, along) = tiles, size
    extents = (along,) if len(taps) == 1 else (along, across) if taps[1] == 1 else (across, along)
    pads = tuple(pad if count > 1 else 0 for count in taps) * 2
    check(convolution(extents, channels * group, filters * group, batch=batch, pads=pads, group=group, taps=taps), tile)


@pytest.mark.parametrize(
    ("tile", "taps"), [(2, (5, 5)), (2, (3, 5)), (2, (5, 3)), (3, (4, 4)), (3, (2, 4)), (2, (1, 5))], ids=str
)
def test_it_is_the_convolution_with_other_filters(tile: int, taps: tuple[int, ...]) -> None:
    check(convolution((9, 11), 16, 20, taps=taps), tile)


@given(
    st.sampled_from([2, 4]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(9, 30), st.integers(9, 30)),
    st.sampled_from([3, 16]),
    st.sampled_from([5, 32]),
    st.integers(0, 4),
)
@settings(max_examples=10)
def test_it_is_the_dilated_convolution(
    tile: int, dilations: tuple[int, int], size: tuple[int, int], channels: int, filters: int, pad: int
) -> None:
    graph = convolution(size, channels, filters, pads=(pad, 1, 2, pad), dilations=dilations)
    extents = [int(str(extent)) for extent in graph.outputs[0].shape[2:]]
    if all(step == 1 or extent > step * tile for extent, step in zip(extents, dilations, strict=True)):
        check(graph, tile)


@given(
    st.sampled_from([(2, (3, 3)), (3, (3, 3)), (2, (4, 4)), (3, (4, 4)), (2, (5, 5)), (2, (3, 5))]),
    st.sampled_from([(2, 2), (1, 2), (2, 1)]),
    st.tuples(st.integers(5, 20), st.integers(5, 20)),
    st.sampled_from([3, 16]),
    st.sampled_from([5, 32]),
    st.tuples(*[st.integers(0, 2)] * 4),
)
@settings(max_examples=10)
def test_it_is_the_convolution_with_strides(
    tiles: tuple[int, tuple[int, int]],
    strides: tuple[int, int],
    size: tuple[int, int],
    channels: int,
    filters: int,
    pads: tuple[int, ...],
) -> None:
    tile, taps = tiles
    if filterings_of(taps, strides, tile) is not None:
        check(convolution(size, channels, filters, pads=pads, strides=strides, taps=taps), tile)


@pytest.mark.parametrize(("tile", "taps", "stride"), [(3, 3, 2), (2, 5, 2), (3, 4, 2), (3, 6, 3), (2, 8, 3)])
def test_it_is_the_convolution_of_a_line_with_strides(tile: int, taps: int, stride: int) -> None:
    check(convolution((41,), 16, 16, pads=(2, 1), strides=(stride,), taps=(taps,)), tile)


@pytest.mark.parametrize(("tile", "taps", "dilation"), [(4, 5, 3), (2, 9, 2), (4, 3, 8)])
def test_it_is_the_dilated_convolution_of_a_line(tile: int, taps: int, dilation: int) -> None:
    pad = dilation * (taps // 2)
    check(convolution((41,), 16, 16, pads=(pad, pad), dilations=(dilation,), taps=(taps,)), tile)


def test_it_is_the_convolution_of_layers_in_one_dimension() -> None:
    check(convolution((5, 3, 9), 16, 16, depth=(3,), pads=(1, 0, 2, 1, 0, 2), taps=(1, 5)), 4)
    check(convolution((5, 3, 9), 16, 16, depth=(3,), pads=(1, 0, 2) * 2, taps=(1, 3), dilations=(1, 1, 2)), 4)


COUNTS = product(range(1, 11), range(1, 11), range(1, 4))
FILTERINGS = [counts for counts in COUNTS if has_filtering(*counts)]


@pytest.mark.parametrize(("outputs", "taps", "stride"), FILTERINGS, ids=str)
def test_matrices_are_the_convolution(outputs: int, taps: int, stride: int) -> None:
    """In float64, where only the points' distances make errors."""
    one, random = filtering(outputs, taps, stride), np.random.default_rng(outputs)
    data, weight = random.standard_normal((outputs - 1) * stride + taps), random.standard_normal(taps)
    found = one.output @ ((one.filter @ weight) * (one.input @ data))
    np.testing.assert_allclose(found, np.correlate(data, weight, "valid")[::stride], atol=1e-12)
    for matrix in (one.input, one.output):
        np.testing.assert_array_equal(matrix, matrix.astype(np.float32))  # what kernels multiply by


def test_errors_limit_the_points() -> None:
    """Ten in one dimension, six in both; and 64 products of a tile."""
    several: tuple[tuple[int, ...], ...] = ((5, 5), (7, 7), (1, 9), (9,), (11,), (1, 1))
    found = [filterings_of(taps, (1, 1)[: len(taps)], 2) is not None for taps in several]
    assert found == [True, False, True, True, False, False]
    assert filterings_of((4, 4), (2, 2), 3) is not None
    assert filterings_of((4, 4), (2, 2), 5) is None
    with pytest.raises(BadProgram, match="no minimal filtering of 5 outputs and 3 taps with a stride of 1"):
        filtering(5, 3)


def test_it_stays_within_bounds() -> None:
    """Checked as it runs. (Tiles of 4 x 4 are as large a program, checked, as takes half a minute to compile.)"""
    check(convolution((5, 4), 3, 17), 2, checked=True)


def test_other_convolutions_stay() -> None:
    """Those whose strides leave one tap of each phase, with strides, too, where taps are apart, and where a tile would
    be all."""
    whole: dict[str, tuple[int, ...]] = {"depth": (3,), "pads": (1,) * 6}
    for graph in (
        convolution((12, 12), 32, 32, strides=(3, 3)),
        convolution((12, 12), 32, 32, strides=(1, 2), dilations=(1, 2)),
        convolution((12, 12), 32, 32, dilations=(6, 6), pads=(6, 6, 6, 6)),
        convolution((8, 12, 12), 32, 32, **whole, dilations=(2, 1, 1)),
        convolution((8, 12, 12), 32, 32, **whole, strides=(2, 1, 1)),
    ):
        assert steps(chosen(graph, alternatives=only(2))) == operators(graph.nodes)


def siblings(*pads: tuple[int, int, int, int]) -> Graph:
    """Convolutions of one image, each with filters of its own."""
    x, known, nodes = value("x", 1, 16, 10, 12), dict[Value, Array](), list[Node]()
    for number, of_one in enumerate(pads):
        weight = value(f"w{number}", 16 + 16 * number, 16, 3, 3)
        shape = [int(str(extent)) for extent in weight.shape]
        known[weight] = np.random.default_rng(number).standard_normal(shape).astype(np.float32) / 3
        nodes.append(apply("Conv", [x, weight], f"y{number}", pads=of_one))
    return Graph("siblings", (x,), tuple(node.outputs[0] for node in nodes), tuple(nodes), known)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("last", "transforms"), [((1, 1, 1, 1), 1), ((0, 1, 2, 1), 2)])
def test_convolutions_of_one_image_transform_it_once(
    tile: int, last: tuple[int, int, int, int], transforms: int
) -> None:
    """If their tiles are the same ones."""
    graph = siblings((1, 1, 1, 1), (1, 1, 1, 1), last)
    after = chosen(graph, alternatives=only(tile))
    assert operators(after.nodes).count("WinogradInput") == transforms
    assert operators(after.nodes).count("WinogradProducts") == 3
    options = Options(HOST, threads=1, alternatives=only(tile))
    found = compile_graph(graph, options).executable.run(feeds(graph))
    for expected, native in zip(evaluate_graph(graph, feeds(graph)), found, strict=True):
        assert np.abs(native - expected).max() <= 1e-4 * (np.abs(expected).max() + 1)


def test_where_it_pays() -> None:
    """Small tiles where the weights of larger ones would fill the caches; not for few channels, nor few tiles."""
    for size, channels, tile, taps in (
        *(((56, 56), 64, (4, 4), (3, 3)), ((7, 7), 512, (2, 2), (3, 3)), ((17, 17), 128, (2, 2), (5, 5))),
        *(((17, 17), 128, (1, 4), (1, 7)), ((17, 17), 128, (4, 1), (7, 1)), ((64,), 256, (4,), (5,))),
    ):
        graph = convolution(size, channels, channels, pads=tuple(count // 2 for count in taps) * 2, taps=taps)
        after = chosen(graph, ZEN5)
        assert steps(after) == WINOGRAD
        (entering,) = (node for node in after.nodes if node.op.name == "WinogradInput")
        assert dict(entering.attributes)["tile"] == tile
    for graph in (convolution((224, 224), 3, 64), convolution((2, 2), 64, 64)):
        assert steps(chosen(graph, ZEN5)) == ["Conv", "Relu"]


def test_where_caches_have_no_room_for_points() -> None:
    """Those of 16 images are written to memory and read again, which takes as long as direct sums."""
    for batch, expected in ((1, WINOGRAD), (16, ["Conv", "Relu"])):
        graph = convolution((56, 56), 64, 128, batch=batch, strides=(2, 2))
        assert steps(chosen(graph, ZEN4)) == expected


def test_strict_numerics_do_without() -> None:
    graph = convolution((24, 24), 32, 32)
    strict = compile_graph(graph, Options(HOST, threads=1, math=Math.STRICT))
    default = compile_graph(graph, Options(HOST, threads=1))
    assert any("winograd" in kernel.program.name for kernel in default.kernels)
    assert not any("winograd" in kernel.program.name for kernel in strict.kernels)


def test_another_policy_is_refused() -> None:
    assert Math.named("strict") is Math.STRICT
    with pytest.raises(BadInput, match="math='exact': choose one of strict, careful, default"):
        Math.named("exact")


def test_transforms_are_unrolled_in_registers() -> None:
    compiled = compile_graph(convolution((24, 24), 64, 64), Options(HOST, threads=1))
    transforms = [
        k.program for k in compiled.kernels if k.program.name.endswith(("winogradinput", "winogradoutput_relu"))
    ]
    assert len(transforms) == 2
    for program in transforms:
        text = kernel_text(program).text
        assert "gather" not in text and "masked" not in text


def test_the_filter_is_transformed_in_float64() -> None:
    """``G g G^T``, against the definition by polynomials: values of the filter at the five points and at infinity."""
    g = np.random.default_rng(0).standard_normal((1, 1, 3, 3))
    points = np.array([0, 0.625, -0.625, 1.5, -1.5])
    others = [np.prod([p - q for q in points if q != p]) for p in points]
    rows = np.stack([points**k for k in range(3)], axis=1) / np.array(others)[:, None]
    rows = np.concatenate([rows, [[0, 0, 1]]])
    transformed = transformed_filter(g, (4, 4), 1).reshape(6, 6)
    np.testing.assert_allclose(transformed, rows @ g[0, 0] @ rows.T, rtol=6.1e-8)  # rounded once, to float32
