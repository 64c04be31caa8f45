"""Long reductions in slices: sums of a block of columns are in memory, and each slice adds to them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tests.closeness import assert_near
from tilewright import te
from tilewright.base.arrays import Array
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.kernels.nests import Nests, Tiles
from tilewright.kernels.tiling import Order
from tilewright.loops.ir import Alloc, Loop, LoopKind, Store
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.symbolic.expr import Const, Expr, Select
from tilewright.target.target import Target
from tilewright.tensor.ir import Reduction, Tensor
from tilewright.tune.spaces import space_of

ZEN3 = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M,cores=1")
SMALL = [replace(target, l2_bytes=1 << 10) for target in (Target.host(), Target.host().restricted("avx2"))]
"""With a second cache that holds the data of no reduction below."""


def product(rows: int, columns: int, inner: int, end: str = "") -> Program:
    """A product with panels of 16 columns; ``end``: what follows it."""
    a, b = te.placeholder((rows, inner), name="a"), te.placeholder((-(-columns // 16), inner, 16), name="b")
    k, bias = te.reduce_axis((0, inner), name="k"), te.placeholder((columns,), name="bias")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="c")
    ends = {
        "": [c],
        "bias": [te.compute((rows, columns), lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), name="d")],
        "transposed": [te.compute((columns, rows), lambda j, i: c[i, j] + bias[j], name="d")],
        "first": [te.compute((rows, columns), lambda i, j: c[i, j] - c[i, 0], name="d")],
    }
    return lower(ends[end], name="product", inputs=[a, b, *([bias] if end in ("bias", "transposed") else [])])


def convolution(images: int, blocks: int, channels: int, size: int, stride: int) -> Program:
    """3 x 3 taps, filters in blocks of 8; the result in plain layout."""
    x = te.placeholder((images, channels, (size - 1) * stride + 3, (size - 1) * stride + 3), name="x")
    w = te.placeholder((blocks, channels, 3, 3, 8), name="w")
    c, u, v = (te.reduce_axis((0, n), name) for n, name in ((channels, "c"), (3, "u"), (3, "v")))

    def element(n: Expr, b: Expr, i: Expr, j: Expr, lane: Expr) -> Reduction:
        return te.sum(x[n, c, i * stride + u.var, j * stride + v.var] * w[b, c, u, v, lane], axis=(c, u, v))

    y: Tensor = te.compute((images, blocks, size, size, 8), element, name="y")
    z = te.compute((images, blocks, 8, size, size), lambda n, b, lane, i, j: y[n, b, i, j, lane], name="z")
    return lower([z], name="convolution", inputs=[x, w])


def dilated(blocks: int, channels: int, size: int, dilation: int) -> Program:
    """3 x 3 taps that are mostly in the padding, filters in blocks of 8."""
    outside, padded = dilation, size + 2 * dilation
    x = te.placeholder((channels, size, size), name="x")
    w = te.placeholder((blocks, channels, 3, 3, 8), name="w")

    def element(c: Expr, i: Expr, j: Expr) -> Expr:
        inside = te.all(i >= outside, i < outside + size, j >= outside, j < outside + size)
        return te.select(inside, x[c, i - outside, j - outside], 0.0)

    image = te.compute((channels, padded, padded), element, name="image")
    c, u, v = (te.reduce_axis((0, n), name) for n, name in ((channels, "c"), (3, "u"), (3, "v")))

    def total(b: Expr, i: Expr, j: Expr, lane: Expr) -> Reduction:
        return te.sum(image[c, i + dilation * u.var, j + dilation * v.var] * w[b, c, u, v, lane], axis=(c, u, v))

    return lower([te.compute((blocks, size, size, 8), total, name="y")], name="dilated", inputs=[x, w])


def nest_of(program: Program, target: Target) -> Tiles:
    *_, nest = open_space(Schedule(program), target).nests
    assert isinstance(nest, Tiles)
    return nest


def choices(program: Program, target: Target) -> list[dict[str, int]]:
    """All choices with several slices."""
    population = nest_of(program, target).population()
    fitting = population.where(population.column("slices") > 1)
    return [dict(zip(fitting.names, fitting[place], strict=True)) for place in range(len(fitting))]


def scheduled(program: Program, target: Target, choice: dict[str, int]) -> Program:
    s = Schedule(program)
    nests = open_space(s, target)
    others = best(Nests(nests.nests[:-1]), target)
    nests.apply(s, [*others, tuple(choice.values())])
    return s.program


def assert_right(found: Program, target: Target, threads: int, wanted: Callable[..., Array]) -> None:
    """Against NumPy in float64, for random data."""
    random = np.random.default_rng(7)
    shapes = {p.name: [int(extent.value) for extent in p.shape if isinstance(extent, Const)] for p in found.inputs}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    (result,) = run_native(found, feeds, threads, checked=True, target=target)
    wide = wanted(*(data.astype(np.float64) for data in feeds.values()))
    assert_near(result, wide.astype(np.float32), 1e-5)


def of_product(end: str, columns: int) -> Callable[..., Array]:
    """What ``product`` computes."""

    def wanted(a: Array, b: Array, bias: Array | float = 0.0) -> Array:
        c = (a @ b.transpose(1, 0, 2).reshape(a.shape[1], -1))[:, :columns]
        ends = {"": c, "bias": np.maximum(c + bias, 0), "transposed": (c + bias).T, "first": c - c[:, :1]}
        return ends[end]

    return wanted


def of_convolution(stride: int) -> Callable[..., Array]:
    """What ``convolution`` computes."""

    def wanted(x: Array, w: Array) -> Array:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
        return np.einsum("ncijuv,bcuvl->nblij", windows, w)

    return wanted


@pytest.mark.parametrize("target", SMALL, ids=["host", "avx2"])
@given(data=st.data())
@settings(max_examples=15)
def test_products(target: Target, data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(2, 14), "rows"), data.draw(st.sampled_from([20, 32, 150, 300]), "columns")
    end, inner = data.draw(st.sampled_from(["", "bias", "transposed", "first"])), data.draw(st.sampled_from([512, 768]))
    program = product(rows, columns, inner, end)
    choice = data.draw(st.sampled_from(choices(program, target)), "choice")
    made, threads = scheduled(program, target, choice), data.draw(st.integers(1, 2), "threads")
    assert_right(made, target, threads, of_product(end, columns))


@pytest.mark.parametrize("target", SMALL, ids=["host", "avx2"])
@given(data=st.data())
@settings(max_examples=15)
def test_convolutions(target: Target, data: st.DataObject) -> None:
    images, blocks = data.draw(st.integers(1, 3), "images"), data.draw(st.integers(2, 19), "blocks")
    size, stride = data.draw(st.integers(2, 6), "size"), data.draw(st.integers(1, 3), "stride")
    program = convolution(images, blocks, 64, size, stride)
    choice = data.draw(st.sampled_from(choices(program, target)), "choice")
    made, threads = scheduled(program, target, choice), data.draw(st.integers(1, 2), "threads")
    assert_right(made, target, threads, of_convolution(stride))


def of_dilated(dilation: int) -> Callable[..., Array]:
    """What ``dilated`` computes."""

    def wanted(x: Array, w: Array) -> Array:
        image = np.pad(x, ((0, 0), (dilation, dilation), (dilation, dilation)))
        reach = 2 * dilation + 1
        windows = np.lib.stride_tricks.sliding_window_view(image, (reach, reach), axis=(1, 2))
        return np.einsum("cijuv,bcuvl->bijl", windows[..., ::dilation, ::dilation], w)

    return wanted


@pytest.mark.parametrize("target", SMALL, ids=["host", "avx2"])
@given(data=st.data())
@settings(max_examples=10)
def test_slices_leave_out_padding(target: Target, data: st.DataObject) -> None:
    blocks, size = data.draw(st.integers(2, 10), "blocks"), data.draw(st.integers(3, 7), "size")
    dilation = data.draw(st.integers(size - 1, size + 2), "dilation")
    program = dilated(blocks, 64, size, dilation)
    fitting = [choice for choice in choices(program, target) if choice["rows"] < size]
    choice = data.draw(st.sampled_from(fitting), "choice")
    made, threads = scheduled(program, target, choice), data.draw(st.integers(1, 2), "threads")
    (summing,) = (block for block in all_blocks(made.body) if block.name == "y_rf")
    assert isinstance(summing.body, Store)
    assert isinstance(summing.body.value, Select)  # the term, or what is there
    assert_right(made, target, threads, of_dilated(dilation))


@pytest.mark.parametrize("target", SMALL, ids=["host", "avx2"])
@given(data=st.data())
@settings(max_examples=8)
def test_the_larger_space_has_slices(target: Target, data: st.DataObject) -> None:
    """With blocks of tiles, steps and orders of its own."""
    end = data.draw(st.sampled_from(["", "bias"]))
    program = product(9, 96, 512, end)
    space = space_of(program, target)
    (slices,) = (place for place, knob in enumerate(space.knobs) if knob.name == "slices")
    random = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    digits = random.integers(0, space.radices, (400, len(space.radices)))
    row = digits[space.allowed(digits) & (digits[:, slices] > 0)][0]
    assert_right(space.schedule(row).program, target, 1, of_product(end, 96))


def test_sums_of_a_block_are_in_memory_and_those_of_a_slice_in_registers() -> None:
    program = product(128, 768, 3072, "bias")
    (choice,) = best(open_space(Schedule(program), ZEN3), ZEN3)
    values = dict(zip((knob.name for knob in nest_of(program, ZEN3).knobs), choice, strict=True))
    assert values["slices"] > 1
    made = scheduled(program, ZEN3, values)
    allocated = [stmt.buffer for stmt in walk(made.body) if isinstance(stmt, Alloc)]
    sums, own = (buffer for buffer in allocated if buffer.memory != LOCAL), [b for b in allocated if b.memory == LOCAL]
    assert [tuple(map(str, buffer.shape)) for buffer in sums] == [("128", "128")]
    assert [tuple(map(str, buffer.shape)) for buffer in own] == [("1", str(values["rows"]), "16")]
    parallel = [stmt for stmt in walk(made.body) if isinstance(stmt, Loop) and stmt.kind is LoopKind.PARALLEL]
    assert [str(loop.extent) for loop in parallel] == ["6"]


@pytest.mark.parametrize(("rows", "inner"), [(128, 256), (4, 3072), (64, 768)])
def test_what_is_near_has_no_slices(rows: int, inner: int) -> None:
    assert nest_of(product(rows, 768, inner), ZEN3).values("slices") == (1,)


def test_slices_are_long_and_as_many_as_divide_the_reduction() -> None:
    assert nest_of(product(128, 768, 3072), ZEN3).values("slices") == (1, 2, 3, 4, 6, 8, 12)
    assert nest_of(product(512, 768, 1000), ZEN3).values("slices") == (1,)  # steps are 8 at a time
    assert nest_of(product(512, 768, 1040), ZEN3).values("slices") == (1, 2)
    assert nest_of(convolution(2, 34, 384, 5, 3), ZEN3).values("slices") == (1, 2, 3, 4, 6, 8, 12)
    assert nest_of(convolution(2, 34, 24, 20, 3), ZEN3).values("slices") == (1,)  # 216 terms
    image, few = te.placeholder((3, 220, 220), name="image"), te.reduce_axis((0, 3), name="c")
    taps, u, v = te.placeholder((4, 3, 16, 16, 8), name="taps"), *(te.reduce_axis((0, 16), n) for n in "uv")
    y = te.compute(
        (4, 50, 50, 8),
        lambda b, i, j, lane: te.sum(
            image[few, 4 * i + u.var, 4 * j + v.var] * taps[b, few, u, v, lane], axis=(few, u, v)
        ),
        name="y",
    )
    assert nest_of(lower(y, "few"), ZEN3).values("slices") == (1,)  # three slices would be of one iteration each


def test_extents_of_run_time_have_no_slices() -> None:
    a, b = te.placeholder((te.var("n"), 3072), name="a"), te.placeholder((48, 3072, 16), name="b")
    k = te.reduce_axis((0, 3072), name="k")
    c = te.compute((te.var("n"), 768), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="c")
    assert nest_of(lower(c, "open"), ZEN3).values("slices") == (1,)


def test_cores_share_blocks_of_columns() -> None:
    """Six blocks keep no more than six cores busy."""
    nest = replace(nest_of(product(128, 768, 3072), ZEN3), parallel=True)
    population = nest.population()
    sliced = population.where((population.column("slices") == 4) & (population.column("lanes") == 16))
    few, many = (estimate(nest, sliced, replace(ZEN3, cores=cores)) for cores in (6, 24))
    np.testing.assert_allclose(few, many)


def test_orders_with_rows_outside_have_no_slices() -> None:
    """Rows would be read again with each block of columns."""
    orders = {choice["order"] for choice in choices(product(128, 768, 3072), ZEN3)}
    assert Order.ROWS_COLUMNS.value not in orders


def test_what_is_copied_has_no_slices() -> None:
    """Strips of panels that are one block of two registers."""
    target = replace(SMALL[1], l2_bytes=1 << 10)
    a, b = te.placeholder((9, 512), name="a"), te.placeholder((1, 512, 1, 16), name="b")
    k = te.reduce_axis((0, 512), name="k")
    c = te.compute((9, 16), lambda i, j: te.sum(a[i, k] * b[0, k, 0, j], axis=k), name="c")
    nest = nest_of(lower(c, "strips"), target)
    assert len(nest.values("pack")) > 1 < len(nest.values("slices"))
    population = nest.population()
    assert not ((population.column("pack") > 0) & (population.column("slices") > 1)).any()
