"""Accesses: what is provably outside is refused, what can't be decided is checked, what is inside costs nothing."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te
from tilewright.base import dtypes
from tilewright.base.checks import Checks
from tilewright.base.errors import BadProgram, IndexOutOfRange, ParseError, ResourceLimit, ScheduleError
from tilewright.compilation import build_program
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.positions import with_checks
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.symbolic.expr import Expr
from tilewright.target.target import Target

Body = Callable[[te.Tensor], Callable[[Expr], Expr]]
N = te.var("n")
X: NDArray[np.float32] = np.arange(10, dtype=np.float32)


def program(body: Body, count: int | Expr = 10, extent: int | Expr = 10) -> Program:
    x = te.placeholder((extent,), name="X")
    return lower(te.compute((count,), body(x), name="C"))


OUTSIDE: list[tuple[Body, int | Expr, int | Expr, str]] = [
    (lambda x: lambda i: x[i + 5], 10, 10, r"X .* index 0, `vi \+ 5` is 5 \.\. 14, but the extent is 10"),
    (lambda x: lambda i: x[i * 2**40], 10, 10, r"0 \.\. 9895604649984, but the extent is 10"),
    (lambda x: lambda i: x[i - 1], 10, 10, r"-1 \.\. 8"),
    (lambda x: lambda i: x[9 - i * 2], 10, 10, r"-9 \.\. 9"),
    (lambda x: lambda i: x[i], 11, 10, r"0 \.\. 10"),
    (lambda x: lambda i: x[10], 1, 10, r"`10` is 10"),
    (lambda x: lambda i: x[i + 1], N, N, r"`vi \+ 1` is .*, but the extent is n"),
    (lambda x: lambda i: te.select(i > 3, x[i + 10], x[0]), 10, 10, r"`vi \+ 10` is"),
]


@pytest.mark.parametrize(("body", "count", "extent", "message"), OUTSIDE)
def test_what_is_provably_outside_is_refused(body: Body, count: int | Expr, extent: int | Expr, message: str) -> None:
    with pytest.raises(BadProgram, match=message):
        program(body, count, extent)


INSIDE: list[tuple[Body, int | Expr, int | Expr]] = [
    (lambda x: lambda i: x[9 - i], 10, 10),
    (lambda x: lambda i: x[i // 2 + 5], 10, 10),
    (lambda x: lambda i: x[(i * 7) % 10], 10, 10),
    (lambda x: lambda i: te.select(i > 0, x[i - 1], x[0]), 10, 10),
    (lambda x: lambda i: te.select((i >= 5) & (x[i - 5] > 0.0), x[i - 5], x[i]), 10, 10),
    (lambda x: lambda i: x[N - 1 - i], N, N),
    (lambda x: lambda i: te.select(i + 1 < N, x[i + 1], x[i]), N, N),
]


@pytest.mark.parametrize(("body", "count", "extent"), INSIDE)
def test_what_is_provably_inside_costs_nothing(body: Body, count: int | Expr, extent: int | Expr) -> None:
    made = program(body, count, extent)
    assert with_checks(made) is made
    (result,) = build_program(made, Target.host(), threads=1).run({"X": X})
    np.testing.assert_array_equal(result, interpret(made, {"X": X})["C"])


UNDECIDED: list[tuple[Body, int | Expr, int | Expr, int]] = [
    (lambda x: lambda i: x[(i * 3) % 11], 10, 10, 10),
    (lambda x: lambda i: x[i], 11, N, 10),
    (lambda x: lambda i: x[(x[i] + 1.0).astype(dtypes.i32)], 10, 10, 10),
    (lambda x: lambda i: x[(x[i] - 5.0).astype(dtypes.i32)], 10, 10, -5),
    (lambda x: lambda i: te.select(x[i] > 3.0, x[(x[i] * 2.0).astype(dtypes.i32)], x[i]), 10, 10, 10),
]


@pytest.mark.parametrize(("body", "count", "extent", "wrong"), UNDECIDED)
def test_what_is_not_decided_is_checked(body: Body, count: int | Expr, extent: int | Expr, wrong: int) -> None:
    made = program(body, count, extent)
    with pytest.raises(IndexOutOfRange, match=rf"C\.X_0: index {wrong} is out of range"):
        build_program(made, Target.host(), threads=1).run({"X": X})
    (result,) = build_program(made, Target.host(), threads=1, checks=Checks.OFF).run({"X": X})
    assert np.isin(result, X).all()


def test_a_condition_on_data_does_not_make_the_next_read_of_them_safe() -> None:
    """Somebody else may write between both."""
    made = program(
        lambda x: (
            lambda i: te.select(
                (x[i].astype(dtypes.i32) >= 0) & (x[i].astype(dtypes.i32) < 10), x[x[i].astype(dtypes.i32)], x[i]
            )
        )
    )
    assert "check(" in str(made)
    np.testing.assert_array_equal(build_program(made, Target.host(), threads=1).run({"X": X})[0], X)


def test_each_check_is_a_read_of_its_own() -> None:
    """Although both look alike, their difference is not 0: what they read may change in between."""

    def body(x: te.Tensor) -> Callable[[Expr], Expr]:
        def at(i: Expr) -> Expr:
            place = te.checked_index(x[i].astype(dtypes.i32), 10, "Twice.x")
            return x[place - place]

        return at

    assert "check(check(" in str(program(body))


def test_checks_survive_printing_and_schedules() -> None:
    ids, table = te.placeholder((8,), dtypes.i64, "ids"), te.placeholder((5, 64), name="table")
    row = te.compute((8, 64), lambda i, j: table[te.checked_index(ids[i], 5, "Embed.ids", from_end=True), j], name="C")
    s = te.create_schedule(row)
    i, j = row.op.axis
    _, inner = s[row].split(j, 16)
    s[row].vectorize(inner)
    s[row].parallel(i)
    assert parse_program(str(s.program)) == s.program
    verify(s.program)
    feeds = {"ids": np.array([0, -1, 4, 2, -5, 1, 3, 0]), "table": np.arange(320, dtype=np.float32).reshape(5, 64)}
    executable = build_program(s.program, Target.host(), threads=2)
    np.testing.assert_array_equal(executable.run(feeds)[0], feeds["table"][feeds["ids"]])
    np.testing.assert_array_equal(interpret(s.program, feeds)["C"], feeds["table"][feeds["ids"]])
    feeds["ids"][6] = 5
    with pytest.raises(IndexOutOfRange, match=r"Embed\.ids: index 5 is out of range; valid is -5 \.\. 4"):
        executable.run(feeds)
    with pytest.raises(IndexOutOfRange, match=r"Embed\.ids: index 5"):
        interpret(s.program, feeds)


def test_names_of_indices() -> None:
    with pytest.raises(BadProgram, match=r"'ids' names no indices; write it as OPERATOR\.OPERAND"):
        te.checked_index(te.var("i"), 4, "ids")
    with pytest.raises(ParseError, match="there is no function check of 3 arguments"):
        parse_program("program f(A: f32[4]) -> (C: f32[1]):\n  C[0] = A[check(1, 4, ids)]\n")


def test_schedules_begin_with_a_look_at_accesses() -> None:
    x = te.placeholder((10,), name="X")
    with pytest.raises(BadProgram, match=r"`vi \+ 5` is 5 \.\. 14"):
        te.create_schedule(te.compute((10,), lambda i: x[i + 5], name="C"))


def test_programs_as_text_are_verified_and_checked() -> None:
    text = """
program f(A: f32[4]) -> (C: f32[4]):
  for i in range(4):
    block C(vi = i: spatial 4):
      reads A[vi + {0}]
      writes C[vi]
      C[vi] = A[vi + {0}]
"""
    with pytest.raises(BadProgram, match=r"A is accessed outside of its shape: index 0, `vi \+ 2` is 2 \.\. 5"):
        verify(parse_program(text.format(2)))
    with pytest.raises(BadProgram, match="accessed outside of its shape"):
        build_program(parse_program(text.format(2)), Target.host())


def test_sizes_that_can_not_be_counted_are_refused() -> None:
    for shape in ((2**33, 2**33), (2**62,), (2**40, 2**40, 0)):
        with pytest.raises(ResourceLimit, match="an array has 9223372036854775807 at most"):
            te.placeholder(shape)
        with pytest.raises(ResourceLimit, match="an array has 9223372036854775807 at most"):
            te.compute(shape, lambda *index: index[0].astype(dtypes.f32))
    with pytest.raises(BadProgram, match="is beyond i64: no extent is that large"):
        te.const(2**62, dtypes.index) * 4


def test_primitives_refuse_loops_that_can_not_be_counted() -> None:
    x, k, m = te.placeholder((1,), name="X"), te.reduce_axis((0, 2**33), "k"), te.reduce_axis((0, 2**33), "m")
    total = te.compute((1,), lambda i: te.sum(x[i] * k.var.astype(dtypes.f32), axis=(k, m)), name="C")
    s = te.create_schedule(total)
    before = str(s)
    with pytest.raises(ScheduleError, match="is 73786976294838206464, which is beyond i64"):
        s[total].fuse(k, m)
    with pytest.raises(ScheduleError, match="is beyond i64"):
        s[total].split(k, 2**63 - 1)
    assert str(s) == before
