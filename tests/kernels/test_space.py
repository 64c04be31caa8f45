"""Spaces: candidates apply, keep the meaning, and are refused before anything changes if they are not of the space."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best
from tilewright.kernels.nests import fits
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr, const
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,haswell")


def matmul() -> Program:
    a, b = te.placeholder((14, 3), name="a"), te.placeholder((3, 19), name="b")
    k = te.reduce_axis((0, 3), name="k")
    product = te.compute((14, 19), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    return lower([te.compute((14, 19), lambda i, j: product[i, j] + 1.0, name="result")], inputs=[a, b])


def spread(place: Callable[[Expr, Expr], tuple[Expr, ...]]) -> Program:
    """A product that is read at other places than it is made at."""
    a, b = te.placeholder((40, 3), name="a"), te.placeholder((3, 19), name="b")
    k = te.reduce_axis((0, 3), name="k")
    product = te.compute((40, 19), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    return lower([te.compute((40, 19), lambda i, j: product[place(i, j)] + 1.0, name="result")], inputs=[a, b])


SPREAD = (
    spread(lambda i, _: (i, const(0))),
    spread(lambda _, j: (const(2), j)),
    spread(lambda _i, _j: (const(2), const(2))),
)


def depthwise() -> Program:
    x, w = te.placeholder((6, 8), name="x"), te.placeholder((3, 8), name="w")
    k = te.reduce_axis((0, 3), name="k")

    def padded(i: Expr, c: Expr) -> Expr:
        return te.select((i >= 1) & (i < 7), x[i - 1, c], 0.0)

    return lower([te.compute((6, 8), lambda i, c: te.sum(padded(i + k, c) * w[k, c], axis=k), name="y")], inputs=[x, w])


def softmax() -> Program:
    x = te.placeholder((4, 24), name="x")
    k = te.reduce_axis((0, 24), name="k")
    total = te.compute((4, 1), lambda i, _: te.sum(te.exp(x[i, k]), axis=k), name="total")
    return lower([te.compute((4, 24), lambda i, j: te.exp(x[i, j]) / total[i, 0], name="y")], inputs=[x])


@pytest.mark.parametrize("program", [matmul(), depthwise(), softmax(), *SPREAD])
def test_candidates_keep_the_meaning(program: Program) -> None:
    random = np.random.default_rng(0)
    count = len(program.params) - program.outputs
    arrays = {
        p.name: random.standard_normal([int(str(extent)) for extent in p.shape]).astype(np.float32)
        for p in program.params[:count]
    }
    opened = Schedule(program)
    space = open_space(opened, TARGET)
    expected = interpret(program, arrays)
    sizes = [len(nest.population()) for nest in space.nests]
    assert np.prod(sizes) > 1
    for _ in range(6):
        choices = [n.population()[int(random.integers(size))] for n, size in zip(space.nests, sizes, strict=True)]
        s = opened.copy()
        space.apply(s, choices)
        for name, value in interpret(s.program, arrays).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_what_is_not_in_the_space_is_refused_before_anything_changes() -> None:
    s = Schedule(matmul())
    space = open_space(s, TARGET)
    (choice,) = best(space, TARGET)
    before = (s.program, s.trace)
    large = tuple(
        max(knob.values) if knob.name in ("lanes", "rows") else n
        for knob, n in zip(space.nests[0].knobs, choice, strict=True)
    )
    for choices in ((), (choice, choice), (choice[:-1],), ((7, *choice[1:]),), (large,)):
        with pytest.raises(ScheduleError):
            space.apply(s, choices)
        assert (s.program, s.trace) == before


def test_populations_hold_what_fits_and_nothing_else() -> None:
    (nest,) = open_space(Schedule(matmul()), TARGET).nests
    population = nest.population()
    assert len({population[position] for position in range(len(population))}) == len(population)
    assert np.all(nest.allowed(population))
    registers = nest.registers if hasattr(nest, "registers") else None
    assert registers is not None and np.all(fits(population, registers))
