"""What convolutions leave out as padding: counted, and computed without a change to the result."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.ops.nodes import NodeCase, check
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.model import best
from tilewright.kernels.nests import Nests
from tilewright.kernels.padding import Sliding, slidings
from tilewright.kernels.relayout import blocked, relayout
from tilewright.loops.lower import lower
from tilewright.ops.convolution import conv
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.symbolic.expr import Extent
from tilewright.target.target import Target
from tilewright.tensor import build as te

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
