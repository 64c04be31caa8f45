"""Attention by a matrix unit: one kernel of two products of tiles, with the results of the parts."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import tilewright
from tilewright.base.dtypes import bf16, f32
from tilewright.cost.analytic import open_space, schedule
from tilewright.kernels.attention_tiles import AttentionTiles, row_counts
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops.operator import require
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder

Floats = NDArray[np.float32]

HOST = Target.host()
UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")


def naive(heads: int, rows: int, depth: int, keys: int, width: int) -> Program:
    tensors = [
        placeholder((heads, rows, depth), f32, "q"),
        placeholder((heads, depth // 2, keys, 2), bf16, "k"),
        placeholder((heads, keys // 2, width, 2), bf16, "v"),
    ]
    return lower(require("PairAttention").apply(tensors, {"count": keys - 3}), inputs=tensors)


def test_every_number_of_rows_computes_the_same() -> None:
    program, random = naive(1, 48, 4, 16, 16), np.random.default_rng(0)
    shapes = {"q": (1, 48, 4), "k": (1, 2, 16, 2), "v": (1, 8, 16, 2)}
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    feeds = {name: a if name == "q" else a.astype(ml_dtypes.bfloat16) for name, a in arrays.items()}
    (expected,) = interpret(program, feeds).values()
    opened = Schedule(program)
    (nest,) = open_space(opened, UNIT).nests
    assert isinstance(nest, AttentionTiles)
    assert nest.knobs[0].values == (16, 24, 48)
    for rows in nest.knobs[0].values:
        s = opened.copy()
        nest.schedule(s, {"rows": rows})
        assert str(s.program).count("intrinsic tdpbf16ps") == 2
        (found,) = interpret(s.program, feeds).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_rows_that_nothing_divides_are_taken_together() -> None:
    assert row_counts(197, 208) == (197,)
    assert row_counts(15, 64) == row_counts(521, 128) == ()
    assert str(schedule(Schedule(naive(1, 197, 32, 208, 32)), UNIT).program).count("intrinsic tdpbf16ps_s197_") == 2


SIZES = [(3, 64, 32, 77, 48), pytest.param(2, 197, 64, 197, 64, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("heads", "rows", "depth", "keys", "width"), SIZES)
def test_models_in_bf16(heads: int, rows: int, depth: int, keys: int, width: int) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        net (float[{heads}, {rows}, {depth}] q, float[{heads}, {depth}, {keys}] k, float[{heads}, {keys}, {width}] v,
             float[{rows}, {keys}] mask) => (float[{heads}, {rows}, {width}] y)
        {{ s = MatMul(q, k)  m = Add(s, mask)  p = Softmax<axis=-1>(m)  y = MatMul(p, v) }}"""
    )
    compiled = tilewright.compile(model, precision="bf16", target=UNIT, threads=2)
    assert any(str(kernel.schedule.program).count("intrinsic tdpbf16ps") == 2 for kernel in compiled.compiled.kernels)
    if not set(UNIT.features) <= set(HOST.features):
        pytest.skip("compiled; running needs AMX, and a kernel that grants it")
    random = np.random.default_rng(rows)
    shapes = ((heads, rows, depth), (heads, depth, keys), (heads, keys, width))
    operands: list[Floats] = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    mask = np.where(random.random((rows, keys)) < 0.3, -np.inf, 0).astype(np.float32)
    q, k, v = (x.astype(ml_dtypes.bfloat16).astype(np.float64) for x in operands)
    scores = q @ k + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    found = compiled(*operands, mask)
    assert np.linalg.norm(found - expected) < 2.0**-8 * np.linalg.norm(expected)
    np.testing.assert_array_equal(compiled(*operands, mask), found)
