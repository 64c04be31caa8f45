"""A model over statements orders programs that it has not seen, of several tasks; and it sums up."""

from functools import cache
from math import prod

import numpy as np
import pytest

from tests.loops.workloads import matmul
from tilewright.base.errors import BadInput
from tilewright.loops.ir import Block, Loop, LoopKind, Stmt
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import children
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.space.space import Floats
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target
from tilewright.tune.features.statements import NAMES, StatementRows, program_matrix
from tilewright.tune.models.statements import MeasuredPrograms, StatementModel, Statements, SumLoss

TARGET = Target.parse("x86_64,znver4,cores=8")
TASKS = {"square": (128, 128, 128), "long": (16, 256, 512)}
PROGRAMS, LEARNED = 360, 280


def seconds(stmt: Stmt, loops: tuple[Loop, ...] = ()) -> float:
    """What a program is made to take: lanes and unrolled loops help up to a point, cores too; what is inside three
    loops should be neither short nor long."""
    if isinstance(stmt, Block):
        lengths = {kind: prod([_extent(loop) for loop in loops if loop.kind is kind]) for kind in LoopKind}
        vectors, unrolled = lengths[LoopKind.VECTORIZED], lengths[LoopKind.UNROLLED]
        each = (1.5 if vectors > 32 else 1.0) / min(vectors, 16)
        each *= 1.0 + 1.0 / min(unrolled, 32) + 0.1 * max(0.0, float(np.log2(unrolled / 64)))
        each *= 1.0 + 0.3 * abs(float(np.log2(prod([_extent(loop) for loop in loops[-3:]]))) - 8.0)
        return (prod(map(_extent, loops)) * each / min(lengths[LoopKind.PARALLEL], TARGET.cores)) ** 0.5
    inside = (*loops, stmt) if isinstance(stmt, Loop) else loops
    return sum(seconds(child, inside) for child in children(stmt))


def _extent(loop: Loop) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)


def scheduled(naive: Program, generator: np.random.Generator) -> Program:
    """Tiled at random, with annotations at random."""
    s = Schedule(naive)
    names = ("io", "jo", "ko", "ii", "ji", "ki")
    s.tile(("i", "j", "k"), [int(2 ** generator.integers(0, 5)) for _ in range(3)], names=names)
    inner = ("ii", "ki") if generator.integers(2) else ("ki", "ii")
    if generator.integers(2):
        s.reorder(*inner, "ji")
        s.vectorize("ji")
    for loop in inner[: generator.integers(0, 3)]:
        s.unroll(loop)
    if generator.integers(2):
        s.parallel("io")
    return s.program


@cache
def measured(task: str) -> MeasuredPrograms:
    naive, generator = lower(matmul(*TASKS[task])), np.random.default_rng(len(task))
    programs = [scheduled(naive, generator) for _ in range(PROGRAMS)]
    throughputs = np.array([1.0 / seconds(program.body) for program in programs])
    return MeasuredPrograms(program_matrix(programs, TARGET), throughputs)


def some(task: str, start: int, end: int) -> MeasuredPrograms:
    which = np.arange(start, end)
    return MeasuredPrograms(measured(task).statements.take(which), measured(task).throughputs[which])


def pairwise(scores: Floats, throughputs: Floats) -> float:
    """The part of all pairs that are in the right order."""
    first, second = np.triu_indices(len(scores), 1)
    return float(np.mean((scores[first] > scores[second]) == (throughputs[first] > throughputs[second])))


@cache
def learned() -> StatementModel:
    """From both tasks."""
    model = StatementModel()
    model.fit([some(task, 0, LEARNED) for task in TASKS])
    return model


@pytest.mark.parametrize("task", TASKS)
def test_programs_that_were_not_seen_are_in_order(task: str) -> None:
    held_out = some(task, LEARNED, PROGRAMS)
    assert pairwise(learned().score(held_out.statements), held_out.throughputs) > 0.85


def test_a_task_that_was_not_seen_is_in_order_too() -> None:
    model = StatementModel()
    model.fit([some("square", 0, LEARNED)])
    others = some("long", 0, PROGRAMS)
    assert pairwise(model.score(others.statements), others.throughputs) > 0.75


def test_scores_are_parts_of_the_best_throughput() -> None:
    for task in TASKS:
        held_out, best = some(task, LEARNED, PROGRAMS), some(task, 0, LEARNED).throughputs.max()
        assert np.corrcoef(learned().score(held_out.statements), held_out.throughputs / best)[0, 1] ** 2 > 0.9


def test_the_score_of_a_program_is_the_sum_over_its_statements() -> None:
    rows = some("square", 0, 12).statements.rows
    apart = learned().score(StatementRows.of([row[None] for row in rows]))
    together = learned().score(StatementRows.of([rows[:5], rows[5:5], rows[5:]]))
    np.testing.assert_allclose(together, [apart[:5].sum(), 0.0, apart[5:].sum()], rtol=1e-12)


def made_up(programs: int, seed: int, most: int) -> MeasuredPrograms:
    """Programs of up to ``most`` statements, of which each adds to the throughput what two of its features say."""
    generator = np.random.default_rng(seed)
    rows = [generator.uniform(0, 8, (generator.integers(1, most + 1), len(NAMES))) for _ in range(programs)]
    return MeasuredPrograms(
        StatementRows.of(rows), np.array([float(np.sum(one[:, 3] + 4.0 * (one[:, 100] > 4.0))) for one in rows])
    )


@pytest.mark.parametrize("most", [1, 3, 24])
def test_what_each_statement_adds_is_learned(most: int) -> None:
    model = StatementModel()
    model.fit([made_up(600, 1, most)])
    held_out = made_up(300, 2, most)
    assert pairwise(model.score(held_out.statements), held_out.throughputs) > 0.85
    assert np.corrcoef(model.score(held_out.statements), held_out.throughputs)[0, 1] > 0.9


def test_steps_are_not_too_long_where_many_statements_are_alike() -> None:
    """What one of them learns, all do."""
    one = made_up(300, 1, 1)
    alike = StatementRows.of([np.repeat(row[None], 24, axis=0) for row in one.statements.rows])
    model = StatementModel()
    model.fit([MeasuredPrograms(alike.take(np.arange(200)), one.throughputs[:200])])
    scores = model.score(alike.take(np.arange(200, 300)))
    assert np.corrcoef(scores, one.throughputs[200:])[0, 1] > 0.9


def test_the_loss_is_weighted_by_the_label_and_slopes_are_its_derivatives() -> None:
    statements = StatementRows.of([np.zeros((count, len(NAMES))) for count in (2, 1, 3)])
    labels, scores = np.array([1.0, 0.25, 0.5]), np.array([0.3, 0.1, 0.7, -0.2, 0.4, 0.0])
    loss = SumLoss(statements, labels)
    weighted = 1.0 * (0.4 - 1.0) ** 2 + 0.25 * (0.7 - 0.25) ** 2 + 0.5 * (0.2 - 0.5) ** 2
    assert loss.value(scores) == pytest.approx(weighted / 2 / 1.75)
    slopes, curvatures = loss.slopes(scores)
    step = 1e-6 * np.eye(6)
    raised, lowered = ([loss.value(scores + sign * one) for one in step] for sign in (1, -1))
    np.testing.assert_allclose(slopes, (np.array(raised) - lowered) / 2e-6 * 1.75, atol=1e-8)
    np.testing.assert_array_equal(curvatures, [1.0, 1.0, 0.25, 0.5, 0.5, 0.5])
    best = loss.offset(np.zeros(6))
    assert loss.value(np.full(6, best)) < min(loss.value(np.full(6, best + moved)) for moved in (-1e-3, 1e-3))


def test_tasks_may_have_different_units() -> None:
    one, other = some("square", 0, 60), some("long", 0, 60)
    scaled = MeasuredPrograms(other.statements, other.throughputs * 2.0**20)
    models = StatementModel(), StatementModel()
    for model, second in zip(models, (other, scaled), strict=True):
        model.fit([one, second])
    first, second = (model.score(one.statements) for model in models)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("count", [0, 1, 2, 12, 21])
def test_few_programs_are_no_fault(count: int) -> None:
    few = some("square", 0, count)
    model = StatementModel()
    model.fit([few])
    scores = model.score(some("long", 0, 9).statements)
    assert scores.shape == (9,)
    assert np.isfinite(scores).all()
    assert np.any(scores) == (count > 0)


def test_failures_teach_nothing_and_a_fit_forgets() -> None:
    few, others = some("square", 0, 40), some("long", 0, 30).statements
    failed = MeasuredPrograms(some("square", 40, 60).statements, np.where(np.arange(20) % 2, 0.0, np.nan))
    joined = MeasuredPrograms(
        StatementRows.joined([few.statements, failed.statements]), np.concatenate([few.throughputs, failed.throughputs])
    )
    alone, beside = StatementModel(), StatementModel()
    alone.fit([few])
    beside.fit([joined])
    np.testing.assert_array_equal(alone.score(others), beside.score(others))
    alone.fit([failed])
    np.testing.assert_array_equal(alone.score(others), np.zeros(30))


def test_programs_and_throughputs_must_fit() -> None:
    with pytest.raises(BadInput, match="3 programs, and 2 throughputs"):
        MeasuredPrograms(some("square", 0, 3).statements, np.ones(2))


def test_what_is_measured_of_one_space_is_learned_for_all() -> None:
    spaces = [sketch_spaces(lower(matmul(16, 16, 64)), TARGET)[place][1] for place in (0, 1)]
    rating, alone = Statements(), Statements()
    first, second = (rating.rater(space, 0) for space in spaces)
    generator = np.random.default_rng(0)
    digits, others = (generator.integers(0, space.radices, (24, len(space.radices))) for space in spaces)
    np.testing.assert_array_equal(second.score(others), np.zeros(24))
    throughputs = generator.uniform(1.0, 2.0, 24)
    first.fit(digits, throughputs)
    known = second.score(others)
    assert len(set(known.tolist())) > 6
    second.fit(others, throughputs)
    second.fit(others, throughputs)  # the same task again: nothing counts twice
    one, other = (alone.rater(space, 0) for space in spaces)
    one.fit(digits, throughputs)
    other.fit(others, throughputs)
    np.testing.assert_array_equal(second.score(others), other.score(others))
    assert np.any(second.score(others) != known)
