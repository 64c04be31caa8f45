"""Programs whose run-time extents are called like loops, axes, buffers, or words of the notation."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.names.hostile import HOSTILE
from tilewright.backend.cpu.image import build_one
from tilewright.base.dtypes import f32, index
from tilewright.base.errors import BadInput, BadProgram, ParseError, ScheduleError
from tilewright.loops.extern import extern, for_range, store
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Block, Buffer, Loop, Stmt, Store
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Dim, Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.symbolic.expr import Extent, Var, const
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Tensor

A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def product(rows: Extent, depth: Extent, name: str = "k") -> tuple[Tensor, Tensor]:
    """``x @ x.T`` over the axes i, j and ``name``."""
    x = te.placeholder((rows, depth), f32, "x")
    k = te.reduce_axis((0, depth), name)
    return x, te.compute((rows, rows), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), name="y")


def check(program: Program) -> None:
    """It is legal, is read back as it is, and its loops, axes and extents are what they should be."""
    verify(program)
    assert parse_program(str(program)) == program
    assert all(isinstance(dim.var, Extent) for dim in program.dims)
    for stmt in walk(program.body):
        if isinstance(stmt, Loop):
            assert not isinstance(stmt.var, Extent)
        elif isinstance(stmt, Block):
            assert not any(isinstance(axis.var, Extent) for axis in stmt.axes)


NAMES = ("k", "i", "j", "x", "y", "vi", "vk", "k_0", "n", "select", "f32", "range", "size")


@pytest.mark.parametrize("rows", NAMES)
def test_extents_may_be_called_as_anything_inside(rows: str) -> None:
    depth = "depth" if rows == "k" else "k"
    x, y = product(te.var(rows), te.var(depth))
    program = lower(y)
    check(program)
    np.testing.assert_array_equal(interpret(program, {"x": A})["y"], A @ A.T)
    np.testing.assert_array_equal(evaluate([y], {x: A})[0], A @ A.T)
    s = Schedule(program)
    s.split(s.get_loops("y")[-1], (None, 3))
    s.parallel(s.get_loops("y")[0])
    check(s.program)
    np.testing.assert_array_equal(interpret(s.program, {"x": A})["y"], A @ A.T)
    assert build_one(s.program, Target.host()).objects


def test_any_text_can_name_an_extent_of_a_program() -> None:
    for name in HOSTILE:
        _, y = product(Extent(name), Extent("m" if name == "l" else "l"))
        check(lower(y))


def test_programs_say_what_users_call_their_extents() -> None:
    _, y = product(Extent("n0", label="2*n\n"), Extent("n1", label="é"))
    text = str(lower(y))
    assert text.startswith("# n0: 2*n\\n\n# n1: \\xe9\nprogram main[n0, n1](") or text.startswith(
        "# n0: 2*n\\n\n# n1: é\nprogram main[n0, n1]("
    )
    assert "2*n" not in text.split("program")[1]


@pytest.mark.parametrize("bad", ["n", "`n`", "`a"])
def test_an_extent_that_is_not_declared_is_refused(bad: str) -> None:
    text = f"program f[`2*n`](x: f32[`2*n`]) -> (y: f32[`2*n`]):\n  for i in range({bad}):\n    y[i] = x[i]\n"
    if bad == "n":
        with pytest.raises(BadProgram, match="uses n, which has no value"):
            verify(parse_program(text))
    else:
        with pytest.raises(ParseError):
            parse_program(text)


# What is made inside is none of the user's, and the other way round


def test_loops_over_extents_are_refused() -> None:
    n, y = Extent("n"), Buffer("y", f32, (Extent("n"),))
    body: Stmt = Loop(n, n, Store(y, (n,), const(0.0, f32)))
    with pytest.raises(BadProgram, match="n is a run-time extent"):
        verify(Program("f", (y,), body, (Dim(n),)))


def test_extents_that_are_loops_are_refused() -> None:
    i = Var("i")
    with pytest.raises(BadProgram, match="i is no run-time extent"):
        te.placeholder((i,), f32, "x")
    s = Schedule(lower(product(te.var("n"), te.var("m"))[1]))
    with pytest.raises(ScheduleError, match=r"split: factors=.*: give a sequence of whole numbers or Extents"):
        s.split("i", (None, i))  # pyright: ignore[reportArgumentType]


def test_symbolic_factors_have_names_of_their_own() -> None:
    naive = lower(product(te.var("f"), te.var("k_1"))[1])
    s = Schedule(naive)
    s.split("k", (None, te.var("g")))
    check(s.program)
    s.bind_factors(g=3)
    assert replay(Trace.from_json(s.trace.to_json()), naive).program == s.program
    np.testing.assert_array_equal(interpret(s.program, {"x": A})["y"], A @ A.T)
    with pytest.raises(ScheduleError, match="has the name of a loop"):
        Schedule(naive).split("k", (None, te.var("i")))


# Equal names inside


@pytest.mark.parametrize("names", [("k", "k"), ("k", "i"), ("i", "k")])
def test_two_stages_may_have_equal_axes(names: Sequence[str]) -> None:
    """The first is inlined into the second: of its axes, and of what is read at them, nothing is mixed up."""
    n = te.var("k")
    x = te.placeholder((n, 4), f32, "x")
    first, second = te.reduce_axis((0, 4), names[0]), te.reduce_axis((0, n), names[1])
    rows = te.compute((n,), lambda i: te.sum(x[i, first], axis=first), name="rows")
    twice = te.compute((n,), lambda k: rows[k] * 2, name="twice")
    total = te.compute((4,), lambda i: te.sum(twice[second] * x[second, i], axis=second), name="total")
    s = Schedule(lower(total))
    s.compute_inline("twice")
    check(s.program)
    expected = 2 * A.sum(axis=1) @ A
    np.testing.assert_array_equal(interpret(s.program, {"x": A})["total"], expected)
    np.testing.assert_array_equal(evaluate([total], {x: A})[0], expected)


def test_operands_of_reducers_are_no_axes() -> None:
    """The axis x is none of the operands of ``combine``, although those are called so as well."""
    n = te.var("x")
    values = te.placeholder((n,), index, "values")
    k = te.reduce_axis((0, n), "y")
    largest = te.compute((2,), lambda x: te.max(values[k] * (x + 1), axis=k), name="largest")
    given = np.array([3, -1, 7], np.int64)
    np.testing.assert_array_equal(evaluate([largest], {values: given})[0], [7, 14])
    np.testing.assert_array_equal(interpret(lower(largest), {"values": given})["largest"], [7, 14])
    reducer = te.comm_reducer(lambda x, y: x + y + Var("x"), lambda dtype: const(0, dtype))
    with pytest.raises(BadProgram, match="its two arguments only"):
        reducer(values[k], axis=k)


def test_nested_loops_of_an_extern_may_have_one_name() -> None:
    n = te.var("i")
    x = te.placeholder((n, 4), f32, "x")

    def body(ins: tuple[Buffer, ...], outs: tuple[Buffer, ...]) -> Stmt:
        (source,), (target,) = ins, outs
        return for_range(
            n, lambda row: for_range(4, lambda column: store(target, (row, column), source[row, 3 - column]))
        )

    (y,) = extern([(n, 4)], [x], body, [f32], "y")
    program = lower(y)
    check(program)
    np.testing.assert_array_equal(interpret(program, {"x": A})["y"], A[:, ::-1])


def test_extents_of_one_name_are_refused() -> None:
    """Programs, which are told from each other by their text, know no labels."""
    x = te.placeholder((Extent("n", label="a"), Extent("n", label="b")), f32, "x")
    with pytest.raises(BadProgram, match="two run-time extents have one name"):
        lower(te.compute(x.shape, lambda i, j: x[i, j] + 1, name="y"))


def test_an_index_map_uses_its_indices_only() -> None:
    with pytest.raises(BadInput, match="uses n, which is none of its indices"):
        IndexMap.of(lambda n, m: (m, n // te.var("n")), 2)
