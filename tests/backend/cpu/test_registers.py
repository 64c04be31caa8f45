"""What private buffers are known to hold is what they hold: random statements, against the interpreter."""

from dataclasses import dataclass
from enum import Enum
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.checks import Checks
from tilewright.base.dtypes import f32, i64, index
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Alloc, Buffer, If, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.symbolic.expr import Expr, Read, Var, const, equal

SIZE = 16
TILE = Buffer("tile", f32, (const(SIZE),), LOCAL)
AT, OUT = Buffer("at", i64, (const(2),)), Buffer("out", f32, (const(SIZE),))


class Kind(Enum):
    """The kinds of statements."""

    MOVE = "move"
    MASK = "mask"
    SCATTER = "scatter"
    GATHER = "gather"
    BRANCH = "branch"
    LOOP = "loop"


@dataclass(frozen=True)
class Step:
    """What is done to ``tile``: from where, to where, by how many lanes."""

    kind: Kind
    source: int
    target: int
    lanes: int
    inside: tuple["Step", ...] = ()


def steps(depth: int) -> st.SearchStrategy[tuple[Step, ...]]:
    places = st.integers(0, SIZE - 8)
    kinds = st.sampled_from([Kind.MOVE, Kind.MASK, Kind.SCATTER, Kind.GATHER])
    flat = st.builds(Step, kinds, places, places, st.sampled_from([1, 4, 8]))
    if not depth:
        return st.lists(flat, max_size=6).map(tuple)
    nested = st.builds(Step, st.sampled_from([Kind.BRANCH, Kind.LOOP]), places, places, st.just(1), steps(depth - 1))
    return st.lists(flat | nested, max_size=6).map(tuple)


class Writer:
    """Writes steps as statements; each loop has a variable of its own."""

    def __init__(self) -> None:
        self._names = count()

    def all(self, listed: tuple[Step, ...]) -> Seq:
        return Seq(tuple(map(self.one, listed)))

    def one(self, step: Step) -> Stmt:
        var = Var(f"v{next(self._names)}")
        at = Read(AT, (const(step.target % 2),))
        match step.kind:
            case Kind.BRANCH:
                return If(equal(at, const(1, i64)), self.all(step.inside))
            case Kind.LOOP:
                return Loop(var, const(2), self.all(step.inside))
            case Kind.SCATTER:
                return Store(TILE, (at.astype(index),), Read(TILE, (const(step.source),)) + 1.0)
            case Kind.GATHER:
                return Store(TILE, (const(step.target),), Read(TILE, (at.astype(index),)) + 1.0)
            case _:
                store = Store(TILE, (var + step.target,), Read(TILE, (var + step.source,)) * 0.5 + 3.0)
                body = If(var < step.lanes - 1, store) if step.kind is Kind.MASK and step.lanes > 1 else store
                overlaps = abs(step.source - step.target) < step.lanes and step.source != step.target
                return Loop(var, const(step.lanes), body, LoopKind.UNROLLED if overlaps else LoopKind.VECTORIZED)


def program(listed: tuple[Step, ...]) -> Program:
    i = Var("i")

    def each(to: Buffer, value: Expr) -> Stmt:
        return Loop(i, const(SIZE), Store(to, (i,), value), LoopKind.VECTORIZED)

    body = Seq((each(TILE, i.astype(f32)), Writer().all(listed), each(OUT, Read(TILE, (i,)))))
    return Program("k", (AT, OUT), Alloc(TILE, body))


@given(steps(2), st.tuples(st.integers(0, SIZE - 1), st.integers(0, 1)))
@settings(max_examples=60, deadline=None)
def test_random_statements_on_a_private_buffer(listed: tuple[Step, ...], at: tuple[int, int]) -> None:
    made, feeds = program(listed), {"at": np.array(at)}
    (result,) = run_native(made, dict(feeds))
    np.testing.assert_array_equal(result, interpret(made, feeds)["out"])


FIRST = (const(3),)
STORED = Store(TILE, FIRST, const(1.0, f32))


def result_of(*statements: Stmt, checks: Checks = Checks.ON) -> float:
    """The first element of ``out`` after ``statements``."""
    made = Program("k", (AT, OUT), Alloc(TILE, Seq(statements)))
    return float(run_native(made, {"at": np.array([3, 3])}, checks=checks)[0][0])


def read_to_out(place: Expr) -> Stmt:
    return Store(OUT, (const(0),), Read(TILE, (place,)))


def test_what_a_loop_reads_was_stored_before_it() -> None:
    loop = Loop(Var("i"), const(2), read_to_out(const(3)))
    assert result_of(STORED, loop, Store(TILE, FIRST, const(2.0, f32))) == 1


@pytest.mark.parametrize("checks", Checks)
def test_what_is_read_by_data_was_stored(checks: Checks) -> None:
    """A check ends what is known by its branch; without it, the read has to."""
    gather = read_to_out(Read(AT, (const(0),)).astype(index))
    assert result_of(STORED, gather, Store(TILE, FIRST, const(2.0, f32)), checks=checks) == 1


def test_what_a_loop_stores_is_there_after_it() -> None:
    loop = Loop(Var("i"), const(2), Store(TILE, FIRST, const(2.0, f32)))
    assert result_of(STORED, loop, read_to_out(const(3))) == 2


def lanes(to: Buffer, at: int, value: Expr | None = None) -> Stmt:
    """Four elements of ``to`` from ``at`` on: ``value``, or what ``tile`` has two elements further."""
    var = Var(f"{to.name}{at}")
    stored = Read(TILE, (var + (at + 2),)) if value is None else value
    return Loop(var, const(4), Store(to, (var + at,), stored), LoopKind.VECTORIZED)


def test_what_is_read_across_two_vectors_was_stored() -> None:
    ones, twos = (const(value, f32) for value in (1.0, 2.0))
    assert result_of(lanes(TILE, 0, ones), lanes(TILE, 4, ones), lanes(OUT, 0), lanes(TILE, 0, twos)) == 1


def test_a_vector_across_two_others_changes_both() -> None:
    k = Var("k")
    read = Loop(k, const(4), Store(OUT, (k,), Read(TILE, (k,))), LoopKind.VECTORIZED)
    body = Seq((lanes(TILE, 0, const(1.0, f32)), lanes(TILE, 2, const(2.0, f32)), read))
    made = Program("k", (AT, OUT), Alloc(TILE, body))
    np.testing.assert_array_equal(run_native(made, {"at": np.array([3, 3])})[0][:4], [1, 1, 2, 2])


def test_a_sum_in_a_private_buffer_is_loaded_and_stored_once() -> None:
    k = Var("k")
    add = Store(TILE, (const(3),), Read(TILE, (const(3),)) + Read(AT, (k % 2,)).astype(f32))
    body = Seq((Store(TILE, (const(3),), const(0.0, f32)), Loop(k, const(8), add, LoopKind.UNROLLED)))
    copy = Store(OUT, (const(3),), Read(TILE, (const(3),)))
    lines = kernel_text(Program("k", (AT, OUT), Alloc(TILE, Seq((body, copy))))).text.splitlines()
    assert sum("store float" in line for line in lines) == 2, "the last sum, and the result"
    assert not any("load float" in line for line in lines)
