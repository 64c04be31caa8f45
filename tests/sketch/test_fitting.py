"""Random tiles of sketches fit into the registers, and fill some of them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sketch import programs
from tilewright.loops.ir import Loop, LoopKind
from tilewright.schedule.tree import BlockRef, loops_of
from tilewright.sketch import sketch_spaces
from tilewright.sketch.fitting import LEAST_SUMS
from tilewright.target.target import Target

ONE_CORE = replace(Target.host(), cores=1)


def registers(loops: tuple[Loop, ...], lanes: int) -> int:
    """Those that the innermost tile of a product sums up in: the loops after the last one over ``k``."""
    last = max(place for place, loop in enumerate(loops) if loop.var.name.startswith("k"))
    *rows, vector = (int(str(loop.extent)) for loop in loops[last + 1 :])
    assert loops[-1].kind is LoopKind.VECTORIZED
    return int(np.prod(rows)) * -(-vector // lanes)


def test_samples_fit_into_registers() -> None:
    lanes = ONE_CORE.lanes(32)
    for _, space in sketch_spaces(programs.naive(programs.matmul(64, 64, 64)), ONE_CORE):
        digits = space.sample(20, np.random.default_rng(0))
        assert len(digits) == 20
        assert space.allowed(digits).all()
        for one in digits:
            used = registers(loops_of(space.schedule(one).program, BlockRef("C")), lanes)
            assert LEAST_SUMS <= used <= ONE_CORE.vector_registers


def test_others_are_valid() -> None:
    """What was decided otherwise has a schedule, though no sample is like it."""
    space = sketch_spaces(programs.naive(programs.matmul(64, 64, 64)), ONE_CORE)[-1][1]
    anywhere = np.random.default_rng(0).integers(0, np.array(space.radices), (200, len(space.radices)))
    refused = anywhere[~space.allowed(anywhere)]
    assert len(refused) > 50
    space.schedule(refused[0])


@pytest.mark.parametrize("shape", [(2, 3, 8), (37, 37, 8), (2, 61, 8)])
def test_strange_extents_are_no_trouble(shape: tuple[int, int, int]) -> None:
    """There may be no tile of four registers."""
    for _, space in sketch_spaces(programs.naive(programs.matmul(*shape)), ONE_CORE):
        found = space.sample(10, np.random.default_rng(0))
        assert len(found) == 10
        assert space.allowed(found).all()
