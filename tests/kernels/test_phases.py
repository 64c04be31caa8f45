"""Places split by their phase: the same memory, the same numbers."""

import numpy as np
import pytest

from tilewright import te
from tilewright.kernels.packing import constant_layouts, pack
from tilewright.kernels.phases import split_phases
from tilewright.kernels.relayout import blocked, relayout, spread
from tilewright.ops.operator import require
from tilewright.schedule.index_map import IndexMap
from tilewright.target.machine import Machine
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Tensor


def transposed(stride: int, size: int, spatial: int, added: bool = False) -> tuple[Tensor, list[Tensor]]:
    """A transposed convolution of stride by stride from 4 to 4 channels, perhaps with its input added; the inputs."""
    x = te.placeholder((1, 4, size, size), name="x")
    w = te.placeholder((4, stride, stride, 4, 2, 2), name="w")
    options = {"kernel": (2 * stride,) * 2, "dilations": (1, 1), "begins": (1, 1), "spatial": (spatial, spatial)}
    (y,) = require("PhaseConv").apply([x, w], options)
    (y,) = require("Add").apply([y, x], {}) if added else (y,)
    return y, [x, w]


@pytest.mark.parametrize(
    ("stride", "spatial", "places"), [(2, 6, (3, 2, 3, 2)), (3, 9, (3, 3, 3, 3)), (2, 7, (7, 7)), (1, 4, (4, 4))]
)
def test_what_divides_is_split(stride: int, spatial: int, places: tuple[int, ...]) -> None:
    y, (x, w) = transposed(stride, 3, spatial)
    _check(y, x, w, places)


def test_what_comes_before_the_sum_is_not_split() -> None:
    """Though it looks alike: the input has the shape of the output, and is read by what follows, too."""
    y, (x, w) = transposed(2, 4, 4, added=True)
    assert len(_check(y, x, w, (2, 2, 2, 2))[x].results) == 5


def _check(y: Tensor, x: Tensor, w: Tensor, places: tuple[int, ...]) -> dict[Tensor, IndexMap]:
    layouts = dict(split_phases([y], spread([y], {x: blocked(4, 2), y: blocked(4, 2)}, Machine())))
    layouts |= constant_layouts([y], [w], layouts, lambda *_: 2, lambda *_: None)
    made = relayout([y], layouts)
    assert tuple(int(str(extent)) for extent in made[y].shape) == (1, 2, *places, 2)
    random = np.random.default_rng(len(places))
    arrays = {t: random.standard_normal([int(str(e)) for e in t.shape]).astype(np.float32) for t in (x, w)}
    (expected,) = evaluate([y], arrays)
    (result,) = evaluate([made[y]], {made[t]: pack(arrays[t], layouts[t]) for t in (x, w)})
    packed = pack(expected, blocked(4, 2))
    np.testing.assert_allclose(result.reshape(packed.shape), packed, rtol=1e-5, atol=1e-5)
    return layouts
