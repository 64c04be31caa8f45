"""The scalar functions of ``te``: the interpreter, native code and the evaluator against NumPy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te
from tilewright.base.errors import BadProgram
from tilewright.loops.interpreter import interpret

Array = NDArray[np.generic]

SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -2.5, 3.75, 1e-40, 7e30, np.inf, -np.inf, np.nan], np.float32)
FLAGS = np.array([[True, True], [True, False], [False, False]])


def check(body: te.Tensor, feeds: dict[te.Tensor, Array], expected: Array, rtol: float = 0) -> None:
    """All three ways to compute ``body``."""
    program = te.create_schedule(body).program
    arrays = {buffer.name: array for buffer, array in zip(program.inputs, feeds.values(), strict=True)}
    found = {
        "interpreter": interpret(program, arrays)[program.results[0].name],
        "native": te.build(program, threads=1)(*feeds.values()),
        "NumPy": te.evaluate(body, feeds),
    }
    for who, array in found.items():
        np.testing.assert_allclose(array, expected, rtol=rtol, atol=0, err_msg=who)
        assert array.dtype == expected.dtype
        if not rtol:
            np.testing.assert_array_equal(np.signbit(array * 1.0), np.signbit(expected * 1.0), who)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "trunc", "floor", "ceil", "sqrt", "rsqrt"])
def test_of_one_operand(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        values = SPECIAL.astype(dtype)
        expected = 1 / np.sqrt(values) if name == "rsqrt" else getattr(np, name)(values)
    x = te.placeholder(values.shape, dtype, name="x")
    finite = ~np.isnan(expected) if name in ("sqrt", "rsqrt") else slice(None)  # the sign of NaN is nobody's
    values, expected = values[finite], expected[finite]
    x = te.placeholder(values.shape, dtype, name="x")
    check(te.compute(values.shape, lambda i: getattr(te, name)(x[i]), name="y"), {x: values}, expected)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_clip_and_fmod(dtype: str) -> None:
    values = (SPECIAL[:7] * 2).astype(dtype)
    x = te.placeholder(values.shape, dtype, name="x")
    clipped = te.compute(values.shape, lambda i: te.clip(x[i], -1, 2), name="y")
    check(clipped, {x: values}, np.clip(values, -1, 2).astype(dtype))
    rest = te.compute(values.shape, lambda i: te.fmod(x[i], 2), name="y")
    check(rest, {x: values}, np.fmod(values, np.array(2, dtype)))


def test_conditions() -> None:
    x, y = te.placeholder((12,), name="x"), te.placeholder((12,), name="y")
    other = SPECIAL[::-1].copy()
    both = te.compute((12,), lambda i: te.all(x[i] > 0, y[i] > 0, True), name="b")
    check(both, {x: SPECIAL, y: other}, (SPECIAL > 0) & (other > 0))
    either = te.compute((12,), lambda i: te.any(te.isnan(x[i]), y[i] > 0), name="b")
    check(either, {x: SPECIAL, y: other}, np.isnan(SPECIAL) | (other > 0))
    guarded = te.compute((12,), lambda i: te.select(te.all(i > 0, x[i - 1] > 0), te.const(1, "i32"), 0), name="g")
    check(guarded, {x: SPECIAL}, np.concatenate([[0], SPECIAL[:-1] > 0]).astype(np.int32))


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("width", [0, 2])
def test_reductions_of_conditions(name: str, width: int) -> None:
    flags, k = te.placeholder((3, width), "bool", name="f"), te.reduce_axis((0, width), "k")
    reduced = te.compute((3,), lambda i: getattr(te, name)(flags[i, k], axis=k), name="r")
    check(reduced, {flags: FLAGS[:, :width]}, getattr(np, name)(FLAGS[:, :width], axis=1))
    if width:
        s = te.create_schedule(reduced)
        s.rfactor(reduced, s[reduced].split(k, factor=2)[1])
        assert te.build(s).check()["r"].worst == 0


def test_what_is_no_condition() -> None:
    x = te.placeholder((12,), name="x")
    for wrong in (lambda i: te.all(x[i]), lambda i: te.any(x[i] > 0, i)):
        with pytest.raises(BadProgram, match="not bool; compare it"):
            te.compute((12,), wrong)
    with pytest.raises(BadProgram, match="reduces one condition"):
        te.any(True, True, axis=te.reduce_axis((0, 4)))  # type: ignore[call-overload]
