"""What is added to sums is computed where these are finished, even if it comes before them in the program."""

from tilewright.base.dtypes import f32, u8
from tilewright.cost.analytic import schedule
from tilewright.loops.ir import Alloc
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.visit import walk
from tilewright.ops.operator import require
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr, cast
from tilewright.target.target import Target
from tilewright.tensor import build as te


def test_a_dequantized_addend_has_no_buffer() -> None:
    a, b = te.placeholder((64, 96), f32, "a"), te.placeholder((96, 128), f32, "b")
    steps, scale = te.placeholder((64, 128), u8, "steps"), te.placeholder((), f32, "scale")

    def dequantized(i: Expr, j: Expr) -> Expr:
        return cast(steps[i, j], f32) * scale[()]

    def finished(i: Expr, j: Expr) -> Expr:
        return addend[i, j] + product[i, j]

    addend = te.compute((64, 128), dequantized, name="addend")
    (product,) = require("MatMul").apply([a, b], {})
    result = te.compute((64, 128), finished, name="result")
    program = schedule(Schedule(lower([result])), Target.parse("x86_64,znver5")).program
    kept = [stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc) and stmt.buffer.memory != LOCAL]
    assert tuple(addend.shape) not in [buffer.shape for buffer in kept]
