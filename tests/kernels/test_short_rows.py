"""Softmax and maxima of short rows: one division for each row, trees of partial results, NaN and infinities."""

from math import inf, nan

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.backend.cpu.support import run_native
from tests.frontend.models import run_onnxruntime, single_node
from tilewright.kernels.reductions import schedule_reduction
from tilewright.loops.ir import Loop, LoopKind, Store
from tilewright.loops.lower import lower
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks
from tilewright.schedule.tree import walk as walk_stmts
from tilewright.symbolic.expr import Binary, minimum, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import walk
from tilewright.target.target import Target
from tilewright.tensor import build as te

HOST = Target.host()


def rows(length: int) -> NDArray[np.float32]:
    """Rows with a special value at each place, then others."""
    x = np.random.default_rng(length).uniform(-90, 90, (3 * length + 5, length)).astype(np.float32)
    for place in range(length):
        x[place, place], x[length + place, place], x[2 * length + place, place] = nan, inf, -inf
    x[-1], x[-2], x[-3] = -inf, 0.0, -0.0
    return x


@pytest.mark.share(2)
@pytest.mark.parametrize("target", [HOST, HOST.restricted("avx2")], ids=["host", "avx2"])
@pytest.mark.parametrize("length", [5, 33, 48, 64])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ReduceMax", "ReduceMin", "ReduceLogSumExp"])
def test_special_values(op: str, length: int, target: Target) -> None:
    x = rows(length)
    options: dict[str, object] = {"axis": -1} if op.endswith("max") and op[0] in "SL" else {"axes": [-1]}
    proto = single_node(op, {"x": x}, opset=17, **options)
    (found,) = tilewright.compile(proto, target=target).run(None, {"x": x})
    if op in ("ReduceMax", "ReduceMin"):  # ONNX Runtime's depend on the place of a NaN
        with np.errstate(invalid="ignore"):
            wanted = (np.max if op == "ReduceMax" else np.min)(x, axis=-1, keepdims=True)
    else:
        (wanted,) = run_onnxruntime(proto, {"x": x})
        known = ~np.isinf(x).any(axis=1)  # of infinities, ONNX Runtime's are not the definition's
        found, wanted = found[known], wanted[known]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("length", "lanes"), [(48, 16), (41, 41), (64, 64)])
def test_rows_of_three_registers_are_vectors_of_one(length: int, lanes: int) -> None:
    """LLVM takes long over masks of 48 lanes."""
    proto = single_node("Softmax", {"x": rows(length)}, opset=17, axis=-1)
    (kernel,) = tilewright.compile(proto, target="x86_64,znver4,l1=32K,l2=1M,l3=32M", threads=1).compiled.kernels
    loops = [loop for loop in walk_stmts(kernel.program.body) if isinstance(loop, Loop)]
    assert max(int(str(loop.extent)) for loop in loops if loop.kind is LoopKind.VECTORIZED) == lanes


def test_a_softmax_divides_once_for_each_row() -> None:
    proto = single_node("Softmax", {"x": rows(40)}, axis=-1)
    (kernel,) = tilewright.compile(proto).compiled.kernels
    dividing = [
        block
        for block in all_blocks(kernel.naive.body)
        if isinstance(block.body, Store)
        and any(isinstance(node, Binary) and node.op is BinaryOp.DIV for node in walk(block.body.value))
    ]
    assert [str(block.axes[-1].extent) for block in dividing] == ["1"]


def test_partial_results_are_a_tree() -> None:
    x, k = te.placeholder((8, 256), name="x"), te.reduce_axis((0, 256), name="k")
    y = te.compute((8,), lambda i: te.max(x[i, k.var], axis=k), name="y")
    s = Schedule(lower([y], name="k", inputs=[x]))
    schedule_reduction(s, BlockRef("y"), 32, parallel=False)
    partial = [block.writes[0].buffer.shape for block in all_blocks(s.program.body) if block.name != "y"]
    assert [int(str(shape[0])) for shape in partial] == [32, 16, 8, 4, 2]
    values = np.random.default_rng(0).uniform(-1, 1, (8, 256)).astype(np.float32)
    np.testing.assert_array_equal(run_native(s.program, {"x": values})[0], values.max(axis=1))


def test_the_exponential_of_what_is_at_most_zero() -> None:
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: unary(UnaryOp.EXP, minimum(x[i], 0.0)), name="y")
    s = Schedule(lower([y], name="k", inputs=[x]))
    values = np.concatenate([np.linspace(-110, 3, 58), [nan, inf, -inf, 0.0, -0.0, -87.5]]).astype(np.float32)
    (found,) = run_native(s.program, {"x": values})
    np.testing.assert_allclose(found, np.exp(np.minimum(values, 0).astype(np.float64)), rtol=3e-7, atol=1e-45)


@pytest.mark.parametrize(("count", "together"), [(8, True), (6, True), (9, True), (5, False)])
def test_a_step_of_several_rows_before_the_next(count: int, together: bool) -> None:
    proto = single_node("Softmax", {"x": rows(64)[-count:]}, axis=-1)
    (kernel,) = tilewright.compile(proto, threads=1).compiled.kernels
    outer = next(stmt.extent for stmt in walk_stmts(kernel.program.body) if isinstance(stmt, Loop))
    assert (int(str(outer)) < count) is together
