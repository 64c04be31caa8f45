"""Memories as objects: what others declare prints, parses, is scheduled and replayed like the rest."""

import pytest

from tests.backend.cpu.support import run_native
from tilewright.base.dtypes import f32
from tilewright.base.errors import BadInput, ParseError, Unsupported
from tilewright.loops.ir import Alloc, Barrier, Buffer, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL, SHARED, Memory, Sharing
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.symbolic.expr import ONE, ZERO, Var, const
from tilewright.tensor import build as te

SCRATCH = Memory("scratch", 48 << 10, Sharing.BLOCK, 128)
OUT, TILE, STEP = Buffer("out", f32, (const(4),)), Buffer("tile", f32, (const(4),), SHARED), Var("i")


def doubled() -> Program:
    a = te.placeholder((8,), name="A")
    return lower(te.compute((8,), lambda i: a[i] * 2.0, name="B"))


def test_a_memory_of_ones_own_prints_and_parses_back() -> None:
    s = Schedule(doubled())
    s.cache_read("B", "A", SCRATCH)
    text = str(s.program)
    assert "alloc A_scratch: f32[8] in scratch" in text
    assert parse_program(text, memories=[SCRATCH]) == s.program
    with pytest.raises(ParseError, match=r"expected a memory .*shared.*found `scratch`"):
        parse_program(text)


@pytest.mark.parametrize("memory", [SCRATCH, SHARED, Memory("shared", 1024, Sharing.BLOCK)])
def test_traces_hold_whole_memories(memory: Memory) -> None:
    s = Schedule(doubled())
    s.cache_read("B", "A", memory)
    trace = Trace.from_json(s.trace.to_json())
    assert trace == s.trace
    assert replay(trace, doubled()).program == s.program
    again = Schedule(doubled())
    exec(str(s.trace), {"s": again, "SHARED": SHARED, "Memory": Memory, "Sharing": Sharing})
    assert again.program == s.program


def test_a_trace_with_a_damaged_memory_is_refused() -> None:
    s = Schedule(doubled())
    s.cache_read("B", "A", SCRATCH)
    with pytest.raises(BadInput, match="nobody"):
        Trace.from_json(s.trace.to_json().replace('"block", 128', '"nobody", 128'))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (Loop(STEP, const(4), Store(OUT, (STEP,), const(0.0, f32)), LoopKind.THREAD_X), "threadIdx.x"),
        (Loop(STEP, ONE, Store(OUT, (STEP,), const(0.0, f32)), LoopKind.BLOCK_X), "blockIdx.x"),
        (Loop(STEP, const(4), Store(OUT, (STEP,), const(0.0, f32)), LoopKind.VIRTUAL_THREAD), "vthread"),
        (Alloc(TILE, Seq((Store(TILE, (ZERO,), const(0.0, f32)), Store(OUT, (ZERO,), TILE[0])))), "tile is in shared"),
        (Seq((Store(OUT, (ZERO,), const(0.0, f32)), Barrier())), "barrier"),
    ],
)
def test_the_cpu_refuses_what_it_has_not(body: Stmt, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        run_native(Program("k", (OUT,), body), {})


def test_an_equal_memory_is_the_same_memory() -> None:
    """Programs come back from other processes."""
    assert Buffer("out", f32, (const(4),), Memory("global", None, Sharing.ALL)) == OUT
    assert "in" not in str(Program("k", (Buffer("out", f32, (), Memory("global", None, Sharing.ALL)),), Seq(())))[:30]
    assert repr(GLOBAL) == "GLOBAL"
