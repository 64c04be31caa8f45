"""The functions of vector math, by name."""

from collections.abc import Callable, Sequence
from enum import Enum

from tilewright.backend.cpu.vecmath import exponential, logarithm, power, trigonometric
from tilewright.backend.cpu.vecmath.notation import FORMATS, Emitter, Real, Unit
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError


class MathFunction(Enum):
    """Functions of one number, except ``POW`` (x, y) and ``ATAN2`` (y, x)."""

    SQRT = "sqrt"
    RSQRT = "rsqrt"
    EXP = "exp"
    EXP_UP_TO_ONE = "exp up to one"
    EXP_OF_WEIGHT = "exp of weight"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    POW = "pow"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    ERF = "erf"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    ATAN2 = "atan2"
    SINH = "sinh"
    COSH = "cosh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"


def _rsqrt(x: Real) -> Real:
    return 1.0 / x.sqrt()


_UNARY: dict[MathFunction, Callable[[Real], Real]] = {
    MathFunction.SQRT: Real.sqrt,
    MathFunction.RSQRT: _rsqrt,
    MathFunction.EXP: exponential.exp,
    MathFunction.EXP_UP_TO_ONE: exponential.exp_up_to_one,
    MathFunction.EXP_OF_WEIGHT: exponential.exp_of_weight,
    MathFunction.EXP2: exponential.exp2,
    MathFunction.EXPM1: exponential.expm1,
    MathFunction.LOG: logarithm.log,
    MathFunction.LOG1P: logarithm.log1p,
    MathFunction.TANH: exponential.tanh,
    MathFunction.SIGMOID: exponential.sigmoid,
    MathFunction.ERF: exponential.erf,
    MathFunction.SIN: trigonometric.sin,
    MathFunction.COS: trigonometric.cos,
    MathFunction.TAN: trigonometric.tan,
    MathFunction.ASIN: trigonometric.asin,
    MathFunction.ACOS: trigonometric.acos,
    MathFunction.ATAN: trigonometric.atan,
    MathFunction.SINH: exponential.sinh,
    MathFunction.COSH: exponential.cosh,
    MathFunction.ASINH: logarithm.asinh,
    MathFunction.ACOSH: logarithm.acosh,
    MathFunction.ATANH: logarithm.atanh,
}
_BINARY: dict[MathFunction, Callable[[Real, Real], Real]] = {
    MathFunction.POW: power.pow,
    MathFunction.ATAN2: trigonometric.atan2,
}


def emit_math(emitter: Emitter, function: MathFunction, args: Sequence[str], dtype: DType, lanes: int) -> str:
    """Append the instructions that compute ``function`` on ``lanes`` numbers; the name of the result.

    ``args`` are operands of the type ``float``, ``double`` or a vector of them; the caller converts f16 and bf16.
    Nothing traps, and no operand gives poison. Accuracy is documented with each function.
    """
    if dtype not in FORMATS or lanes < 1:
        raise InternalError(f"no vector math on {lanes} x {dtype}; there is f32 and f64, on one lane or more")
    unit = Unit(emitter, dtype, lanes)
    operands = [unit.real(arg) for arg in args]
    match operands:
        case [x] if function in _UNARY:
            return _UNARY[function](x).name
        case [x, y] if function in _BINARY:
            return _BINARY[function](x, y).name
        case _:
            raise InternalError(f"`{function.value}` does not take {len(args)} operands")
