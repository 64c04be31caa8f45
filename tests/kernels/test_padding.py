"""What convolutions leave out as padding: counted, and computed without a change to the result."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.backend.cpu.support import run_native
from tests.ops.nodes import NodeCase, check
from tilewright.base.arrays import Array
from tilewright.base.errors import ScheduleError
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.model import best, estimate
from tilewright.kernels.nests import Nests, Tiles
from tilewright.kernels.padding import Sliding, slidings
from tilewright.kernels.relayout import blocked, relayout
from tilewright.kernels.tiling import Unroll
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Block
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops.convolution import conv
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.space.population import Choice, Population
from tilewright.symbolic.expr import Expr, Extent, Var
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction
from tilewright.tune.spaces import kernel_space, space_of

TARGET = Target.parse("x86_64,haswell")
random = np.random.default_rng(7)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-1, 1, shape).astype(np.float32)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.integers(0, 9), st.integers(1, 4))
def test_shares_are_counted(outputs: int, taps: int, stride: int, dilation: int, pad: int, group: int) -> None:
    extent = 5
    inside = frozenset({(stride, dilation, -pad), (-stride, -dilation, extent - 1 + pad)})
    sliding = Sliding(0, outputs, taps, (inside,))
    kept = 0
    for i in range(outputs):
        first = i // group * group
        for k in range(taps):
            places = [j * stride + k * dilation - pad for j in range(first, first + group)]
            kept += max(places) >= 0 and min(places) < extent
    assert sliding.share(group) == pytest.approx(kept / (outputs * taps))


def phases(outputs: int, taps: int, stride: int, pad: int, extent: int) -> tuple[Program, Block]:
    """Output ``y * stride + p`` adds ``taps`` neighbours from input ``y + (p + pad) // stride - 1`` on."""
    data, w = te.placeholder((8, extent), name="data"), te.placeholder((stride, 8, taps, 16), name="w")
    padded = te.compute(
        (8, outputs + taps + 1),
        lambda c, x: te.select((x >= 1) & (x < extent + 1), data[c, x - 1], 0.0),
        name="padded",
    )
    ci, k = te.reduce_axis((0, 8), name="ci"), te.reduce_axis((0, taps), name="k")

    def element(p: Var, y: Var, lane: Var) -> Reduction:
        return te.sum(padded[ci, y + k + (p + pad) // stride] * w[p, ci, k, lane], axis=(ci, k))

    program = lower([te.compute((stride, outputs, 16), element, name="total")], inputs=[data, w])
    return program, list(all_blocks(program.body))[-1]


@given(st.integers(2, 7), st.integers(1, 4), st.integers(2, 3), st.integers(0, 2), st.integers(1, 6), st.integers(1, 3))
def test_shares_of_phases_are_counted(outputs: int, taps: int, stride: int, pad: int, extent: int, group: int) -> None:
    pad = min(pad, stride - 1)
    found = slidings(*phases(outputs, taps, stride, pad, extent)).get(1)
    kept, most = 0, 0
    for p in range(stride):
        read = set[int]()
        for i in range(outputs):
            first = i // group * group
            for k in range(taps):
                places = [j + k + (p + pad) // stride for j in range(first, first + group)]
                kept += max(places) >= 1 and min(places) < extent + 1
                own = i + k + (p + pad) // stride
                read |= {own} if 1 <= own < extent + 1 else set()
        most = max(most, len(read))
    share = 1.0 if found is None else found.share(group)
    assert share == pytest.approx(kept / (outputs * taps * stride))
    assert found is None or found.positions == most


ZEN4 = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")


def small_image(size: int = 7) -> Schedule:
    """A convolution in blocks of channels; of 7 x 7 places, two of 15 taps along rows read padding."""
    x, w = te.placeholder((32, size, size), name="x"), te.placeholder((2, 32, 3, 3, 16), name="w")

    def zeros_around(c: Var, y: Var, z: Var) -> Expr:
        return te.select((y >= 1) & (y <= size) & (z >= 1) & (z <= size), x[c, y - 1, z - 1], 0.0)

    padded = te.compute((32, size + 2, size + 2), zeros_around, name="padded")
    ci, ky, kx = te.reduce_axis((0, 32), "ci"), te.reduce_axis((0, 3), "ky"), te.reduce_axis((0, 3), "kx")

    def element(block: Var, y: Var, z: Var, lane: Var) -> Reduction:
        return te.sum(padded[ci, y + 2 * ky.var, z + 2 * kx.var] * w[block, ci, ky, kx, lane], axis=(ci, ky, kx))

    return Schedule(lower([te.compute((2, size - 2, size - 2, 16), element, name="total")], inputs=[x, w]))


def tiles_of(s: Schedule, **wanted: int) -> tuple[Tiles, Choice]:
    """The sums of ``s``, scheduled by these knobs, after the rest, by the model."""
    nests = open_space(s, ZEN4)
    *others, tiles = nests.nests
    assert isinstance(tiles, Tiles)
    choice = tuple(wanted.get(knob.name, knob.values[0]) for knob in tiles.knobs)
    nests.apply(s, [*best(Nests(tuple(others)), ZEN4), choice])
    return tiles, choice


def test_each_row_leaves_out_its_own_taps_where_these_are_written_out() -> None:
    written = Unroll.INNERMOST.value
    together, own, model = small_image(), small_image(), schedule(small_image(), ZEN4)
    tiles, first = tiles_of(together, rows=5, panels=2)
    _, second = tiles_of(own, rows=5, panels=2, unroll=written)
    assert 's.skip_padding("total", (2, 1, 5, 16, 1, 1, 1))' in str(together.trace)
    assert 's.skip_padding("total", (2, 1, 1, 16, 1, 1, 1))' in str(own.trace)
    assert str(model.trace) == str(own.trace)
    many, few = estimate(tiles, Population(tiles.population().names, np.array([first, second])), ZEN4)
    assert few < many
    feeds: dict[str, Array] = {"x": f(32, 7, 7), "w": f(2, 32, 3, 3, 16)}
    expected = interpret(small_image().program, feeds)["total"]
    for s in (together, own):
        np.testing.assert_allclose(run_native(s.program, feeds)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "rows"), [(7, 4), (13, 11)])
def test_taps_are_written_out_for_whole_rows_and_few_registers(size: int, rows: int) -> None:
    """Of a part of a row, which taps are outside is another for each part."""
    with pytest.raises(ScheduleError, match="do not go together"):
        tiles_of(small_image(size), rows=rows, panels=2, unroll=Unroll.INNERMOST.value)


@pytest.mark.parametrize(("most", "values"), [(3, (0, Unroll.INNERMOST.value)), (2, (0,))])
def test_few_taps_are_written_out(most: int, values: tuple[int, ...]) -> None:
    target = replace(ZEN4, machine=replace(ZEN4.machine, unrolled_taps=most))
    *_, tiles = open_space(small_image(), target).nests
    assert isinstance(tiles, Tiles)
    assert tiles.values("unroll") == values


def test_the_larger_space_begins_with_taps_that_are_written_out() -> None:
    """Rows that leave out their own taps read no column of padding, so it is not made."""
    naive = small_image().program
    for space in (space_of(naive, ZEN4), kernel_space(naive, ZEN4)):
        analytic = space.analytic()
        assert analytic is not None
        assert "padded: f32[32, 7, 7]" in str(space.schedule(analytic).program)


def dilated(dilation: int, size: int = 16) -> Schedule:
    x, w = te.placeholder((1, 8, size, size), name="x"), te.placeholder((8, 8, 3, 3), name="w")
    return Schedule(lower([conv(x, w, pads=[dilation] * 4, dilations=[dilation] * 2)], inputs=[x, w]))


def test_large_padding_is_skipped_and_little_is_not() -> None:
    assert "skip_padding" in str(schedule(dilated(12), TARGET).trace)
    assert "skip_padding" not in str(schedule(dilated(1, 32), TARGET).trace)


@pytest.mark.parametrize("rows", [24, 4])
def test_taps_are_outermost_only_if_they_are_tested(rows: int) -> None:
    """More than a tenth of the terms are padding for a few places, but not for 24."""
    x, w = te.placeholder((1, 32, 24, 24), name="x"), te.placeholder((16, 32, 3, 7), name="w")
    output = conv(x, w, pads=[1, 9, 2, 3], dilations=[1, 2])
    target = Target.parse("x86_64,graniterapids,l1=48K,l2=2M,l3=64M")
    s = Schedule(lower([relayout([output], {output: blocked(4, 16)})[output]], inputs=[x, w]))
    nests = open_space(s, target)
    *others, tiles = nests.nests
    wanted = {"lanes": 16, "rows": rows, "panels": 1}
    choice = tuple(wanted.get(knob.name, knob.values[0]) for knob in tiles.knobs)
    nests.apply(s, [*best(Nests(tuple(others)), target), choice])
    trace = str(s.trace)
    assert ("skip_padding" in trace) is (rows == 4)
    assert ('"k0", "k1", "ci"' in trace) is (rows == 4)


def test_an_axis_of_unknown_extent_has_no_share() -> None:
    x, w = te.placeholder((1, 8, Extent("n"), 16), name="x"), te.placeholder((8, 8, 3, 3), name="w")
    program = lower([conv(x, w, pads=[12] * 4, dilations=[12] * 2)], inputs=[x, w])
    *_, block = all_blocks(program.body)
    assert [sliding.outputs for sliding in slidings(program, block).values()] == [16]


CONVOLUTIONS: Sequence[NodeCase] = [
    NodeCase("Conv", [f(1, 32, 16, 16)], {"pads": [12] * 4, "dilations": [12, 12]}, [f(32, 32, 3, 3)]),
    NodeCase("Conv", [f(2, 16, 8, 9)], {"pads": [6, 4, 5, 7], "dilations": [6, 5]}, [f(48, 16, 3, 3), f(48)]),
    NodeCase("Conv", [f(1, 3, 12, 12)], {"pads": [9] * 4, "dilations": [5, 3], "strides": [1, 2]}, [f(20, 3, 3, 5)]),
    NodeCase("Conv", [f(1, 5, 40)], {"pads": [32, 32], "dilations": [32]}, [f(4, 5, 3)]),
    NodeCase("Conv", [f(1, 16, 4, 5, 6)], {"pads": [2, 3, 4, 2, 3, 4], "dilations": [2, 3, 4]}, [f(16, 16, 3, 3, 3)]),
    NodeCase("Conv", [f(1, 16, 8, 8), f(32, 16, 3, 3)], {"pads": [7] * 4, "dilations": [7, 7]}),
    NodeCase("Conv", [f(2, 24, 7, 7)], {"pads": [1] * 4, "dilations": [2, 2]}, [f(40, 24, 3, 3), f(40)]),
    NodeCase("Conv", [f(1, 24, 7, 5)], {"pads": [2, 3, 2, 1], "strides": [1, 2]}, [f(32, 24, 5, 4)]),
    NodeCase("ConvTranspose", [f(2, 24, 4, 4)], {"pads": [1] * 4, "strides": [2, 2]}, [f(24, 32, 4, 4)]),
    NodeCase("ConvTranspose", [f(1, 16, 3, 5)], {"pads": [1, 0, 2, 1], "strides": [3, 2]}, [f(16, 32, 6, 4)]),
]
ONLY_SOME_TAPS: Sequence[NodeCase] = [
    NodeCase("Conv", [f(1, 32, 6, 6)], {"pads": [8] * 4, "dilations": [8, 8]}, [f(32, 32, 3, 3), f(32)]),
    NodeCase("Conv", [f(1, 16, 2, 2)], {"pads": [2] * 4}, [f(16, 16, 5, 5)]),
    NodeCase("Conv", [f(1, 16, 3, 9)], {"pads": [4, 1, 0, 9], "dilations": [4, 1]}, [f(16, 16, 2, 3)]),
    NodeCase("Conv", [f(1, 16, 1, 8)], {"pads": [1] * 4, "strides": [1, 2], "group": 4}, [f(24, 4, 3, 3)]),
]


@pytest.mark.parametrize("case", [*CONVOLUTIONS, *ONLY_SOME_TAPS], ids=str)
def test_results_are_those_of_onnx_runtime(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize("case", ONLY_SOME_TAPS, ids=str)
def test_taps_that_are_always_outside_are_no_weights(case: NodeCase) -> None:
    executable = tilewright.compile(case.model()).compiled.executable
    assert sum(array.nbytes for array in executable.constants) < sum(
        array.nbytes for array in case.constants if array is not None
    )


@pytest.mark.parametrize(("taps", "dilation", "stride"), [(3, 1, 1), (5, 1, 1), (5, 6, 1), (9, 2, 1), (8, 1, 2)])
def test_lanes_of_windows_are_outputs_however_many_taps_there_are(taps: int, dilation: int, stride: int) -> None:
    """Taps and outputs both lie side by side: partial results in lanes of taps would fill a part of a register."""
    x, w = te.placeholder((1, 2, 32, 32), name="x"), te.placeholder((2, 1, taps, taps), name="w")
    pad = dilation * (taps // 2)
    result = conv(x, w, group=2, pads=[pad] * 4, dilations=[dilation] * 2, strides=[stride] * 2)
    assert "rfactor" not in str(schedule(Schedule(lower([result], inputs=[x, w])), TARGET).trace)
