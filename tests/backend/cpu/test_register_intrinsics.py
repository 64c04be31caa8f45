"""Intrinsics on registers: their code against NumPy and the interpreter, where operands are, and what is refused."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te
from tilewright.backend.cpu.image import assembly
from tilewright.base.dtypes import DType, bf16, f16, f32, i8, i32, u8
from tilewright.base.errors import BadProgram, UnsupportedTarget
from tilewright.compilation import build_program
from tilewright.kernels.dot_products import dot_products
from tilewright.loops.interpreter import interpret
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.target.target import Target

Array = NDArray[np.generic]

BEST = Target.parse("x86_64,znver5")
HOST = Target.host()
TYPES = {"vpdpbusd": (u8, i8, i32), "vdpbf16ps": (bf16, bf16, f32)}

# Adds twice the product: no processor has it, all of them can do it.
TWICE = """
define <4 x i32> @twice_add(<2 x i8> %a, <8 x i8> %b, <4 x i32> %c) {
  %word = bitcast <2 x i8> %a to i16
  %first = insertelement <4 x i16> poison, i16 %word, i64 0
  %each = shufflevector <4 x i16> %first, <4 x i16> poison, <4 x i32> zeroinitializer
  %all.a = bitcast <4 x i16> %each to <8 x i8>
  %wide.a = zext <8 x i8> %all.a to <8 x i32>
  %"wide b" = sext <8 x i8> %b to <8 x i32> ; a comment
  %products = mul <8 x i32> %wide.a, %"wide b"
  %even = shufflevector <8 x i32> %products, <8 x i32> poison, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %odd = shufflevector <8 x i32> %products, <8 x i32> poison, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %sum = add <4 x i32> %even, %odd
  %new = add <4 x i32> %sum, %c
  ret <4 x i32> %new
}
"""


def pairs(text: str = TWICE, features: tuple[str, ...] = ()) -> TensorIntrinsic:
    a, b = te.placeholder((2,), u8, "a"), te.placeholder((4, 2), i8, "b")
    k = te.reduce_axis((0, 2), name="k")
    c = te.compute((4,), lambda j: te.sum(te.cast(a[k], i32) * te.cast(b[j, k], i32), axis=k), name="c")
    texts = {"twice_add": text}
    return te.decl_tensor_intrin(
        c, "twice", reset="twice_zero", update="twice_add", implementations=texts, features=features
    )


def product(
    sizes: tuple[int, int, int],
    tile: tuple[int, int],
    intrinsic: TensorIntrinsic,
    types: tuple[DType, DType, DType],
    plain: bool = False,
) -> te.TeSchedule:
    """``A B`` by ``intrinsic``, in tiles of rows and of vectors; ``B`` is packed in groups, or ``plain``."""
    (m, n, depth), (rows, vectors) = sizes, tile
    lanes, group = (int(str(extent)) for extent in intrinsic.description.params[1].shape)
    left, right, wide = types
    a = te.placeholder((m, depth), left, "A")
    b = te.placeholder((n, depth) if plain else (n // lanes, depth // group, lanes, group), right, "B")
    ko, ki = te.reduce_axis((0, depth // group), "ko"), te.reduce_axis((0, group), "ki")

    def body(i: te.Expr, j: te.Expr) -> object:
        y = b[j, ko.var * group + ki.var] if plain else b[j // lanes, ko.var, j % lanes, ki.var]
        return te.sum(te.cast(a[i, ko.var * group + ki.var], wide) * te.cast(y, wide), axis=(ko, ki))

    c = te.compute((m, n), body, name="C")
    s = te.create_schedule(c)
    local = s.cache_write(c, "local")
    _, outer, inner, lane = s[c].tile(*c.op.axis, rows, lanes * vectors)
    s[local].compute_at(s[c], outer)
    y, x = local.op.axis
    xo, xi = s[local].split(x, factor=lanes)
    s[local].reorder(ko, y, xo, xi, ki)
    for loop in (y, xo):
        s[local].unroll(loop)
    s[local].tensorize(xi, intrinsic)
    s[c].unroll(inner)
    s[c].vectorize(lane)
    return s


def packed(b: Array, lanes: int, group: int) -> Array:
    depth, n = b.shape
    return np.ascontiguousarray(b.reshape(depth // group, group, n // lanes, lanes).transpose(2, 0, 3, 1))


def integers(m: int, n: int, depth: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(0)
    a = random.integers(0, 256, (m, depth), dtype=np.uint8)
    b = random.integers(-128, 128, (depth, n), dtype=np.int8)
    return a, b, a.astype(np.int32) @ b.astype(np.int32)


def run(s: te.TeSchedule, a: Array, b: Array, checked: bool = False) -> Array:
    return build_program(te.lower(s), HOST, threads=1, checked=checked).run({"A": a, "B": b})[0]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_any_instructions_on_registers(plain: bool, checked: bool) -> None:
    s = product((6, 16, 10), (3, 2), pairs(), (u8, i8, i32), plain)
    a, b, expected = integers(6, 16, 10)
    stored = np.ascontiguousarray(b.T) if plain else packed(b, 4, 2)
    np.testing.assert_array_equal(run(s, a, stored, checked), expected)
    np.testing.assert_array_equal(interpret(te.lower(s), {"A": a, "B": stored})["C"], expected)


def test_without_a_loop_around() -> None:
    s = product((2, 8, 2), (1, 1), pairs(), (u8, i8, i32))
    assert "twice_add" in str(s)
    a, b, expected = integers(2, 8, 2)
    np.testing.assert_array_equal(run(s, a, packed(b, 4, 2)), expected)


@pytest.mark.skipif(not HOST.has("avx512vnni"), reason="needs avx512vnni")
def test_bytes_are_exact() -> None:
    intrinsic = dot_products(HOST).get("vpdpbusd")
    assert intrinsic is not None
    s = product((14, 64, 64), (7, 2), intrinsic, (u8, i8, i32))
    a, b, _ = integers(14, 64, 64)
    a[0], b[:, 0] = 255, -128  # a saturating instruction would be wrong here
    np.testing.assert_array_equal(run(s, a, packed(b, 16, 4)), a.astype(np.int32) @ b.astype(np.int32))
    assert interpret(te.lower(s), {"A": a, "B": packed(b, 16, 4)})["C"][0, 0] == -128 * 255 * 64


@pytest.mark.skipif(not HOST.has("avx512bf16"), reason="needs avx512bf16")
def test_bf16_is_summed_in_f32() -> None:
    intrinsic = dot_products(HOST).get("vdpbf16ps")
    assert intrinsic is not None
    s = product((6, 32, 256), (6, 2), intrinsic, (bf16, bf16, f32))
    random = np.random.default_rng(0)
    a = random.standard_normal((6, 256)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((256, 32)).astype(ml_dtypes.bfloat16)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for found in (run(s, a, packed(b, 16, 2)), interpret(te.lower(s), {"A": a, "B": packed(b, 16, 2)})["C"]):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_f16_is_summed_in_f32_without_an_intrinsic() -> None:
    a, b = te.placeholder((4, 64), f16, "A"), te.placeholder((64, 32), f16, "B")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((4, 32), lambda i, j: te.sum(te.cast(a[i, k], f32) * te.cast(b[k, j], f32), axis=k), name="C")
    s = te.create_schedule(c)
    s[c].reorder(c.op.axis[0], k, c.op.axis[1])
    s[c].vectorize(c.op.axis[1])
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape).astype(np.float16) for shape in ((4, 64), (64, 32)))
    np.testing.assert_allclose(run(s, x, y), x.astype(np.float64) @ y.astype(np.float64), atol=1e-4)
    assert re.search(r"vcvtph2ps.*vfmadd", assembly(te.lower(s), BEST), re.DOTALL)


def test_the_example_of_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "intrinsics.md").read_text()
    names: dict[str, te.TeSchedule] = {}
    exec(text.split("```python\n")[2].split("```")[0], names)
    made = assembly(te.lower(names["s"]), BEST)
    assert (made.count("vpdpbusd"), made.count("vpbroadcastd")) == (24, 12)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_accumulators_stay_in_registers(name: str) -> None:
    intrinsic = dot_products(BEST).get(name)
    assert intrinsic is not None
    made = assembly(te.lower(product((24, 64, 64), (12, 2), intrinsic, TYPES[name])), BEST)
    lines = made.splitlines()
    at = [place for place, line in enumerate(lines) if name in line]
    inner = "\n".join(lines[at[0] : at[-1] + 1])
    assert len(at) == 24
    assert inner.count("vpbroadcastd") + inner.count("vbroadcastss") >= 8  # the others are before the first product
    assert not re.search(r"v\w*mov\w*\s+%zmm\d+, [^%]*\(", inner), "an accumulator is stored"
    assert "%rsp" not in inner


def test_only_what_the_processor_has() -> None:
    dots = ["vpdpbusd", "vpdpbusd_bytes", "vpdpbusd_nibbles", "vdpbf16ps"]
    known = [*dots, "pmaddubsw_zmm", "pmaddwd_signed_zmm", "pmaddwd_words_zmm", "pmaddwd_pairs_zmm"]
    assert [i.name for i in dot_products(BEST).intrinsics] == known
    old = Target.parse("x86_64")
    assert dot_products(old).intrinsics == dot_products(Target.parse("aarch64")).intrinsics == ()
    intrinsic = dot_products(BEST).get("vpdpbusd")
    assert intrinsic is not None
    s = product((4, 32, 8), (2, 1), intrinsic, (u8, i8, i32))
    with pytest.raises(UnsupportedTarget, match=r"vpdpbusd_add needs avx512vnni"):
        assembly(te.lower(s), old)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("%sum, %c", "%sim, %c", r"twice_add: LLVM refuses.*undefined value '%sim'"),
        ("@twice_add", "@other", r"twice_add: its implementation defines no function @twice_add"),
        ("<2 x i8> %a,", "<4 x i8> %a,", r"LLVM refuses"),
        ("<4 x i32> %c)", "<4 x i32> %c, i32 %more)", r"is of type `<4 x i32> \(<2 x i8>, <8 x i8>, <4 x i32>, i32\)`"),
        ("ret <4 x i32> %new", "br label %next\nnext:\n  ret <4 x i32> %new", "its implementation branches"),
        ("%new = add", "%at = alloca i32\n  %new = add", r"`%at = alloca i32.*` is not for registers"),
        ("%new = add", "%new = sdiv", "is not for registers"),
        ("%products = mul", "%products = call", "LLVM refuses"),
        ("define <4 x i32> @twice_add(", "define i32 @twice_add(", "LLVM refuses"),
    ],
)
def test_faults_of_implementations_are_named_when_declared(before: str, after: str, message: str) -> None:
    with pytest.raises(BadProgram, match=f"(?s){message}") as found:
        pairs(TWICE.replace(before, after, 1))
    assert "twice_add" in str(found.value)


def test_calls_must_touch_no_memory() -> None:
    fetch = "call void @llvm.prefetch.p0(ptr null, i32 0, i32 3, i32 1)"
    called = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n" + TWICE.replace("%new =", f"{fetch}\n  %new =")
    with pytest.raises(BadProgram, match="is not for registers"):
        pairs(called)


def test_faults_of_implementations_on_memory_are_named_when_declared() -> None:
    with pytest.raises(BadProgram, match=r"is of type `void \(ptr\)`; declared is `void \(ptr, ptr, i64, ptr\)`"):
        pairs("define void @twice_add(ptr %a) {\n  ret void\n}")


def test_features_are_known_ones() -> None:
    with pytest.raises(BadProgram, match=r"no processor feature .avx512_vnni.; did you mean avx512vnni"):
        pairs(features=("avx512_vnni",))
