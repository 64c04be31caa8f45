"""Evaluates expressions with NumPy; the reference semantics of all operations.

``evaluate_unary``, ``evaluate_binary`` and ``evaluate_cast`` apply one operation to arrays, with the semantics of
``expr.py``: they are the oracle of the interpreter and of generated code. ``compile_exprs`` makes one function of many
expressions, for evaluating a whole population at once.

Operations on f16 and bf16 are computed in f32 and rounded; elementary functions (``exp``, ``erf`` ...) are computed in
f64 and rounded, so they are nearly exact for the narrower types.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, Kind, f32, f64
from tilewright.base.errors import BadProgram
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Unary, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp

_Function: TypeAlias = Callable[[list[Array]], Array]

_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(np.signbit(x), small, 1.0) / (1.0 + small)


_SMALLEST_NORMAL = {f32.numpy: 2.0**-126, f64.numpy: 2.0**-1022}


def _flush(a: Array) -> Array:
    """0 of the same sign for subnormal numbers."""
    return np.where(np.abs(a) < _SMALLEST_NORMAL[a.dtype], np.copysign(a.dtype.type(0), a), a)


_ROUNDING: dict[UnaryOp, Callable[[Array], Array]] = {
    UnaryOp.NEG: np.negative,
    UnaryOp.ABS: np.abs,
    UnaryOp.FLOOR: np.floor,
    UnaryOp.CEIL: np.ceil,
    UnaryOp.ROUND: np.rint,
    UnaryOp.TRUNC: np.trunc,
    UnaryOp.FLUSH: _flush,
    UnaryOp.SQRT: np.sqrt,
}
_ELEMENTARY: dict[UnaryOp, Callable[[Array], Array]] = {
    UnaryOp.EXP: np.exp,
    UnaryOp.EXP2: np.exp2,
    UnaryOp.EXPM1: np.expm1,
    UnaryOp.LOG: np.log,
    UnaryOp.LOG1P: np.log1p,
    UnaryOp.TANH: np.tanh,
    UnaryOp.ERF: _erf,
    UnaryOp.SIGMOID: _sigmoid,
    UnaryOp.SIN: np.sin,
    UnaryOp.COS: np.cos,
    UnaryOp.TAN: np.tan,
    UnaryOp.ASIN: np.arcsin,
    UnaryOp.ACOS: np.arccos,
    UnaryOp.ATAN: np.arctan,
    UnaryOp.SINH: np.sinh,
    UnaryOp.COSH: np.cosh,
    UnaryOp.ASINH: np.arcsinh,
    UnaryOp.ACOSH: np.arccosh,
    UnaryOp.ATANH: np.arctanh,
}
_COMPARE: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
}
_FLOAT: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.true_divide,
    BinaryOp.MOD: np.remainder,
    BinaryOp.TRUNCMOD: np.fmod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
}
_FLOAT64: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.POW: np.power,
    BinaryOp.ATAN2: np.arctan2,
}


def evaluate_unary(op: UnaryOp, a: Array) -> Array:
    """``op`` of each element. Raises ``BadProgram`` if ``op`` is not defined for the dtype of ``a``."""
    with np.errstate(all="ignore"):
        return _unary(op, dtypes.from_numpy(a.dtype), a)


def evaluate_binary(op: BinaryOp, a: Array, b: Array, dtype: DType) -> Array:
    """``a op b`` of each pair of elements, broadcast; both operands have ``dtype``.

    Raises ``BadProgram`` if ``op`` is not defined for ``dtype``.
    """
    with np.errstate(all="ignore"):
        return _binary(op, dtype, a, b)


def evaluate_cast(a: Array, dtype: DType) -> Array:
    """Each element converted to ``dtype``."""
    with np.errstate(all="ignore"):
        return _cast(dtypes.from_numpy(a.dtype), dtype, a)


def compile_exprs(exprs: Sequence[Expr], variables: Sequence[Var]) -> Callable[..., list[Array]]:
    """A function from one array per variable (or a number) to one array per expression, all broadcast together.

    Shared subexpressions are computed once, and both sides of a ``Select``. Raises ``BadProgram`` for reads and for
    variables that are not in ``variables``; the function raises ``TypeError`` for a wrong number of arrays.
    """
    tape = _Tape(variables)
    results = [tape.add(expr) for expr in exprs]
    steps = tuple(tape.steps)
    inputs = tuple(variable.dtype.numpy for variable in variables)

    def run(*arrays: Array | float) -> list[Array]:
        if len(arrays) != len(inputs):
            raise TypeError(f"{len(inputs)} arrays are needed, one for each variable, but {len(arrays)} are given")
        values = [np.asarray(array, dtype) for array, dtype in zip(arrays, inputs, strict=True)]
        shape = np.broadcast_shapes(*(value.shape for value in values))
        with np.errstate(all="ignore"):
            for step in steps:
                values.append(step(values))
        return [np.broadcast_to(values[position], shape) for position in results]

    return run


class _Tape:
    """A list of steps; each appends one array to the list that it reads from."""

    def __init__(self, variables: Sequence[Var]) -> None:
        self.steps: list[_Function] = []
        self._positions: dict[Expr, int] = {variable: i for i, variable in enumerate(variables)}
        self._inputs = len(variables)

    def add(self, expr: Expr) -> int:
        """The position of the value of ``expr``."""
        known = self._positions.get(expr)
        if known is None:
            step = _step(expr, tuple(self.add(child) for child in expr.operands()))
            known = self._positions[expr] = self._inputs + len(self.steps)
            self.steps.append(step)
        return known


def _step(expr: Expr, at: tuple[int, ...]) -> _Function:
    """The function that computes ``expr`` from the values of its operands at those positions."""
    match expr:
        case Const(value, dtype):
            literal = np.asarray(value, dtype.numpy)
            return lambda _: literal
        case Unary(op, a):
            (x,), dtype = at, a.dtype
            return lambda values: _unary(op, dtype, values[x])
        case Binary(op, a, _):
            (x, y), dtype = at, a.dtype
            return lambda values: _binary(op, dtype, values[x], values[y])
        case Select():
            c, x, y = at
            return lambda values: np.where(values[c], values[x], values[y])
        case Cast(a, target):
            (x,), dtype = at, a.dtype
            return lambda values: _cast(dtype, target, values[x])
        case Read(source, _):
            raise BadProgram(f"{expr} reads {source.name}: only expressions over variables become array functions")
        case _:
            raise BadProgram(f"{expr} is not among the variables of the array function")


def _unary(op: UnaryOp, dtype: DType, a: Array) -> Array:
    if dtype.is_float:
        return _float_unary(op, dtype, a)
    match op:
        case UnaryOp.NOT:
            return np.logical_not(a) if dtype.is_bool else np.invert(a)
        case UnaryOp.NEG if dtype.is_int:
            return np.negative(a)
        case UnaryOp.ABS if dtype.is_int:
            return np.abs(a)
        case _:
            raise BadProgram(f"`{op.value}` has no meaning for {dtype}")


def _float_unary(op: UnaryOp, dtype: DType, a: Array) -> Array:
    if op is UnaryOp.ISNAN:
        return np.isnan(a)
    if op is UnaryOp.ISINF:
        return np.isinf(a)
    if op in _ROUNDING:
        return _narrow(_ROUNDING[op](_wide(a, dtype)), dtype)
    if op in _ELEMENTARY:
        return _narrow(_ELEMENTARY[op](a.astype(np.float64)), dtype)
    raise BadProgram(f"`{op.value}` has no meaning for {dtype}")


def _binary(op: BinaryOp, dtype: DType, a: Array, b: Array) -> Array:
    if op in _COMPARE:
        return _COMPARE[op](_wide(a, dtype), _wide(b, dtype))
    if dtype.is_float:
        if op in _FLOAT:
            return _narrow(_FLOAT[op](_wide(a, dtype), _wide(b, dtype)), dtype)
        if op in _FLOAT64:
            return _narrow(_FLOAT64[op](a.astype(np.float64), b.astype(np.float64)), dtype)
    elif op in _BITS:
        return _BITS[op](a, b)
    elif op in _INTEGER and dtype.is_int:
        # NumPy does not promote, as both operands have one dtype; integers wrap around, and division by zero gives 0.
        return _INTEGER[op](a, b)
    raise BadProgram(f"`{op.value}` has no meaning for {dtype}")


def _wide(a: Array, dtype: DType) -> Array:
    """16-bit floats as f32."""
    return a.astype(np.float32) if dtype.is_float and dtype.bits == 16 else a


def _narrow(a: Array, dtype: DType) -> Array:
    """``a`` rounded to ``dtype``; to bf16 through f32, as generated code does."""
    if dtype.kind is Kind.BFLOAT:
        a = a.astype(np.float32)
    return a.astype(dtype.numpy, copy=False)


def _truncated_quotient(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    inexact = np.not_equal(np.remainder(a, b), 0)
    return np.where(inexact & np.less(np.bitwise_xor(a, b), 0), np.add(quotient, quotient.dtype.type(1)), quotient)


def _power(a: Array, b: Array) -> Array:
    """``a ** b``, wrapping around; for ``b < 0``, ``1 / a**-b`` rounded towards zero (0 for ``a`` = 0)."""
    base, exponent = np.broadcast_arrays(a, b)
    one = base.dtype.type(1)
    result = np.full(base.shape, one)
    square, negative = base, exponent < 0
    # Powers of 1 and -1 depend only on the exponent's parity.
    left = np.where(negative, exponent & one, exponent)
    while np.any(left):
        result = np.where(np.not_equal(left & one, 0), result * square, result)
        square = square * square
        left = left >> one
    is_unit = np.equal(base, one) | np.equal(base, np.negative(one))
    return np.where(negative & ~is_unit, base.dtype.type(0), result)


def _shift_left(a: Array, b: Array) -> Array:
    fits = _is_shift(a, b)
    return np.where(fits, np.left_shift(a, np.where(fits, b, b.dtype.type(0))), a.dtype.type(0))


def _shift_right(a: Array, b: Array) -> Array:
    fits = _is_shift(a, b)
    beyond = np.where(np.less(a, 0), a.dtype.type(-1), a.dtype.type(0)) if a.dtype.kind == "i" else a.dtype.type(0)
    return np.where(fits, np.right_shift(a, np.where(fits, b, b.dtype.type(0))), beyond)


def _is_shift(a: Array, b: Array) -> Array:
    return np.greater_equal(b, 0) & np.less(b, a.dtype.itemsize * 8)


_BITS: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.AND: np.bitwise_and,
    BinaryOp.OR: np.bitwise_or,
    BinaryOp.XOR: np.bitwise_xor,
}
_INTEGER: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.MOD: np.remainder,
    BinaryOp.TRUNCDIV: _truncated_quotient,
    BinaryOp.TRUNCMOD: np.fmod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.POW: _power,
    BinaryOp.SHL: _shift_left,
    BinaryOp.SHR: _shift_right,
}


def _cast(source: DType, target: DType, a: Array) -> Array:
    if source == target:
        return a
    if target.is_bool:
        return np.not_equal(_wide(a, source), 0)
    if not source.is_float:
        # A 16-bit float is rounded through f32, as in generated code.
        narrow = target.is_float and target.bits == 16
        return a.astype(np.float32).astype(target.numpy) if narrow else a.astype(target.numpy)
    if target.is_float:
        return _narrow(_wide(a, source), target)
    return _saturated(a.astype(np.float64), target)


def _saturated(a: Array, target: DType) -> Array:
    """Floats truncated to integers within the range of ``target``; NaN is 0."""
    whole = np.nan_to_num(np.trunc(a), nan=0.0, posinf=math.inf, neginf=-math.inf)
    least, beyond = float(target.min), float(target.max + 1)
    below, above = np.less(whole, least), np.greater_equal(whole, beyond)
    fits = np.where(below | above, 0.0, whole).astype(target.numpy)
    limit = target.numpy.type
    return np.where(below, limit(target.min), np.where(above, limit(target.max), fits))
