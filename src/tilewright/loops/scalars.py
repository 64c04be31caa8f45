"""Scalar expressions as Python closures: the part of the interpreter that computes values.

Values of dtype ``index`` are Python ints and bools are Python bools; all others are NumPy scalars. Integer arithmetic
on loop variables and the four float operations have a fast path; every other operation uses ``symbolic.evaluate``.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, cast

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, boolean, f32, f64, index
from tilewright.base.errors import BadProgram
from tilewright.symbolic.check import Check
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_cast, evaluate_unary
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Source, Unary, Var
from tilewright.symbolic.folding import INTEGER_FOLDS, wrap
from tilewright.symbolic.operations import BinaryOp, UnaryOp

Value: TypeAlias = int | bool | np.generic
Env: TypeAlias = Mapping[str, int]
"""The loop variables, axes and run-time extents in scope, by ``Var.unique``."""
Evaluator: TypeAlias = Callable[[Env], Value]
IntEvaluator: TypeAlias = Callable[[Env], int]
Load: TypeAlias = Callable[[Source, tuple[int, ...]], Value]


class _Float(Protocol):
    """An f32 or f64 scalar of NumPy's."""

    def __add__(self, other: "_Float", /) -> np.generic: ...
    def __sub__(self, other: "_Float", /) -> np.generic: ...
    def __mul__(self, other: "_Float", /) -> np.generic: ...
    def __truediv__(self, other: "_Float", /) -> np.generic: ...


_FLOAT: dict[BinaryOp, Callable[[_Float, _Float], np.generic]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: lambda a, b: a / b,
}


def as_value(element: Array | np.generic, dtype: DType) -> Value:
    """A NumPy scalar or rank-0 array in the interpreter's representation."""
    if dtype == index:
        return int(element.item())
    if dtype == boolean:
        return bool(element.item())
    return element if isinstance(element, np.generic) else element.flat[0]


def evaluator(expr: Expr, load: Load) -> Evaluator:
    """The function that computes ``expr``; ``load`` reads an element of a buffer."""
    match expr:
        case Const(value, dtype):
            literal = as_value(np.asarray(value, dtype.numpy), dtype)
            return lambda env: literal
        case Var():
            return _variable(expr)
        case Read(source, indices):
            at = [int_evaluator(i, load) for i in indices]
            return lambda env: load(source, tuple([i(env) for i in at]))
        case Select(condition, a, b):
            test, left, right = (evaluator(e, load) for e in (condition, a, b))
            return lambda env: left(env) if test(env) else right(env)
        case Cast(a, dtype):
            inner, before = evaluator(a, load), a.dtype
            return lambda env: _take(evaluate_cast(_array(inner(env), before), dtype), dtype)
        case Unary(op, a):
            return _unary(op, evaluator(a, load), a.dtype, expr.dtype)
        case Binary(op, a, b):
            return _binary(op, evaluator(a, load), evaluator(b, load), a.dtype, expr.dtype)
        case Check(position, size):
            place, extent = int_evaluator(position, load), int_evaluator(size, load)
            return lambda env: expr.place(place(env), extent(env))
        case _:
            raise BadProgram(f"{expr!r} is no scalar expression")


def int_evaluator(expr: Expr, load: Load) -> IntEvaluator:
    """The function that computes ``expr``, an index or a bool. Raises ``BadProgram`` if it is neither."""
    if expr.dtype != index and expr.dtype != boolean:
        raise BadProgram(f"{expr!r} is {expr.dtype}, and stands for an index")
    return cast(IntEvaluator, evaluator(expr, load))


def _variable(variable: Var) -> Evaluator:
    name = variable.unique

    def get(env: Env) -> Value:
        found = env.get(name)
        if found is None:
            raise BadProgram(
                f"variable {variable} has no value here; inside a block only its own axes and extents have one"
            )
        return found

    return get


def _unary(op: UnaryOp, a: Evaluator, dtype: DType, result: DType) -> Evaluator:
    return lambda env: _take(evaluate_unary(op, _array(a(env), dtype)), result)


def _binary(op: BinaryOp, a: Evaluator, b: Evaluator, dtype: DType, result: DType) -> Evaluator:
    if dtype == boolean and op is BinaryOp.AND:
        return lambda env: a(env) and b(env)
    if dtype == boolean and op is BinaryOp.OR:
        return lambda env: a(env) or b(env)
    if dtype == index and op in INTEGER_FOLDS:
        on_ints, left, right = INTEGER_FOLDS[op], cast(IntEvaluator, a), cast(IntEvaluator, b)
        return lambda env: _wrapped(on_ints(left(env), right(env)))
    if dtype in (f32, f64) and op in _FLOAT:
        on_floats = _FLOAT[op]
        return lambda env: on_floats(cast(_Float, a(env)), cast(_Float, b(env)))
    return lambda env: _take(evaluate_binary(op, _array(a(env), dtype), _array(b(env), dtype), dtype), result)


def _wrapped(value: int) -> int:
    return value if -(1 << 63) <= value < (1 << 63) else wrap(value, index)


def _array(value: Value, dtype: DType) -> Array:
    return np.asarray(value, dtype.numpy)


def _take(array: Array, dtype: DType) -> Value:
    return as_value(array, dtype)
