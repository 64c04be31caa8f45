"""Vector math against NumPy and SciPy in higher precision, on the host and on the same processor without FMA."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.mathkernel import TWO_OPERANDS, Floats, MathKernel, compile_kernel, kernel_text
from tilewright.backend.cpu.llvm import compile_assembly
from tilewright.backend.cpu.vecmath import MathFunction, emit_math
from tilewright.backend.cpu.vecmath.notation import Unit
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32, f64
from tilewright.base.errors import InternalError
from tilewright.target.target import Architecture, Target

F = MathFunction
Reference = Callable[..., Floats]
UNARY = [function for function in F if function not in TWO_OPERANDS]
ACCEPTANCE = [F.EXP, F.LOG, F.TANH, F.ERF, F.SIGMOID]
STRIDE = 4001  # prime, between the float32 bit patterns that are tried
WRONG = 1e9  # "ulps" of a NaN, an infinity or a sign that should be something else
BASELINE = Target.of(Architecture.X86_64)


def _rsqrt(x: Floats) -> Floats:
    return 1 / np.sqrt(x)


def _exp_up_to_one(x: Floats) -> Floats:
    return np.exp(np.minimum(x, 0))


def _exp_of_weight(x: Floats) -> Floats:
    return np.exp(np.clip(x, -87 if x.dtype == np.float64 else -708, 0))  # references are in the next wider type


def _erf(x: Floats) -> Floats:
    return pytest.importorskip("scipy.special").erf(x)  # slow to load


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


REFERENCE: dict[MathFunction, Reference] = {
    F.SQRT: np.sqrt,
    F.RSQRT: _rsqrt,
    F.EXP: np.exp,
    F.EXP_UP_TO_ONE: _exp_up_to_one,
    F.EXP_OF_WEIGHT: _exp_of_weight,
    F.EXP2: np.exp2,
    F.EXPM1: np.expm1,
    F.LOG: np.log,
    F.LOG1P: np.log1p,
    F.POW: np.power,
    F.TANH: np.tanh,
    F.SIGMOID: _sigmoid,
    F.ERF: _erf,
    F.SIN: np.sin,
    F.COS: np.cos,
    F.TAN: np.tan,
    F.ASIN: np.arcsin,
    F.ACOS: np.arccos,
    F.ATAN: np.arctan,
    F.ATAN2: np.arctan2,
    F.SINH: np.sinh,
    F.COSH: np.cosh,
    F.ASINH: np.arcsinh,
    F.ACOSH: np.arccosh,
    F.ATANH: np.arctanh,
}
LIMIT_F32 = {
    F.EXP: 1.1,
    F.EXP_UP_TO_ONE: 1.1,
    F.EXP_OF_WEIGHT: 1.1,
    F.EXP2: 1.2,
    F.LOG: 1.0,
    F.LOG1P: 1.6,
    F.ERF: 2.3,
    F.SIN: 1.6,
    F.COS: 1.6,
    F.TAN: 3.0,
    F.ACOS: 1.5,
    **dict.fromkeys([F.ASIN, F.ATAN, F.COSH, F.ASINH, F.ACOSH, F.ATANH], 2.5),
}
LIMIT, LIMIT_F64 = 2.0, 2.5


@cache
def kernel(function: MathFunction, dtype: DType = f32, lanes: int = 16, target: Target | None = None) -> MathKernel:
    return compile_kernel(function, dtype, lanes, Target.host() if target is None else target)


def reference(function: MathFunction, *inputs: Floats) -> Floats:
    """In float64 for float32 inputs; in the processor's longest float for float64 ones."""
    precise = np.float64 if inputs[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return REFERENCE[function](*(x.astype(precise) for x in inputs))


def ulps(result: Floats, exact: Floats) -> NDArray[np.float64]:
    """Distances in units in the last place of the result's type at the exact value (subnormals: in the smallest)."""
    info = np.finfo(result.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1.0))
        unit = np.ldexp(exact.dtype.type(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
        distance = (np.abs(result - exact) / unit).astype(np.float64)
    same = (np.isnan(result) & np.isnan(rounded)) | (result == rounded)
    special = ~np.isfinite(result) | ~np.isfinite(rounded)
    distance = np.where(special, np.where(same, 0.0, WRONG), distance)
    wrong_zero = (result == 0) & (rounded == 0) & (np.signbit(result) != np.signbit(rounded))
    return np.where(wrong_zero, WRONG, distance)


def check(function: MathFunction, result: Floats, exact: Floats, limit: float, *inputs: Floats) -> float:
    error = ulps(result, exact)
    worst = int(error.argmax())
    arguments = ", ".join(repr(x[worst]) for x in inputs)
    detail = f"{function.value}({arguments}) is {exact[worst]!r}, not {result[worst]!r}: {error[worst]:.4g} ulp"
    assert error[worst] <= limit, detail
    return float(error[worst])


def padded(x: Floats, lanes: int = 64) -> Floats:
    return np.ascontiguousarray(np.resize(x, -(-x.size // lanes) * lanes))


def converted(x: Floats, dtype: DType) -> Floats:
    return x.astype(np.float32 if dtype == f32 else np.float64)


def boundaries() -> Floats:
    """Float32 numbers where some function changes its ways, and their neighbours on both sides."""
    powers = 2.0 ** np.arange(-149, 128)
    places = [0.5, 1, 1.5, 2, 4, 5.95, 8, 9, 10, 16, 17.5, 18.1, 20, 40, 87.336, 88.3762, 88.7228, 89, 89.416, 104]
    periods = np.arange(1, 200) * (np.pi / 4)
    halves = np.arange(1, 260) * (np.log(2) / 2)
    points = np.concatenate([powers, places, periods, halves, periods * 2.0**18]).astype(np.float32).view(np.int32)
    near = np.concatenate([points + shift for shift in range(-3, 4)]).astype(np.int32).view(np.float32)
    special = np.array([0, np.inf, np.nan, np.finfo(np.float32).max, np.finfo(np.float32).tiny], np.float32)
    both = np.concatenate([near, special])
    return np.concatenate([both, -both])


@cache
def f32_samples() -> Floats:
    patterns = np.arange(0, 1 << 32, STRIDE, dtype=np.int64).astype(np.uint32).view(np.float32)
    subnormals = np.arange(1, 1 << 23, 5003, dtype=np.uint32).view(np.float32)
    return padded(np.concatenate([boundaries(), patterns, subnormals, -subnormals]))


def f64_samples(function: MathFunction, count: int = 1 << 15) -> Floats:
    random = np.random.default_rng(7)
    sign = random.choice([-1.0, 1.0], count)
    near = sign * np.ldexp(random.uniform(1, 2, count), random.integers(-12, 10, count))
    far = sign * np.ldexp(random.uniform(1, 2, count), random.integers(-1074, 1024, count))
    domain = {F.ASIN: 1.0, F.ACOS: 1.0, F.ATANH: 1.0}.get(function, 750.0)
    inside = random.uniform(-domain, domain, count)
    return padded(np.concatenate([near, far, inside, boundaries().astype(np.float64)]))


needs_x86 = pytest.mark.skipif(Target.host().arch is not Architecture.X86_64, reason="runs code for x86-64")
needs_long_double = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no float longer than float64")


@pytest.mark.parametrize("function", UNARY)
def test_f32_is_accurate(function: MathFunction) -> None:
    x = f32_samples()
    check(function, kernel(function)(x), reference(function, x), LIMIT_F32.get(function, LIMIT), x)


@needs_x86
@pytest.mark.parametrize("function", UNARY)
def test_f32_is_accurate_without_fma(function: MathFunction) -> None:
    assert "fma" not in BASELINE.features
    x = padded(f32_samples()[::7])
    result = kernel(function, target=BASELINE)(x)
    check(function, result, reference(function, x), LIMIT_F32.get(function, LIMIT), x)


@needs_long_double
@pytest.mark.parametrize("function", UNARY)
def test_f64_is_accurate(function: MathFunction) -> None:
    x = f64_samples(function)
    limit = 4.0 if function is F.ERF else LIMIT_F64  # SciPy's erf is double precision itself
    exact = REFERENCE[F.ERF](x) if function is F.ERF else reference(function, x)
    check(function, kernel(function, f64, 8)(x), exact, limit, x)


@needs_x86
@needs_long_double
@pytest.mark.parametrize("function", [F.EXP, F.LOG, F.TANH, F.SIN, F.SINH])
def test_f64_is_accurate_without_fma(function: MathFunction) -> None:
    x = f64_samples(function, 1 << 13)
    check(function, kernel(function, f64, 8, BASELINE)(x), reference(function, x), LIMIT_F64, x)


def pairs(function: MathFunction, dtype: DType) -> tuple[Floats, Floats]:
    """Two operands with results of every size, and all pairs of special numbers."""
    random = np.random.default_rng(3)
    count = 1 << 16
    low, high = (-140, 120) if dtype == f32 else (-1000, 1000)
    a = np.ldexp(random.uniform(1, 2, count), random.integers(low, high, count))
    if function is F.POW:
        a[::2] = random.uniform(0.5, 2, count // 2)
        reach = 160 if dtype == f32 else 1080
        b = random.uniform(-reach, reach, count) / np.maximum(np.abs(np.log2(a)), 1e-5)
    else:
        a *= random.choice([-1, 1], count)
        b = a * np.ldexp(random.uniform(-2, 2, count), random.integers(-9, 9, count))
    whole = [0, 1, 2, 3, 2.0**23, 2.0**24 + 2, 2.0**23 + 1, 2.0**52 + 1, 2.0**53 - 1, 1e30]
    special = np.array([*whole, 0.5, 1.5, np.inf, np.nan, 1e-45, 3e38, 1e-38, 1 + 2**-23, 1 - 2**-24])
    special = np.concatenate([special, -special])
    x, y = np.meshgrid(special, special)
    with np.errstate(over="ignore"):
        first = converted(np.concatenate([a, x.ravel()]), dtype)
        second = converted(np.concatenate([b, y.ravel()]), dtype)
    return padded(first), padded(second)


@pytest.mark.parametrize("function", [F.POW, F.ATAN2])
@pytest.mark.parametrize("dtype", [f32, pytest.param(f64, marks=needs_long_double)])
def test_two_operands(function: MathFunction, dtype: DType) -> None:
    a, b = pairs(function, dtype)
    check(function, kernel(function, dtype, 8)(a, b), reference(function, a, b), LIMIT_F64, a, b)


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", [f32, f64])
@pytest.mark.parametrize("function", list(F))
def test_any_number_of_lanes_gives_the_same_bits(function: MathFunction, dtype: DType) -> None:
    random = np.random.default_rng(11)
    size = 64 * 5
    inputs = [converted(random.uniform(-3, 3, size), dtype) for _ in range(2 if function in TWO_OPERANDS else 1)]
    inputs[0][::9] = [2e7, -1e30, np.inf, np.nan, 0.0, -0.0] * 6
    expected = kernel(function, dtype)(*inputs)
    for lanes in (1, 5, 64):
        np.testing.assert_array_equal(kernel(function, dtype, lanes)(*inputs), expected)


@pytest.mark.parametrize("dtype", [f32, f64])
@pytest.mark.parametrize("function", UNARY)
def test_nan_stays_nan(function: MathFunction, dtype: DType) -> None:
    # Quiet ones with every bit of the payload, of both signs: a payload must not leak into an exponent.
    mantissa = 23 if dtype == f32 else 52
    quiet = ((1 << (dtype.bits - 1 - mantissa)) - 1) << mantissa | 1 << (mantissa - 1)
    payloads = [quiet | 1 << i for i in range(mantissa)] + [quiet]
    negative = [1 << (dtype.bits - 1) | payload for payload in payloads]
    bits = np.array(payloads + negative, f"u{dtype.itemsize}")
    assert np.isnan(kernel(function, dtype)(padded(bits.view(np.float32 if dtype == f32 else np.float64)))).all()


ODD = [F.TANH, F.ERF, F.SIN, F.TAN, F.ASIN, F.ATAN, F.SINH, F.ASINH, F.ATANH]


@pytest.mark.parametrize("function", ODD)
def test_odd_functions_are_odd(function: MathFunction) -> None:
    x = f32_samples()[::3]
    positive, negative = kernel(function)(padded(x)), kernel(function)(padded(-x))
    np.testing.assert_array_equal(positive, -negative)
    zeros = kernel(function)(padded(np.array([0.0, -0.0], np.float32)))
    np.testing.assert_array_equal(np.signbit(zeros), np.arange(64) % 2 == 1)


def neighbours(x: float) -> Floats:
    """The two float32 numbers on both sides of x."""
    near = np.float32(x)
    above = near if float(near) > x else np.nextafter(near, np.float32(np.inf))
    return np.array([np.nextafter(above, np.float32(-np.inf)), above], np.float32)


def test_exp_overflows_and_underflows_where_it_must() -> None:
    def exp(x: Floats) -> list[float]:
        return kernel(F.EXP)(padded(x))[:2].tolist()

    top = float(np.log(np.float64(np.finfo(np.float32).max) * (1 + 2.0**-25)))
    finite, infinite = exp(neighbours(top))
    assert np.isfinite(finite)
    assert infinite == np.inf
    zero, least = exp(neighbours(-150 * float(np.log(2))))
    assert zero == 0
    assert least == 2.0**-149


def test_integer_powers_of_two_are_exact() -> None:
    exponents = np.arange(-149, 128)
    exact = np.ldexp(np.float32(1), exponents)
    result = kernel(F.EXP2)(padded(exponents.astype(np.float32)))
    np.testing.assert_array_equal(result[: exact.size], exact)


CALL = re.compile(r"^\s*(?:callq?|bl|tail|jal)\s+(?:ra,\s*)?(\S+)", re.MULTILINE)


@pytest.mark.share(3)
@pytest.mark.parametrize("arch", list(Architecture))
@pytest.mark.parametrize("function", list(F))
def test_no_library_is_called(function: MathFunction, arch: Architecture) -> None:
    reduces = function in (F.SIN, F.COS, F.TAN)
    for dtype in (f32, f64):
        called = CALL.findall(compile_assembly(kernel_text(function, dtype, 8), Target.of(arch)))
        assert bool(called) == reduces
        assert all(name.startswith("tw_reduce_") for name in called)


def test_wrong_uses_are_internal_errors() -> None:
    class Refuses:
        def emit(self, text: str) -> str:
            raise AssertionError(text)

        def declare(self, text: str) -> None:
            raise AssertionError(text)

    with pytest.raises(InternalError, match="f16"):
        emit_math(Refuses(), F.EXP, ["%x"], dtypes.f16, 8)
    with pytest.raises(InternalError, match="`pow` does not take 1"):
        emit_math(Refuses(), F.POW, ["%x"], f32, 8)
    with pytest.raises(InternalError, match="`exp` does not take 2"):
        emit_math(Refuses(), F.EXP, ["%x", "%y"], f32, 8)


@pytest.mark.slow
@pytest.mark.parametrize("without_fma", [False, pytest.param(True, marks=needs_x86)])
@pytest.mark.parametrize("function", ACCEPTANCE)
def test_every_f32(function: MathFunction, without_fma: bool) -> None:
    compiled = kernel(function, target=BASELINE if without_fma else None)
    limit = LIMIT_F32.get(function, LIMIT)
    chunk = 1 << 22
    worst = 0.0
    for start in range(0, 1 << 32, chunk):
        x = np.arange(start, start + chunk, dtype=np.int64).astype(np.uint32).view(np.float32)
        worst = max(worst, check(function, compiled(x), reference(function, x), limit, x))
    print(f"{function.value}: {worst:.4f} ulp{' without FMA' if without_fma else ''}")


def test_constants_keep_the_sign_of_zero() -> None:
    """Whichever comes first."""
    unit = Unit(_NoInstructions(), f32, 1)
    texts = [unit.constant(value).name for value in (0.0, -0.0, 0.0)]
    assert texts == ["0x0000000000000000", "0x8000000000000000", "0x0000000000000000"]


class _NoInstructions:
    def emit(self, text: str) -> str:
        raise AssertionError(text)

    def declare(self, text: str) -> None:
        raise AssertionError(text)
