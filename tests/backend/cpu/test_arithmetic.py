"""Every operation on every dtype, as scalars and as lanes, against the NumPy evaluator."""

import re

import numpy as np
import pytest

from tests.backend.cpu.support import Array, run_native
from tilewright.backend.cpu.backend import CPU
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.base.processors import Architecture
from tilewright.base.settings import Stage
from tilewright.loops.ir import Buffer, If, Loop, LoopKind, Stmt, Store
from tilewright.loops.program import Program
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_cast, evaluate_unary
from tilewright.symbolic.expr import Expr, Read, Var, binary, cast, const, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import all_of, substitute
from tilewright.target.target import Target

COUNT = 331  # prime: the last vector is never full
EXACT_UNARY = (
    UnaryOp.NEG,
    UnaryOp.NOT,
    UnaryOp.ABS,
    UnaryOp.FLOOR,
    UnaryOp.CEIL,
    UnaryOp.ROUND,
    UnaryOp.TRUNC,
    UnaryOp.FLUSH,
    UnaryOp.SQRT,
    UnaryOp.ISNAN,
    UnaryOp.ISINF,
)
INEXACT = {BinaryOp.ATAN2, BinaryOp.POW}  # of floats: tests/backend/cpu/test_vecmath.py bounds their errors


def samples(dtype: DType, seed: int) -> Array:
    """Special values and random ones."""
    random = np.random.default_rng(seed)
    if dtype.is_bool:
        return random.integers(0, 2, COUNT).astype(np.bool_)
    if dtype.is_int:
        low, high = int(dtype.min), int(dtype.max)
        special = [
            v for v in (0, 1, -1, 2, -7, 7, 8, low, high, low + 1, dtype.bits, dtype.bits - 1) if low <= v <= high
        ]
        values = [*special * 8, *random.integers(low, high, COUNT, dtype=dtype.numpy, endpoint=True).tolist()][:COUNT]
        random.shuffle(values)
        return np.array(values, dtype.numpy)
    special = [
        0.0,
        -0.0,
        1e-40,
        -1e-310,
        1.0,
        -1.0,
        2.5,
        -2.5,
        0.5,
        1e-3,
        np.inf,
        -np.inf,
        np.nan,
        3e4,
        -3e4,
        1e30,
        -1e30,
        300.0,
    ]
    values = [*special * 6, *(random.standard_normal(COUNT) * 10).tolist()][:COUNT]
    random.shuffle(values)
    with np.errstate(over="ignore"):
        return np.array(values, np.float64).astype(dtype.numpy)


def program(buffers: list[Buffer], value: Expr, result: DType, kind: LoopKind) -> Program:
    out = Buffer("out", result, (const(COUNT),))
    i, j = Var("i"), Var("j")
    flat = i * 32 + j
    store: Stmt = Store(out, (flat,), substitute(value, {Var("at"): flat}))
    inner = Loop(j, const(32), If(all_of(flat < COUNT), store), kind)
    return Program("k", (*buffers, out), Loop(i, const(-(-COUNT // 32)), inner))


def check(value: Expr, buffers: list[Buffer], feeds: dict[str, Array], expected: Array, kind: LoopKind) -> None:
    (result,) = run_native(program(buffers, value, value.dtype, kind), feeds)
    same = (result == expected) | ((result != result) & (expected != expected))
    wrong = np.flatnonzero(~same)
    detail = {name: feed[wrong[:5]] for name, feed in feeds.items()}
    assert not wrong.size, f"{value}: {detail} gives {result[wrong[:5]]}, not {expected[wrong[:5]]}"


KINDS = [LoopKind.SERIAL, LoopKind.VECTORIZED]


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_binary(dtype: DType, kind: LoopKind) -> None:
    a, b = (Buffer(name, dtype, (const(COUNT),)) for name in "ab")
    x, y = Read(a, (Var("at"),)), Read(b, (Var("at"),))
    feeds = {"a": samples(dtype, 1), "b": samples(dtype, 2)}
    for op in BinaryOp:
        try:
            value = binary(op, x, y)
        except BadProgram:
            continue
        if dtype.is_float and op in (*INEXACT, BinaryOp.MOD, BinaryOp.TRUNCMOD):
            continue
        with np.errstate(all="ignore"):
            expected = evaluate_binary(op, feeds["a"], feeds["b"], dtype)
        check(value, [a, b], feeds, expected, kind)


@pytest.mark.parametrize("divisor", [1, 3, 8, -1, -8, 0])
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.i32, dtypes.i64], ids=str)
def test_division_by_a_literal(dtype: DType, divisor: int) -> None:
    a = Buffer("a", dtype, (const(COUNT),))
    feeds = {"a": samples(dtype, 3)}
    for op in (BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD):
        value = binary(op, Read(a, (Var("at"),)), const(divisor, dtype))
        expected = evaluate_binary(op, feeds["a"], np.full(COUNT, divisor, dtype.numpy), dtype)
        if value.dtype == dtype:
            check(value, [a], feeds, expected, LoopKind.VECTORIZED)


@pytest.mark.parametrize("exponent", [0, 1, 2, 7, 100, -1, -2])
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.i32, dtypes.u64], ids=str)
def test_integer_power_of_a_literal(dtype: DType, exponent: int) -> None:
    if exponent >= dtype.min:
        a = Buffer("a", dtype, (const(COUNT),))
        feeds = {"a": samples(dtype, 3)}
        value = binary(BinaryOp.POW, Read(a, (Var("at"),)), const(exponent, dtype))
        expected = evaluate_binary(BinaryOp.POW, feeds["a"], np.full(COUNT, exponent, dtype.numpy), dtype)
        check(value, [a], feeds, expected, LoopKind.VECTORIZED)


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_exact_unary(dtype: DType, kind: LoopKind) -> None:
    a = Buffer("a", dtype, (const(COUNT),))
    feeds = {"a": samples(dtype, 4)}
    for op in EXACT_UNARY:
        try:
            value = unary(op, Read(a, (Var("at"),)))
        except BadProgram:
            continue
        with np.errstate(all="ignore"):
            check(value, [a], feeds, evaluate_unary(op, feeds["a"]), kind)


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_cast(dtype: DType, kind: LoopKind) -> None:
    a = Buffer("a", dtype, (const(COUNT),))
    feeds = {"a": samples(dtype, 5)}
    for target in dtypes.ALL:
        if target != dtype:
            with np.errstate(all="ignore"):
                expected = evaluate_cast(feeds["a"], target)
            check(cast(Read(a, (Var("at"),)), target), [a], feeds, expected, kind)


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED])
def test_f16_is_converted_to_integers_by_f32(kind: LoopKind) -> None:
    """LLVM's own conversion of NaN is wrong where processors have f16 arithmetic (AVX512-FP16)."""
    a, out, i = Buffer("a", dtypes.f16, (const(8),)), Buffer("out", dtypes.i16, (const(8),)), Var("i")
    program = Program("k", (a, out), Loop(i, const(8), Store(out, (i,), cast(Read(a, (i,)), dtypes.i16)), kind))
    text = CPU.listing(program, Target.parse("x86_64,sapphirerapids"), Stage.LLVM)
    assert re.search(r"fptosi (<8 x )?float", text)
    assert not re.search(r"fpto[us]i.*(f16|half)", text)


def test_vectors_of_bytes_are_saturated_by_instructions_for_vectors() -> None:
    """LLVM computes ``fptoui.sat`` of vectors lane by lane if the lanes of the result are narrower than 32 bits."""
    a, out, i = Buffer("a", dtypes.f32, (const(64),)), Buffer("out", dtypes.u8, (const(64),)), Var("i")
    store = Store(out, (i,), cast(Read(a, (i,)), dtypes.u8))
    program = Program("k", (a, out), Loop(i, const(64), store, LoopKind.VECTORIZED))
    text = CPU.listing(program, Target.parse("x86_64,znver4"), Stage.ASM)
    assert "vpmovdb" in text
    assert "cvttss2si" not in text


@pytest.mark.parametrize("lanes", [LoopKind.SERIAL, LoopKind.VECTORIZED])
def test_f64_is_rounded_to_f16_once(lanes: LoopKind) -> None:
    """Just above the middle of two f16 numbers: f32 would be the middle itself, which rounds down to even."""
    a, out, i = Buffer("a", dtypes.f64, (const(4),)), Buffer("out", dtypes.f16, (const(4),)), Var("i")
    store = Store(out, (i,), cast(Read(a, (i,)), dtypes.f16))
    middle = 1 + 2.0**-11
    values = np.array([middle + 2.0**-40, middle, middle - 2.0**-40, -middle - 2.0**-40])
    (result,) = run_native(Program("k", (a, out), Loop(i, const(4), store, lanes)), {"a": values})
    np.testing.assert_array_equal(result, values.astype(np.float16))
    np.testing.assert_array_equal(result.astype(np.float64), [1 + 2.0**-10, 1, 1, -1 - 2.0**-10])


@pytest.mark.parametrize("kind", KINDS)
def test_atan2_takes_the_ordinate_first(kind: LoopKind) -> None:
    a, b = (Buffer(name, dtypes.f64, (const(COUNT),)) for name in "ab")
    feeds = {"a": samples(dtypes.f64, 6), "b": samples(dtypes.f64, 7)}
    value = binary(BinaryOp.ATAN2, Read(a, (Var("at"),)), Read(b, (Var("at"),)))
    (result,) = run_native(program([a, b], value, value.dtype, kind), feeds)
    np.testing.assert_allclose(result, np.arctan2(feeds["a"], feeds["b"]), rtol=1e-14)


@pytest.mark.parametrize(
    ("processor", "own", "converted"),
    [
        ("x86_64,sapphirerapids", r"vfmadd\w+ph\t.*%zmm|vdivph\t.*%zmm", r"vcvt"),
        ("aarch64,cortex-a76", r"fmla\tv\d+\.8h|fdiv\tv\d+\.8h", r"fcvt"),
        ("x86_64,znver4", r"vfmadd\w+ps\t|vdivps\t", r"vcvtps2ph"),
        ("aarch64,cortex-a72", r"fmla\tv\d+\.4s|fdiv\tv\d+\.4s", r"fcvtn"),
    ],
)
def test_f16_is_computed_by_processors_that_have_it(processor: str, own: str, converted: str) -> None:
    """Others compute each operation in f32. Minima, comparisons and functions are in f32 everywhere."""
    a, b, out = (Buffer(name, dtypes.f16, (const(64),)) for name in ("a", "b", "out"))
    i = Var("i")
    x, y = Read(a, (i,)), Read(b, (i,))
    store = Store(out, (i,), (x * y + const(0.5, dtypes.f16)) / (y - const(2.0, dtypes.f16)))
    program = Program("k", (a, b, out), Loop(i, const(64), store, LoopKind.VECTORIZED))
    text = CPU.listing(program, Target.parse(processor), Stage.ASM)
    has_it = processor in ("x86_64,sapphirerapids", "aarch64,cortex-a76")
    assert len(set(re.findall(own, text))) >= (2 if has_it else 1)
    assert bool(re.search(converted, text)) is not has_it


def halves_and_between() -> Array:
    """All numbers of f16, what lies in the middle between two, and the numbers of f32 beside that."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.unique(np.abs(halves[np.isfinite(halves)]).astype(np.float64))
    middles = np.append((finite[1:] + finite[:-1]) / 2, 65520.0).astype(np.float32)  # from there on: infinite
    near = [np.nextafter(middles, np.float32(end)) for end in (0, np.inf)]
    other = np.float32([1e-30, 2.0**-149, 65536, 1e30, np.finfo(np.float32).max])
    positive = np.concatenate([middles, *near, other])
    return np.concatenate([halves, positive, -positive])


@pytest.mark.parametrize("kind", KINDS)
def test_f16_is_converted_by_processors_without_instructions_for_it(kind: LoopKind) -> None:
    """LLVM would call functions of the compiler's own library, which no image has."""
    if Target.host().arch is not Architecture.X86_64:
        pytest.skip("code for x86-64 without F16C")
    target, wide = Target.parse("x86_64"), halves_and_between()
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float16)
    for given, expected in ((wide, narrow), (narrow, narrow.astype(np.float32))):
        count = len(given) // 8 * 8
        source, result = (dtypes.from_numpy(array.dtype) for array in (given, expected))
        a, out = Buffer("a", source, (const(count),)), Buffer("out", result, (const(count),))
        outer, inner = Var("i"), Var("lane")
        at = (outer * 8 + inner,)
        store = Loop(inner, const(8), Store(out, at, cast(Read(a, at), result)), kind)
        whole = Program("k", (a, out), Loop(outer, const(count // 8), store, LoopKind.SERIAL))
        (found,) = run_native(whole, {"a": given[:count]}, target=target)
        np.testing.assert_array_equal(found, expected[:count])
        assert (np.signbit(found) == np.signbit(expected[:count])).all()


@pytest.mark.parametrize("processor", ["x86_64", "riscv64", "wasm32"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.i32, dtypes.boolean, dtypes.bf16])
def test_no_conversion_of_f16_is_a_call(processor: str, dtype: DType) -> None:
    i = Var("i")
    for given, wanted in ((dtype, dtypes.f16), (dtypes.f16, dtype)):
        a, out = Buffer("a", given, (const(16),)), Buffer("out", wanted, (const(16),))
        store = Store(out, (i,), cast(Read(a, (i,)), wanted))
        text = CPU.listing(
            Program("k", (a, out), Loop(i, const(16), store, LoopKind.VECTORIZED)), Target.parse(processor), Stage.ASM
        )
        assert not re.search(r"__\w+[hb]f", text)
