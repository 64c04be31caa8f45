"""Loops look whether their call is to end: often enough where they do much, never where it would cost something."""

import time

import numpy as np
import pytest

from tilewright.backend.cpu.image import build_one, kernel_text
from tilewright.backend.cpu.work import look_period
from tilewright.base.dtypes import f32
from tilewright.base.errors import Timeout
from tilewright.loops.ir import Buffer, If, Loop, LoopKind, Seq, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.native import NativeExecutable
from tilewright.symbolic.expr import Expr, Read, Var, const
from tilewright.target.target import Target

a, b, c, n = map(Var, "abcn")
OUT = Buffer("out", f32, (const(4),))


def loop(var: Var, extent: int | Expr, body: Stmt, kind: LoopKind = LoopKind.SERIAL) -> Loop:
    return Loop(var, const(extent) if isinstance(extent, int) else extent, body, kind)


ONE = Store(OUT, (const(0),), const(1.0, f32))
LANES = LoopKind.VECTORIZED


@pytest.mark.parametrize(
    ("looped", "period"),
    [
        (loop(a, 1000, ONE), None),
        (loop(a, 1 << 20, ONE), 512),
        (loop(a, n, ONE), None),
        (loop(a, n, loop(b, 16, ONE)), 32),
        (loop(a, n, loop(b, 300, ONE)), 2),
        (loop(a, 10, loop(b, 511, ONE)), None),
        (loop(a, 10, loop(b, 512, ONE)), None),
        (loop(a, 1000, loop(b, 1000, ONE)), None),
        (loop(a, 10_000, loop(b, 512, ONE)), 1),
        (loop(a, 10_000, loop(b, 20, loop(c, 30, ONE))), 1),
        (loop(a, 10, loop(b, n, loop(c, 30, ONE))), 1),
        (loop(a, 10, loop(b, n, loop(c, 8, ONE))), 1),
        (loop(a, 10, loop(b, 512, ONE, LANES)), None),
        (loop(a, 10_000, loop(b, 512 * 16, ONE, LANES)), 1),
        (loop(a, 10_000, Seq((loop(b, 300, ONE), loop(b, 300, ONE)))), 1),
        (loop(a, 10_000, loop(b, 256, Stores((ONE, ONE)))), 1),
        (loop(a, 10_000, If(const(True), ONE, loop(b, 512, ONE))), 1),
        (loop(a, 10, loop(b, 0, ONE)), None),
        (loop(a, n, loop(b, 0, ONE)), None),
    ],
)
def test_when_it_is_time(looped: Loop, period: int | None) -> None:
    assert look_period(looped) == period


def test_none_in_small_kernels() -> None:
    text = kernel_text(Program("k", (OUT,), loop(a, 100, loop(b, 100, ONE)))).text
    assert "call i1 @tw_check" not in text


OUTPUTS = Buffer("y", f32, (const(4),))


def add(at: Expr) -> Stmt:
    return Store(OUTPUTS, (at,), Read(OUTPUTS, (at,)) + const(1.0, f32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(loop(a, 1 << 34, add(const(0))), id="one long loop"),
        pytest.param(loop(a, 1 << 17, loop(b, 1 << 17, add(const(0)))), id="two loops"),
        pytest.param(loop(a, 4, loop(b, 1 << 33, add(a)), LoopKind.PARALLEL), id="long chunks"),
        pytest.param(loop(a, 1 << 20, loop(b, 1 << 14, add(a % 4)), LoopKind.PARALLEL), id="many iterations"),
    ],
)
def test_what_takes_long_is_stopped(body: Stmt, threads: int) -> None:
    """Each would take ten seconds or more."""
    image = build_one(Program("k", (OUTPUTS,), body), Target.host())
    memory = (image.needs.workspace_bytes, image.needs.scratch_bytes)
    manifest = Manifest((), (TensorSpec("y", f32, (4,)),), (), (), *memory)
    model = NativeExecutable(manifest, image.objects, threads=threads)
    begin = time.monotonic()
    with pytest.raises(Timeout):
        model.run({}, {"y": np.zeros(4, np.float32)}, timeout=0.02)
    assert time.monotonic() - begin < 4
