"""The choice without measurements: sketches where no class is known, and the analytic choice elsewhere."""

import numpy as np
import pytest

from tests.sketch.programs import matmul, max_pool, product_of_rows, smoothed_twice
from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.cost.analytic import schedule as analytic
from tilewright.graph import Graph, Value, make_node
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.ops.operator import require
from tilewright.passes.choose import choose
from tilewright.passes.fuse import fuse
from tilewright.passes.lower import Lowering
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, loops_of
from tilewright.symbolic.expr import ONE, Expr, Var, const
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor
from tilewright.tune.features.cycles import program_cycles
from tilewright.tune.untuned import schedule

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=2")


def naive(output: Tensor) -> Program:
    return te.create_schedule(output).program


SHAPE = (96, 128)


@pytest.fixture(scope="module")
def rows() -> Tensor:
    """Rows by rows: without packing, lanes would be gathered."""
    return product_of_rows(*SHAPE[:1], *SHAPE)


@pytest.fixture(scope="module")
def chosen(rows: Tensor) -> Schedule:
    return schedule(naive(rows), TARGET)


def test_what_no_class_is_for_is_scheduled_by_a_sketch(rows: Tensor, chosen: Schedule) -> None:
    own = analytic(Schedule(naive(rows)), TARGET)
    assert program_cycles(chosen.program, TARGET) < 0.5 * program_cycles(own.program, TARGET)


def test_it_computes_the_same(rows: Tensor, chosen: Schedule) -> None:
    kernel = te.build(te.create_schedule(rows).scheduled(chosen), threads=2)
    a, b = (np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32) for seed in (0, 1))
    np.testing.assert_allclose(kernel(a, b), a @ b.T, rtol=1e-4, atol=1e-4)


def test_autoschedule_makes_the_same_choice(rows: Tensor, chosen: Schedule) -> None:
    assert te.autoschedule(rows, TARGET).trace.to_json() == chosen.trace.to_json()


def test_outer_loops_are_parallel(chosen: Schedule) -> None:
    first, *_ = [loop for loop in loops_of(chosen.program, BlockRef("C")) if loop.extent != ONE]
    assert first.kind is LoopKind.PARALLEL


@pytest.mark.parametrize("output", [matmul(128, 128, 160), max_pool(65, 3)], ids=["product", "window"])
def test_what_the_analytic_model_knows_stays(output: Tensor) -> None:
    program = naive(output)
    assert schedule(program, TARGET).trace.to_json() == analytic(Schedule(program), TARGET).trace.to_json()


def test_tests_of_padding_and_idle_lanes_are_no_repeated_work() -> None:
    """11 rows are a tile of 8 and one of 3; a third of the terms would only read padding."""
    target = Target.parse("x86_64,graniterapids,l1=48K,l2=2M,l3=64M,cores=2")
    x, w = Value("x", f32, (const(1), const(48), const(22), const(22))), np.zeros((160, 48, 3, 3), np.float32)
    weight = Value("w", f32, tuple(map(const, w.shape)))
    attributes = {"strides": (2, 2), "pads": (6,) * 4, "dilations": (6, 6)}
    node = make_node(require("Conv"), [x, weight], ["y"], attributes)
    laid_out = choose(Graph("dilated", (x,), node.outputs, (node,), {weight: w}), target).apply()
    (group,) = fuse(laid_out.graph, laid_out.leaving_blocks, laid_out.layouts)
    program = Lowering(laid_out, target, {}).kernel(group).program
    own = analytic(Schedule(program), target)
    assert "skip_padding" in str(own.trace)
    assert schedule(program, target).trace.to_json() == own.trace.to_json()


def test_windows_along_one_axis_are_known() -> None:
    """Rows of a tile share nothing then, which does not make them naive."""
    x, q, least = te.placeholder((2, 308, 12, 12), name="x"), te.reduce_axis((0, 8), "q"), te.min_value(f32)

    def around(n: Var, c: Var, h: Var, w: Var) -> Expr:
        return te.select((w >= 3) & (w < 15), x[n, c, h, w - 3], least)

    padded = te.compute((2, 308, 12, 19), around, name="padded")
    program = naive(te.compute((2, 308, 12, 12), lambda n, c, h, w: te.max(padded[n, c, h, w + q], axis=q), name="Y"))
    target = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M,cores=1")
    assert schedule(program, target).trace.to_json() == analytic(Schedule(program), target).trace.to_json()


def test_moves_are_known() -> None:
    """Phases that are interleaved, and cropped, compute nothing, and nothing is computed again."""
    x = te.placeholder((1, 9 * 231, 10, 10), name="x")

    def place(n: Var, c: Var, h: Var, w: Var) -> Expr:
        return x[n, (h + 1) % 3 * 693 + (w + 1) % 3 * 231 + c, (h + 1) // 3, (w + 1) // 3]

    whole = te.compute((1, 231, 27, 27), place, name="whole")
    program = naive(te.compute((1, 231, 26, 26), lambda n, c, h, w: whole[n, c, h, w], name="cropped"))
    made = schedule(program, TARGET)
    assert made.trace.to_json() == analytic(Schedule(program), TARGET).trace.to_json()
    assert any(loop.kind is LoopKind.VECTORIZED for loop in loops_of(made.program, BlockRef("cropped")))


def test_short_programs_stay() -> None:
    program = naive(product_of_rows(16, 16, 64))
    assert schedule(program, TARGET).trace.to_json() == analytic(Schedule(program), TARGET).trace.to_json()


def test_run_time_extents_stay() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 512), name="A"), te.placeholder((512, 512), name="B")
    r = te.reduce_axis((0, 512), "r")
    program = naive(te.compute((n, 512), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C"))
    assert schedule(program, TARGET).trace.to_json() == analytic(Schedule(program), TARGET).trace.to_json()


def test_a_stencil_is_not_computed_again_for_each_neighbour() -> None:
    program = naive(smoothed_twice(256, 512))
    (*_, first, last) = all_blocks(schedule(program, TARGET).program.body)
    assert first.name != last.name
    assert len(all_blocks(analytic(Schedule(program), TARGET).program.body)) == 1


def test_what_computes_nothing_has_a_schedule() -> None:
    """No tile divides an axis without points."""
    x, w = te.placeholder((1, 0, 0, 384), name="x"), te.placeholder((1536, 384), name="w")
    k = te.reduce_axis((0, 384), name="k")
    products = te.compute((1, 0, 0, 1536), lambda b, i, j, n: te.sum(x[b, i, j, k] * w[n, k], axis=k), name="A")
    made = schedule(naive(te.compute((1, 0, 0, 1536), lambda *at: te.tanh(products[at]), name="B")), TARGET)
    assert made.program.results
