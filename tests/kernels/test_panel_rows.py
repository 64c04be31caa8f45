"""Strips of images in plain layout are pieces that lie apart: they are wide, and the next one is asked for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.graphs import apply, value
from tilewright import te
from tilewright.compilation import Options
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.model import best, estimate
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Nests, Tiles
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.panels_ahead import LINE_BYTES
from tilewright.kernels.tiling import Order
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, loops_of
from tilewright.symbolic.expr import ONE
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,graniterapids,l1=48K,l2=2M,l3=480M")
ZEN3 = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M")


def pointwise(images: int, channels: int, filters: int, places: int, groups: int = 1) -> Program:
    """Products of all places of images with filters of a group each."""
    x = te.placeholder((images, groups * channels, places), "float32", name="x")
    w = te.placeholder((groups, filters, channels), "float32", name="w")
    k = te.reduce_axis((0, channels), name="k")
    shape = (images, groups, filters, places)
    y = te.compute(shape, lambda n, g, f, p: te.sum(x[n, g * channels + k, p] * w[g, f, k], axis=k), name="y")
    return te.create_schedule(y).program


def nest_of(program: Program, target: Target = TARGET) -> Tiles:
    (nest,) = open_space(Schedule(program), target).nests
    assert isinstance(nest, Tiles)
    return nest


def tiles(images: int, channels: int, filters: int, places: int) -> Tiles:
    return nest_of(pointwise(images, channels, filters, places))


def chosen(nest: Tiles, target: Target = TARGET) -> dict[str, int]:
    """The analytic choice."""
    (choice,) = best(Nests((nest,)), target)
    return dict(zip((knob.name for knob in nest.knobs), choice, strict=True))


def test_terms_lie_as_far_apart_as_an_image_has_places() -> None:
    assert tiles(2, 8, 16, 49).facts.row_length == 49


@pytest.mark.parametrize("packed", [True, False])
def test_matrices_and_packed_panels_have_facts_of_their_own(packed: bool) -> None:
    a = te.placeholder((8, 32), "float32", name="a")
    b = te.placeholder((4, 32, 16) if packed else (32, 64), "float32", name="b")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute(
        (8, 64), lambda i, j: te.sum(a[i, k] * (b[j // 16, k, j % 16] if packed else b[k, j]), axis=k), name="c"
    )
    (nest,) = open_space(Schedule(te.create_schedule(c).program), TARGET).nests
    assert isinstance(nest, Tiles)
    assert nest.facts.row_length == 0
    assert nest.facts.is_row_major is not packed


@pytest.mark.parametrize("images", [4, 16])
def test_strips_of_one_image_are_preferred_to_those_of_several(images: int) -> None:
    """Both fill as many registers; those of several images have twice as many pieces."""
    assert chosen(tiles(images, 96, 32, 1024))["panels"] == 1


def test_pieces_that_come_from_memory_are_as_long_as_registers_permit() -> None:
    near, far = chosen(tiles(1, 64, 64, 12544)), chosen(tiles(16, 64, 64, 50176))
    assert (near["lanes"], far["lanes"]) == (32, 64)
    assert far["prefetch"] == near["prefetch"] == 2
    assert far["order"] == Order.COLUMNS_ROWS.value


def test_the_next_strip_is_asked_for() -> None:
    """An image larger than the second cache, in a model; where strips end in an image, too."""
    x, w = value("x", 1, 48, 115, 101), value("w", 20, 48, 1, 1)
    random = np.random.default_rng(0)
    weights = random.standard_normal(tuple(map(int, map(str, w.shape))), np.float32)
    node = apply("Conv", [x, w], "y")
    compiled = compile_graph(Graph("g", (x,), node.outputs, (node,), {w: weights}), Options(TARGET, threads=1))
    (kernel,) = compiled.kernels
    steps = {parameter.name: kernel.program.prefetched(parameter.name) for parameter in kernel.program.params}
    (ahead,) = {step for step in steps.values() if step}
    assert any(all(asks_for_all(begin, ahead, places) for begin in range(0, LINE_BYTES, 4)) for places in (32, 64))
    assert ahead < 1 << 14


def test_channels_of_a_group_lie_as_far_apart_as_those_of_an_image() -> None:
    """They are no window that slides over channels: each has several filters."""
    nest = nest_of(pointwise(2, 16, 16, 49, groups=4))
    assert isinstance(nest.roles, Contraction)
    assert nest.facts.row_length == 49


def test_windows_with_filters_of_their_own_slide_whatever_their_stride() -> None:
    """Places that do not overlap are no groups: no element is read for several filters."""
    x, w = te.placeholder((4, 16, 64), name="x"), te.placeholder((4, 2, 2), name="w")
    r, s = te.reduce_axis((0, 2), "r"), te.reduce_axis((0, 2), "s")
    y = te.compute((4, 8, 32), lambda c, i, j: te.sum(x[c, i * 2 + r, j * 2 + s] * w[c, r, s], axis=(r, s)), name="y")
    assert not isinstance(nest_of(te.create_schedule(y).program).roles, Contraction)


@pytest.mark.parametrize(("places", "copied"), [(64 * 64, True), (32 * 32, True), (56 * 56, False), (57 * 57, False)])
def test_strips_are_copied_if_their_pieces_evict_one_another(places: int, copied: bool) -> None:
    """Lines at multiples of 4,096 bytes share a set of the first cache; there are 64 channels and eight ways."""
    choice = chosen(nest_of(pointwise(1, 64, 128, places), ZEN3), ZEN3)
    assert (Pack(choice["pack"]) is Pack.STRIPS) is copied
    if copied:
        assert Order(choice["order"]) is not Order.ROWS_COLUMNS


def test_nothing_is_copied_for_one_tile_of_rows() -> None:
    assert Pack(chosen(nest_of(pointwise(1, 64, 4, 64 * 64), ZEN3), ZEN3)["pack"]) is Pack.NOTHING


def copying(sizes: tuple[int, ...], lanes: int, rows: int, order: Order, *, parallel: bool) -> Schedule:
    """A schedule that copies strips."""
    parallel_work = 1 if parallel else 1 << 40
    target = replace(ZEN3, cores=2, machine=replace(ZEN3.machine, parallel_work=parallel_work))
    s = Schedule(pointwise(*sizes))
    nests = open_space(s, target)
    (nest,) = nests.nests
    wanted = {"lanes": lanes, "rows": rows, "panels": 1, "order": order.value, "pack": Pack.STRIPS.value, "prefetch": 2}
    nests.apply(s, [tuple(wanted.get(knob.name, knob.values[-1]) for knob in nest.knobs)])
    return s


@settings(max_examples=20)
@given(
    st.tuples(st.integers(1, 2), st.integers(2, 5), st.integers(2, 7), st.integers(17, 40), st.integers(1, 2)),
    st.sampled_from([8, 16]),
    st.integers(1, 4),
    st.sampled_from([Order.COLUMNS_ROWS, Order.ROWS_COLUMNS]),
)
def test_copied_strips_compute_the_same(sizes: tuple[int, ...], lanes: int, rows: int, order: Order) -> None:
    """Also where strips end beyond an image."""
    s = copying(sizes, lanes, min(rows, sizes[2]), order, parallel=False)
    random = np.random.default_rng(0)
    feeds = {
        p.name: random.standard_normal([int(str(e)) for e in p.shape]).astype(np.float32) for p in s.program.inputs
    }
    x, w = feeds["x"].astype(np.float64), feeds["w"].astype(np.float64)
    images, channels, _, places, groups = sizes
    apart = x.reshape(images, groups, channels, places)
    want = np.einsum("ngkp,gfk->ngfp", apart, w)
    (found,) = interpret(s.program, feeds).values()
    np.testing.assert_allclose(found.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


def test_no_region_begins_for_each_strip() -> None:
    """Loops around strips are parallel, those over the tiles that read one are not."""
    s = copying((2, 8, 24, 64, 1), 16, 4, Order.COLUMNS_ROWS, parallel=True)
    loops = loops_of(s.program, BlockRef("y"))
    kinds = [loop.kind for loop in loops if loop.kind in (LoopKind.PARALLEL, LoopKind.SERIAL)]
    last = max(place for place, kind in enumerate(kinds) if kind is LoopKind.PARALLEL)
    assert LoopKind.SERIAL not in [loop.kind for loop in loops[:last] if loop.extent != ONE]
    copy = next(block for block in all_blocks(s.program.body) if block.name.startswith("x"))
    assert loops_of(s.program, BlockRef(copy.name))[: last + 1] == loops[: last + 1]


def test_tiles_that_read_a_copied_strip_are_no_work_for_other_cores() -> None:
    """Four strips of 16 places keep four cores busy, however many filters there are."""
    nest = replace(nest_of(pointwise(1, 512, 2048, 64), ZEN3), parallel=True)
    population = nest.population()
    are_copied = population.column("pack") == Pack.STRIPS.value
    choices = population.where(are_copied & (population.column("lanes") == 16))
    few, many = (estimate(nest, choices, replace(ZEN3, cores=cores)) for cores in (4, 16))
    np.testing.assert_allclose(few, many)
    are_alone = (population.column("pack") == 0) & (population.column("slices") == 1)
    alone = population.where(are_alone & (population.column("lanes") == 16))
    few, many = (estimate(nest, alone, replace(ZEN3, cores=cores)) for cores in (4, 16))
    assert np.all(many < 0.5 * few)


@pytest.mark.parametrize("threads", [1, 2])
def test_copied_strips_are_right_in_code(threads: int) -> None:
    program = copying((2, 40, 24, 32 * 32 + 5, 2), 16, 4, Order.COLUMNS_ROWS, parallel=True)
    kernel = te.build(program, threads=threads)
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 80, 32 * 32 + 5)).astype(np.float32)
    w = random.standard_normal((2, 24, 40)).astype(np.float32)
    want = np.einsum("ngkp,gfk->ngfp", x.reshape(2, 2, 40, -1).astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-4)


def test_filters_in_blocks_are_read_from_one_end_to_the_other() -> None:
    """Taps stay inside of channels, as filters are stored: half lines that lie apart would come in each step."""
    x, w = te.placeholder((1, 32, 7, 7), name="x"), te.placeholder((2, 32, 3, 3, 16), name="w")
    c, r, s = (te.reduce_axis((0, n), name) for n, name in ((32, "c"), (3, "r"), (3, "s")))

    def padded(c: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        inside = (i >= 1) & (i < 8) & (j >= 1) & (j < 8)
        return te.if_then_else(inside, x[0, c, i - 1, j - 1], 0.0)

    data = te.compute((32, 9, 9), padded, name="data")
    result = te.compute(
        (2, 5, 5, 16), lambda p, i, j, f: te.sum(data[c, i + 2 * r, j + 2 * s] * w[p, c, r, s, f], axis=(c, r, s)), "y"
    )
    trace = str(schedule(Schedule(te.create_schedule(result).program), ZEN3).trace)
    assert "skip_padding" in trace
    assert '"c_1", "r", "s"' in trace


def asks_for_all(begin: int, ahead: int, places: int) -> bool:
    """Whether a strip that begins there, and what its vectors ask for, have all lines of the next strip."""
    size = 4 * places
    asked = {(begin + ahead + offset) // LINE_BYTES for offset in range(0, size, LINE_BYTES)}
    here, following = (
        set(range(start // LINE_BYTES, (start + size - 1) // LINE_BYTES + 1)) for start in (begin, begin + size)
    )
    return following <= here | asked
