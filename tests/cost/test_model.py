"""The model: what it counts, that it rates populations at once, and that its choice is the best it rates."""

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.model import best, estimate, panel_width, tile_cycles
from tilewright.kernels.nests import Nest, Registers, Tiles, tile_knobs
from tilewright.kernels.packing import Matrix
from tilewright.kernels.tile_facts import TileFacts
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.space.knobs import Knob
from tilewright.space.population import Population, all_of
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,znver5")
REGISTERS = Registers(32, 16)


def population(facts: TileFacts) -> Population:
    more = tuple(Knob(name, (0,)) for name in ("unroll", "pack", "prefetch"))
    return all_of((*tile_knobs(facts, REGISTERS), *more, Knob("slices", (1,))))


def cycles(facts: TileFacts, target: Target = TARGET, **wanted: int) -> float:
    choices = population(facts)
    chosen = np.ones(len(choices), np.bool_)
    for name, number in wanted.items():
        chosen &= choices.column(name) == number
    (found,) = tile_cycles(facts, choices.where(chosen), REGISTERS, target)
    return float(found)


def matmul(rows: int, columns: int, inner: int) -> Program:
    a, b = te.placeholder((rows, inner), name="A"), te.placeholder((inner, columns), name="B")
    k = te.reduce_axis((0, inner), name="k")
    return lower([te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")], inputs=[a, b])


def test_a_contraction_that_nothing_reads_is_no_anchor() -> None:
    """What reads it becomes a plain number once blocks are inlined: both branches are the same."""
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k, two = te.reduce_axis((0, 8), name="k"), te.compute((), lambda: te.const(2.0, f32), name="two")
    product = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    chosen = te.compute((8, 8), lambda i, j: te.select(product[i, j] < 0.0, two[()], two[()]), name="chosen")
    s = schedule(Schedule(lower([chosen], inputs=[a, b])), TARGET)
    assert "product" not in str(s.program)


def test_of_equal_estimates_the_first_is_chosen_however_they_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    space = open_space(Schedule(matmul(1, 64, 64)), TARGET)
    (nest,) = space.nests
    choices = nest.population()

    def rounded(_: object, population: Population, __: Target) -> np.ndarray:
        found = np.full(len(population), 9.0)
        found[1:4] = 2.0 * (1 + 1e-15), 2.0, 1.9999999999999998
        return found

    monkeypatch.setattr("tilewright.cost.model.estimate", rounded)
    assert best(space, TARGET) == (choices[1],)


def test_a_choice_costs_the_same_alone_and_among_others() -> None:
    space = open_space(Schedule(matmul(48, 100, 64)), TARGET)
    (nest,) = space.nests
    every = nest.population()
    together = estimate(nest, every, TARGET)
    one_by_one = [estimate(nest, Population(every.names, every.numbers[[p]]), TARGET)[0] for p in range(len(every))]
    np.testing.assert_allclose(together, one_by_one)
    assert every[int(np.argmin(together))] == best(space, TARGET)[0]


def test_no_tile_beats_the_peak() -> None:
    facts = TileFacts(256, 48, 1, 1, 1, 128, 4)
    least = 256 / 16 * 48 * 128 / TARGET.fma_per_cycle
    assert tile_cycles(facts, population(facts), REGISTERS, TARGET).min() >= least


def test_a_tile_that_does_not_divide_runs_a_smaller_one() -> None:
    whole, more = TileFacts(32, 12, 1, 1, 1, 256, 4), TileFacts(32, 13, 1, 1, 1, 256, 4)
    wanted = {"lanes": 32, "rows": 12, "order": 0}
    extra = cycles(more, **wanted) - cycles(whole, **wanted)
    assert cycles(whole, **wanted) / 12 < extra < cycles(whole, **wanted)


def test_accumulators_hide_latency() -> None:
    facts = TileFacts(16, 24, 1, 1, 1, 256, 4)
    assert cycles(facts, lanes=16, rows=2) > 3 * cycles(facts, lanes=16, rows=12)


def test_what_does_not_fit_is_kept_outside() -> None:
    facts = TileFacts(16, 14, 32, 1, 14, 4608, 4)
    wanted = {"lanes": 16, "rows": 7, "panels": 3}
    assert cycles(facts, **wanted, order=2) < cycles(facts, **wanted, order=0)
    roomy = Target.parse("x86_64,znver5,l1=64M,l2=128M,l3=256M")
    assert cycles(facts, roomy, **wanted, order=2) == cycles(facts, roomy, **wanted, order=0)


@pytest.mark.parametrize("text", ["x86_64,znver5", "x86_64,haswell", "aarch64,neoverse-n1", "riscv64,sifive-x280"])
def test_tiles_fit_in_the_registers_of_every_target(text: str) -> None:
    target = Target.parse(text)
    s = Schedule(matmul(100, 200, 64))
    space = open_space(s, target)
    (nest,) = space.nests
    assert isinstance(nest, Tiles)
    values = dict(zip((knob.name for knob in nest.knobs), best(space, target)[0], strict=True))
    columns = values["lanes"] // nest.registers.lanes * values["panels"]
    assert values["rows"] * columns + columns + 1 <= target.vector_registers
    assert values["rows"] * columns >= 4


def test_a_matrix_is_packed_for_many_rows_only() -> None:
    assert "cache_read" in str(schedule(Schedule(matmul(512, 512, 512)), TARGET).trace)
    assert "cache_read" not in str(schedule(Schedule(matmul(4, 512, 512)), TARGET).trace)


def test_panels_are_whole_registers() -> None:
    for columns in (9, 16, 40, 1000):
        width = panel_width(Matrix(columns, 8, 128, f32, f32, 0), TARGET)
        assert width % 16 == 0 and (width == 16 or width // 2 < columns + 16)
    assert [panel_width(Matrix(columns, 8, 128, f32, f32, 0), TARGET) for columns in (1, 4, 5, 8)] == [4, 4, 8, 8]


class Strange(Nest):
    """A nest of which no model knows anything."""

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        s.unroll(s.get_loops(self.name)[values["which"]])


def test_a_nest_that_no_model_knows_is_not_free() -> None:
    """Nor cheaper than the same elements where they are known."""
    which = Knob("which", (0, 1))
    few, many = (Strange("strange", (which,), points=points) for points in (100, 100_000))
    costs = [estimate(nest, nest.population(), TARGET) for nest in (few, many)]
    assert costs[0].shape == (2,)
    assert 0 < costs[0][0] * 1000 == pytest.approx(costs[1][0])
    a = te.placeholder((1000, 100), name="a")
    (known,) = open_space(Schedule(lower(te.compute((1000, 100), lambda i, j: a[i, j] * 2.0, name="b"))), TARGET).nests
    assert costs[1][0] > estimate(known, known.population(), TARGET).max()


def test_estimates_of_all_nests_are_cycles_of_all_that_they_compute() -> None:
    """So that the sum over a kernel's nests means something."""

    def lanes(rows: int) -> float:
        a = te.placeholder((rows, 1600), name="A")
        (nest,) = open_space(
            Schedule(lower(te.compute((rows, 1600), lambda i, j: a[i, j] * 2.0, name="B"))), TARGET
        ).nests
        return float(estimate(nest, nest.population(), TARGET).min())

    assert lanes(10) == 10 * lanes(1) >= 1000  # a register of 16 takes a cycle at least
