"""Windows of many taps in blocks of channels: what is read often is padded first; else taps are written out."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.ops.nodes import NodeCase, check
from tilewright.compilation import Compiled

random = np.random.default_rng(5)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-1, 1, shape).astype(np.float32)


def depthwise(channels: int, size: Sequence[int], taps: int, dilation: int = 1) -> NodeCase:
    pads = [(taps - 1) * dilation // 2] * (2 * len(size))
    attributes = {"group": channels, "pads": pads, "dilations": [dilation] * len(size)}
    return NodeCase("Conv", [f(1, channels, *size)], attributes, [f(channels, 1, *[taps] * len(size))], tolerance=1e-4)


OFTEN = [depthwise(16, (6, 6, 6), 7), depthwise(32, (20, 20), 9), depthwise(48, (28, 28), 7)]
SELDOM = [depthwise(32, (7, 7), 7), depthwise(16, (9, 8), 7, dilation=2)]
OTHERS = [
    NodeCase("MaxPool", [f(1, 32, 21, 20)], {"kernel_shape": [5, 7], "pads": [2, 3, 2, 3], "strides": [2, 1]}),
    NodeCase("AveragePool", [f(1, 32, 12, 12, 12)], {"kernel_shape": [4, 4, 4], "pads": [2] * 6, "strides": [2] * 3}),
    NodeCase("Conv", [f(1, 16, 16, 300)], {"group": 16, "pads": [0, 20] * 2}, [f(16, 1, 1, 41)], tolerance=1e-4),
    depthwise(5, (12, 30), 7),
]


@pytest.mark.parametrize("case", [*OFTEN, *SELDOM, *OTHERS], ids=str)
def test_results_are_those_of_onnx_runtime(case: NodeCase) -> None:
    check(case)


def compiled(case: NodeCase) -> Compiled:
    target = "x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=1"
    return tilewright.compile(case.model(), target=target, threads=1).compiled


def traces(case: NodeCase) -> str:
    return "\n".join(str(kernel.schedule.trace) for kernel in compiled(case).kernels)


def test_strides_are_those_of_blocks() -> None:
    """Else each tap of each lane would be gathered."""
    attributes: dict[str, object] = {"group": 32, "strides": [2, 2], "pads": [3] * 4}
    case = NodeCase("Conv", [f(1, 32, 56, 56)], attributes, [f(32, 1, 7, 7)])
    assert [how.name for _, how in compiled(case).choices.ways()] == ["direct, in blocks"]


@pytest.mark.parametrize("case", OFTEN, ids=str)
def test_data_that_is_read_often_is_padded_first(case: NodeCase) -> None:
    assert 'compute_inline("padded")' not in traces(case)


def test_taps_in_the_padding_are_left_out() -> None:
    """More than half of them, of 7 x 7 x 7 in an image of 6 x 6 x 6."""
    assert "skip_padding" in traces(OFTEN[0])


@pytest.mark.parametrize(("dilation", "is_kept"), [(2, True), (3, False)])
def test_small_windows_of_rows_are_padded_if_lanes_are_then_side_by_side(dilation: int, is_kept: bool) -> None:
    """With a stride of 2, every second element is read if taps are an even number of elements apart."""
    attributes = {"group": 5, "strides": [2, 2], "dilations": [dilation] * 2, "pads": [4] * 4}
    case = NodeCase("Conv", [f(1, 5, 40, 66)], attributes, [f(5, 1, 5, 5)], tolerance=1e-4)
    check(case)
    assert ('compute_inline("padded")' not in traces(case)) == is_kept


@pytest.mark.parametrize("case", SELDOM, ids=str)
def test_taps_along_rows_are_written_out(case: NodeCase) -> None:
    trace = traces(case)
    assert 'compute_inline("padded")' in trace
    assert 's.unroll("k1")' in trace
    assert 's.unroll("k0")' not in trace
