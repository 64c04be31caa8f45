"""Operands that are read across their rows are packed: lanes read vectors, and nothing is gathered."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sketch import programs
from tilewright import te
from tilewright.loops.ir import Loop, LoopKind
from tilewright.loops.visit import walk
from tilewright.schedule.tree import BlockRef, loops_of
from tilewright.sketch import sketch_spaces
from tilewright.space.knobs import Value
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor

ONE_CORE = replace(Target.host(), cores=1)


def last_space(output: Tensor) -> Space:
    """Of the sketch that tiles the product and does no more."""
    return sketch_spaces(programs.naive(output), ONE_CORE)[-1][1]


def decided(space: Space, **wanted: Value) -> dict[str, Value]:
    """The first decisions, but for ``wanted``, by knobs' names with underscores."""
    return {knob.name: wanted.get(knob.name.replace(".", "_"), knob.values[0]) for knob in space.knobs}


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_packed_operand_is_not_gathered(place: int) -> None:
    output = programs.product_of_rows(8, 64, 64)
    space = last_space(output)
    sizes: dict[str, Value] = {"C_vi": (1, 2, 1, 4), "C_vj": (2, 1, 1, 32), "C_vk": (4, 16)}
    schedule = space.schedule(space.digits(decided(space, **sizes, C_pack_B=place)))
    kernel = te.build(te.create_schedule(output).scheduled(schedule), threads=1)
    assert ("masked.gather" in kernel.llvm) == (place == 0)
    assert all(difference.worst < 1e-5 for difference in kernel.check().values())


def test_what_is_packed() -> None:
    """Across rows only; what a tile reads at two places, such as both rows of a pair, only as a whole."""

    def places(output: Tensor) -> dict[str, tuple[Value, ...]]:
        return {knob.name: knob.values for knob in last_space(output).knobs if ".pack." in knob.name}

    assert places(programs.matmul(16, 16, 16)) == {}
    assert places(programs.product_of_rows(16, 16, 16)) == {"C.pack.B": (0, 1, 2, 3)}
    assert places(programs.gram(16, 16)) == {"C.pack.A": (0, 1)}


def test_transposing_blocks_work_on_squares() -> None:
    x = te.placeholder((40, 48), name="X")
    turned = te.compute((48, 40), lambda i, j: x[j, i] * 2.0, name="Y")
    whole, ((_, space),) = te.create_schedule(turned), sketch_spaces(programs.naive(turned), ONE_CORE)
    schedule = space.schedule(space.sample(1, np.random.default_rng(0))[0])
    rows, lanes = loops_of(schedule.program, BlockRef("Y"))[-2:]
    assert (rows.kind, lanes.kind) == (LoopKind.UNROLLED, LoopKind.VECTORIZED)
    kernel = te.build(whole.scheduled(schedule), threads=1)
    assert "masked.gather" not in kernel.llvm
    assert kernel.check()["Y"].worst == 0.0


def test_stencils_are_not_computed_again_and_again() -> None:
    """What a stencil reads is computed twice as often as needed at most, where it is not inlined."""
    output = programs.smoothed_twice(32, 32)
    ((sketch, space),) = sketch_spaces(programs.naive(output), ONE_CORE)
    assert str(sketch) == "no rule"
    inlined = 0
    for digits in space.sample(40, np.random.default_rng(0)):
        schedule = space.schedule(digits)
        if space.describe(digits)["once.at"] == 0:
            inlined += 1
            continue
        loops = loops_of(schedule.program, BlockRef("once"))
        assert np.prod([int(str(loop.extent)) for loop in loops]) <= 2 * 34 * 34 * 2, "tails of loops run half empty"
    assert 0 < inlined < 40


def test_one_thread_is_asked_for_no_parallel_loops() -> None:
    naive, four = programs.naive(programs.softmax(16, 64)), replace(Target.host(), cores=4)
    for _, space in sketch_spaces(naive, four, threads=1):
        assert space.target == four
        assert not any(knob.name.endswith(".parallel") for knob in space.knobs)
        loops = walk(space.schedule(space.sample(1, np.random.default_rng(0))[0]).program.body)
        assert not any(isinstance(loop, Loop) and loop.kind is LoopKind.PARALLEL for loop in loops)
