"""te programs in other layouts compute the same: the te evaluator before and after, over random programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.closeness import assert_near
from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.base.errors import InternalError
from tilewright.kernels.packing import constant_layouts, pack
from tilewright.kernels.places import merge_places
from tilewright.kernels.relayout import blocked, dissolve_views, relayout, spread
from tilewright.loops.extern import extern, store
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Buffer, Call, Callee, Region
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops.operator import require
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import const
from tilewright.target.machine import Machine
from tilewright.target.target import Target
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Compute, Tensor, inputs_of

Array = NDArray[np.float32]


def random_array(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def unpacked(packed: Array, index_map: IndexMap, shape: tuple[int, ...]) -> Array:
    """What ``packed`` holds, read through the map point by point."""
    result = np.empty(shape, packed.dtype)
    for point in np.ndindex(*shape):
        at = index_map.apply(tuple(map(const, point)))
        result[point] = packed[tuple(int(str(i)) for i in at)]
    return result


@st.composite
def programs(draw: st.DrawFn) -> tuple[Tensor, dict[Tensor, Array]]:
    """A convolution (any group, stride, padding), then elementwise steps or a pool; channels need not fill blocks."""
    group = draw(st.sampled_from([1, 1, 2, 4]))
    channels, filters = (group * draw(st.integers(1, 6)) for _ in range(2))
    kernel, stride, pad = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
    size = draw(st.integers(3, 5))
    x = te.placeholder((1, channels, size, size), name="x")
    w = te.placeholder((filters, channels // group, kernel, kernel), name="w")
    b = te.placeholder((filters,), name="b")
    options = {"strides": (stride,) * 2, "pads": (pad,) * 4, "group": group}
    (y,) = require("Conv").apply([x, w, b] if draw(st.booleans()) else [x, w], options)
    arrays = {t: random_array(*(int(str(e)) for e in t.shape)) for t in (x, w, b)}
    for name in draw(st.lists(st.sampled_from(["Relu", "Add", "Mul", "ReduceMean", "MaxPool"]), max_size=3)):
        match name:
            case "Add" | "Mul":
                other = te.placeholder((filters, 1, 1) if name == "Mul" else y.shape, name=f"p{len(arrays)}")
                arrays[other] = random_array(*(int(str(e)) for e in other.shape))
                (y,) = require(name).apply([y, other], {})
            case "ReduceMean":
                (y,) = require("ReduceMean").apply([y], {"axes": (2, 3)})
            case "MaxPool":
                (y, *_) = require("MaxPool").apply([y], {"kernel_shape": (1, 1)})
            case _:
                (y,) = require(name).apply([y], {})
    return y, arrays


@given(programs(), st.sampled_from([2, 3, 4]), st.data())
@settings(max_examples=40, deadline=None)
def test_the_meaning_stays(program: tuple[Tensor, dict[Tensor, Array]], lanes: int, data: st.DataObject) -> None:
    output, arrays = program
    used = [t for t in arrays if t in _placeholders(output)]
    rank4 = [t for t in used if t.ndim == 4 and t.name != "w"]
    layouts = {t: blocked(4, lanes) for t in rank4 if data.draw(st.booleans())}
    if data.draw(st.booleans()):
        layouts[output] = blocked(4, lanes)
    layouts = dict(merge_places([output], spread([output], layouts, Machine()), Target.parse("x86_64,znver4")))
    constants = [t for t in used if t not in layouts]
    steps = data.draw(st.sampled_from([0, 2, 8]))
    layouts |= constant_layouts([output], constants, layouts, lambda *_: lanes, lambda *_: None, steps)
    made = relayout([output], layouts)
    feeds = {made[t]: pack(arrays[t], layouts[t]) if t in layouts else arrays[t] for t in used}
    (result,) = evaluate([made[output]], feeds)
    if output in layouts:
        result = unpacked(result, layouts[output], tuple(int(str(e)) for e in output.shape))
    (expected,) = evaluate([output], {t: arrays[t] for t in used})
    assert_near(result, expected, 2e-5)


def _placeholders(output: Tensor) -> set[Tensor]:
    seen, stack = {output}, [output]
    while stack:
        for tensor in inputs_of(stack.pop().op):
            if tensor not in seen:
                seen.add(tensor)
                stack.append(tensor)
    return seen


def test_no_read_leaves_its_buffer() -> None:
    """The interpreter refuses an access out of bounds; lanes beyond the channels must not make one."""
    x, v = te.placeholder((1, 5, 2, 2), name="x"), te.placeholder((5,), name="v")
    y = te.compute((1, 5, 2, 2), lambda n, c, i, j: x[n, c, i, j] + v[c], name="y")
    made = relayout([y], {x: blocked(4, 4), y: blocked(4, 4)})
    program = lower([made[y]], inputs=[made[x], made[v]])
    a, b = random_array(1, 5, 2, 2), random_array(5)
    result = interpret(program, {"x": pack(a, blocked(4, 4)), "v": b})["y"]
    np.testing.assert_array_equal(unpacked(result, blocked(4, 4), a.shape), a + b[:, None, None])


def test_weights_are_read_in_the_order_in_which_they_lie() -> None:
    x, w = te.placeholder((1, 32, 8, 8), name="x"), te.placeholder((64, 32, 3, 3), name="w")
    (y,) = require("Conv").apply([x, w], {"pads": (1,) * 4})
    known = spread([y], {x: blocked(4, 16), y: blocked(4, 16)}, Machine())
    packings = constant_layouts([y], [w], known, lambda *_: 16, lambda *_: None)
    assert str(packings[w]) == "d0, d1, d2, d3 -> d0 // 16, d1 // 16, d2, d3, d1 % 16, d0 % 16"
    op = relayout([y], known | packings)[y].op
    assert isinstance(op, Compute)
    assert [axis.name for axis in op.axes] == ["i0", "i1_o", "i2", "i3", "i1_i"]
    assert [axis.name for axis in op.reduce_axis] == ["ci_o", "k0", "k1", "ci_i"]


@pytest.mark.parametrize(
    ("channels", "taps", "group", "expected"),
    [
        (32, (3, 3), 1, "d0 // 16, d1 // 8, d2, d3, d1 % 8, d0 % 16"),
        (12, (3, 1), 1, "d0 // 16, d1 // 4, d2, d3, d1 % 4, d0 % 16"),
        (64, (1, 3), 2, "d0 // 16, d1 // 8, d2, d3, d1 % 8, d0 % 16"),
        (3, (3, 3), 1, "d0 // 16, d1, d2, d3, d0 % 16"),  # no steps to write out
        (32, (1, 1), 1, "d0 // 16, d1, d2, d3, d0 % 16"),  # the channels are innermost
    ],
)
def test_channels_of_plain_data_are_in_steps(channels: int, taps: tuple[int, int], group: int, expected: str) -> None:
    """Rows slide over taps, so that what is written out are channels: all taps of eight of them follow each other."""
    x = te.placeholder((1, channels, 8, 8), name="x")
    w = te.placeholder((64, channels // group, *taps), name="w")
    (y,) = require("Conv").apply([x, w], {"pads": (1,) * 4, "group": group})
    known = spread([y], {y: blocked(4, 16)}, Machine())
    for steps in (8, 0):
        packings = constant_layouts([y], [w], known, lambda *_: 16, lambda *_: None, steps)
        assert str(packings[w]) == f"d0, d1, d2, d3 -> {expected if steps else 'd0 // 16, d1, d2, d3, d0 % 16'}"


def test_blocks_of_data_come_before_steps() -> None:
    x, w = te.placeholder((1, 32, 8, 8), name="x"), te.placeholder((64, 32, 3, 3), name="w")
    (y,) = require("Conv").apply([x, w], {"pads": (1,) * 4})
    known = spread([y], {x: blocked(4, 16), y: blocked(4, 16)}, Machine())
    packings = constant_layouts([y], [w], known, lambda *_: 16, lambda *_: None, 8)
    assert str(packings[w]) == "d0, d1, d2, d3 -> d0 // 16, d1 // 16, d2, d3, d1 % 16, d0 % 16"


def test_a_transposed_constant_is_read_where_it_lies() -> None:
    a, b = te.placeholder((4, 8), name="a"), te.placeholder((16, 8), name="b")
    (product,) = require("Gemm").apply([a, b], {"transpose_b": True})
    (direct,) = dissolve_views([product], [b])
    assert inputs_of(direct.op) == (a, b)
    packings = constant_layouts([direct], [b], {}, lambda *_: 4, lambda *_: None)
    assert str(packings[b]) == "d0, d1 -> d0 // 4, d1, d0 % 4"


def test_what_has_no_functional_form_reads_plain_tensors_only() -> None:
    x = te.placeholder((4, 6), name="x")
    (y,) = extern([(4, 6)], [x], lambda ins, outs: store(outs[0], (0, 0), ins[0][0, 0]), dtype=[f32])
    with pytest.raises(InternalError, match="no functional form"):
        relayout([y], {x: blocked(2, 2)})


def test_a_kernel_takes_a_whole_buffer_in_another_shape() -> None:
    a = te.placeholder((6,), name="a")
    kernel = lower([te.compute((6,), lambda i: a[i] * 2.0, name="b")], name="double")
    x, y = (Buffer(name, f32, (const(2), const(3))) for name in "xy")
    regions = tuple(Region(b, ((const(0), const(2)), (const(0), const(3)))) for b in (x, y))
    main = Program("main", (x, y), Call(Callee.KERNEL, "double", regions), (), 1)
    values = random_array(2, 3)
    result = interpret(main, {"x": values}, programs={"double": kernel})["y"]
    np.testing.assert_array_equal(result, values * 2)


def test_padding_of_packed_constants_is_zero() -> None:
    array = random_array(3, 5)
    panels = blocked(2, 4)
    packed = pack(array, panels)
    assert packed.shape == (3, 2, 4)
    np.testing.assert_array_equal(packed.reshape(3, 8)[:, :5], array)
    np.testing.assert_array_equal(packed.reshape(3, 8)[:, 5:], 0)
