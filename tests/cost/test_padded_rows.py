"""Large windows along the lanes slide over padded data; small ones, and those of blocks, select at each tap."""

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tilewright import te
from tilewright.cost.analytic import schedule
from tilewright.loops.lower import lower
from tilewright.ops.operator import require
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=1")


@pytest.mark.parametrize(("taps", "blocks"), [(3, 2), (7, 3)])
def test_padding_is_made_once_for_many_taps(taps: int, blocks: int) -> None:
    x, w = te.placeholder((1, 4, 20, 20), name="x"), te.placeholder((4, 1, taps, taps), name="w")
    (y,) = require("Conv").apply([x, w], {"group": 4, "pads": (taps // 2,) * 4})
    program = schedule(Schedule(lower([y], name="kernel", inputs=[x, w])), TARGET).program
    assert len(all_blocks(program.body)) == blocks  # padding, the sum, and the copy from a tile
    random = np.random.default_rng(taps)
    arrays = {t.name: random.standard_normal([int(str(e)) for e in t.shape]).astype(np.float32) for t in (x, w)}
    padded = np.pad(arrays["x"], ((0, 0), (0, 0), (taps // 2,) * 2, (taps // 2,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), axis=(2, 3))
    expected = np.einsum("ncyxij,cij->ncyx", windows, arrays["w"][:, 0])
    np.testing.assert_allclose(run_native(program, arrays)[0], expected, rtol=1e-4, atol=1e-4)
