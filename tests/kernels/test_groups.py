"""Filters split by group: the same memory, the same numbers, and tiles of several filters."""

import numpy as np
import pytest

from tilewright import te
from tilewright.kernels.groups import split_groups
from tilewright.kernels.relayout import blocked, relayout
from tilewright.ops.operator import require
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Tensor


def grouped(channels: int, filters: int, groups: int) -> tuple[Tensor, list[Tensor]]:
    """A convolution with a bias, added to another value; the inputs."""
    x = te.placeholder((1, channels, 7), name="x")
    w = te.placeholder((filters, channels // groups, 3), name="w")
    bias, other = te.placeholder((filters,), name="b"), te.placeholder((1, filters, 7), name="other")
    (y,) = require("Conv").apply([x, w, bias], {"group": groups, "pads": (1, 1)})
    (y,) = require("Add").apply([y, other], {})
    return y, [x, w, bias, other]


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "shape"),
    [
        (4, 6, 2, (1, 2, 3, 7)),
        (9, 12, 3, (1, 3, 4, 7)),
        (4, 6, 1, (1, 6, 7)),
        (6, 12, 6, (1, 12, 7)),
        (6, 6, 3, (1, 3, 2, 7)),
    ],
)
def test_groups_are_an_axis(channels: int, filters: int, groups: int, shape: tuple[int, ...]) -> None:
    y, inputs = grouped(channels, filters, groups)
    made = relayout([y], split_groups([y], {}))
    assert tuple(int(str(extent)) for extent in made[y].shape) == shape
    random = np.random.default_rng(filters)
    arrays = {t: random.standard_normal([int(str(e)) for e in t.shape]).astype(np.float32) for t in inputs}
    (expected,), (result,) = evaluate([y], arrays), evaluate([made[y]], {made.get(t, t): arrays[t] for t in inputs})
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("filters", "width", "shape"),
    [
        (8, 2, (1, 2, 2, 7, 2)),
        (24, 4, (1, 2, 3, 7, 4)),
        (6, 2, (1, 3, 7, 2)),
        (8, 4, (1, 2, 7, 4)),
        (8, 8, (1, 1, 7, 8)),
    ],
)
def test_blocks_of_a_group_are_an_axis(filters: int, width: int, shape: tuple[int, ...]) -> None:
    y, inputs = grouped(4, filters, 2)
    layouts = {y: blocked(3, width)}
    before, made = relayout([y], layouts), relayout([y], split_groups([y], layouts))
    assert tuple(int(str(extent)) for extent in made[y].shape) == shape
    random = np.random.default_rng(filters)
    arrays = {t: random.standard_normal([int(str(e)) for e in t.shape]).astype(np.float32) for t in inputs}
    feeds = ({m.get(t, t): arrays[t] for t in inputs} for m in (before, made))
    (expected,), (result,) = (evaluate([m[y]], feed) for m, feed in zip((before, made), feeds, strict=True))
    np.testing.assert_array_equal(result.reshape(expected.shape), expected)
