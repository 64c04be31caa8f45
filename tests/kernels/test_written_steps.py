"""Steps of a contraction's reduction that are written out."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tests.closeness import assert_near
from tilewright.base.arrays import Array
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.model import best, estimate
from tilewright.kernels.nests import Tiles
from tilewright.kernels.tiling import Unroll
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Loop, LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Const, Var
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction
from tilewright.tune.spaces import kernel_space, space_of

ZEN3 = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M")
WRITING = replace(ZEN3, machine=replace(ZEN3.machine, issue=3.0, unrolled_steps=8, panels_ahead=0))
PLAIN = replace(ZEN3, machine=replace(ZEN3.machine, issue=0.0, unrolled_steps=0))


def product(rows: int, columns: int, inner: int) -> Program:
    a, b = te.placeholder((rows, inner), name="A"), te.placeholder((inner, columns), name="B")
    k = te.reduce_axis((0, inner), name="k")

    def element(i: Var, j: Var) -> Reduction:
        return te.sum(a[i, k] * b[k, j], axis=k)

    return lower(te.compute((rows, columns), element, name="C"), "product")


def in_blocks(taps: tuple[int, int], channels: int = 8) -> Program:
    """A convolution of blocks of channels; loops of one iteration are innermost if there is a single tap."""
    height, width = taps
    image = te.placeholder((3, channels, 6 + height - 1, 7 + width - 1), name="image")
    weight = te.placeholder((2, 3, channels, height, width, 8), name="weight")
    block, channel = te.reduce_axis((0, 3), "block"), te.reduce_axis((0, channels), "channel")
    ky, kx = te.reduce_axis((0, height), "ky"), te.reduce_axis((0, width), "kx")

    def element(b: Var, y: Var, x: Var, lane: Var) -> Reduction:
        tap = image[block, channel, y + ky.var, x + kx.var] * weight[b, block, channel, ky, kx, lane]
        return te.sum(tap, axis=(block, channel, ky, kx))

    return lower(te.compute((2, 6, 7, 8), element, name="total"), "convolution")


def written_out(program: Program) -> list[int]:
    """Iterations of the loops over the reduction that are written out, outermost first."""
    loops = [loop for loop in walk(program.body) if isinstance(loop, Loop) and loop.kind is LoopKind.UNROLLED]
    reduced = [loop for loop in loops if re.match(r"k(?!ind)|channel|block", loop.var.name)]
    return [int(loop.extent.value) for loop in reduced if isinstance(loop.extent, Const)]


PROGRAMS: dict[str, tuple[Callable[[], Program], list[int]]] = {
    "steps of a long loop": (lambda: product(12, 32, 64), [8]),
    "a divisor": (lambda: product(12, 32, 60), [4]),
    "a short loop": (lambda: product(12, 32, 4), [4]),
    "no power of two": (lambda: product(12, 32, 65), []),
    "one tap": (lambda: in_blocks((1, 1)), [8]),
    "taps over other rows": (lambda: in_blocks((4, 1)), [4]),
    "taps that rows slide over": (lambda: in_blocks((3, 3)), []),
    "one step": (lambda: product(12, 32, 1), []),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_written_out_and_right(name: str) -> None:
    make, expected = PROGRAMS[name]
    naive = make()
    program = schedule(Schedule(naive), WRITING).program
    assert written_out(program) == expected
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        p.name: random.standard_normal([int(str(n)) for n in p.shape]).astype(np.float32) for p in naive.inputs
    }
    (wanted,), (found,) = interpret(naive, feeds).values(), run_native(program, feeds)
    assert_near(found, wanted, 1e-5)


@pytest.mark.parametrize(("columns", "most"), [(8, 7), (16, 6)])
def test_many_rows_of_one_vector_are_not_written_out(columns: int, most: int) -> None:
    """LLVM computes the steps of many rows side by side, and then has no registers for their sums."""
    nest = open_space(Schedule(product(240, columns, 64)), WRITING).nests[-1]
    choices = nest.population()
    column = {name: choices.column(name) for name in choices.names}
    whole = column["lanes"] == columns
    written = whole & (column["unroll"] == Unroll.INNERMOST.value)
    assert column["rows"][written].max() == most
    assert column["rows"][whole & ~written].max() == (14 if columns == 8 else 6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_targets_that_do_not_gain_have_no_such_choice(name: str) -> None:
    make, _ = PROGRAMS[name]
    (nest,) = open_space(Schedule(make()), PLAIN).nests
    assert isinstance(nest, Tiles)
    assert set(nest.population().column("unroll")) == {Unroll.NOTHING.value}


def test_broadcasts_of_their_own_are_instructions() -> None:
    """Of tiles with as many multiply-adds, the one with fewer instructions for each takes less time."""
    space = open_space(Schedule(product(48, 64, 64)), WRITING)
    (nest,) = space.nests
    choices = nest.population()
    cycles = estimate(nest, choices, WRITING)
    column = {name: choices.column(name) for name in choices.names}
    fixed = (column["order"] == 0) & (column["pack"] == 0) & (column["lanes"] == 2 * WRITING.lanes(32))
    plain, written = (
        cycles[fixed & (column["rows"] == 4) & (column["unroll"] == unroll.value)][0]
        for unroll in (Unroll.NOTHING, Unroll.INNERMOST)
    )
    assert written < plain
    (chosen,) = best(space, WRITING)
    assert chosen[nest.population().names.index("unroll")] == Unroll.INNERMOST.value


@pytest.mark.parametrize("name", ["steps of a long loop", "a short loop", "taps over other rows"])
def test_the_larger_space_begins_with_the_same(name: str) -> None:
    make, expected = PROGRAMS[name]
    naive = make()
    programs: list[Program] = []
    for space in (space_of(naive, WRITING), kernel_space(naive, WRITING)):
        analytic = space.analytic()
        assert analytic is not None
        programs.append(space.schedule(analytic).program)
    assert written_out(programs[0]) == written_out(programs[1]) == expected


def test_figures() -> None:
    gaining = {cpu for cpu in ("znver3", "znver4", "sapphirerapids") if Target.parse(f"x86_64,{cpu}").machine.issue}
    assert gaining == {"znver3"}
