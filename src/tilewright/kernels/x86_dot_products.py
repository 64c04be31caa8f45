"""Dot products of x86 (Intel's manual, volume 2), for registers of 128, 256 and 512 bits.

``vpdpbusd`` (AVX-512 VNNI, AVX-VNNI) multiplies unsigned by signed bytes, and is exact, modulo 2**32. ``vdpbf16ps``
adds the second product of a pair first, each rounded to nearest even; it treats denormal numbers as 0.

Older processors multiply words of 16 bits: ``pmaddwd`` adds the products of two neighbours in 32 bits, which can't
overflow for bytes. A mask or shifts make words of the even and of the odd bytes, in the order in which they are stored,
so that panels have the same layout; or data are words already, and pairs of them are broadcast. ``pmaddubsw``
multiplies bytes, but its sums of two products saturate at 16 bits. It is used where no operands can reach that: for
weights that are ``limited``, and for codes of 4 bits, where even two sums are at most 15 * 128 * 2 * 2 = 7680.
"""

from dataclasses import dataclass
from functools import cache

from tilewright.base.dtypes import DType, bf16, f32, i8, i16, i32, u8
from tilewright.kernels.dot_descriptions import broadcast, declared, dot_product, product_of_nibbles, splat, vector
from tilewright.ops.dot_products import LIMIT
from tilewright.schedule.intrinsics import TensorIntrinsic


@dataclass(frozen=True, slots=True)
class _Registers:
    """Registers of ``bits``; ``suffix`` of names of instructions for them."""

    bits: int
    suffix: str
    words: str
    """LLVM's name of ``pmaddwd``."""
    bytes: str
    """LLVM's name of ``pmaddubsw``."""
    feature: str
    """Has both."""

    @property
    def lanes(self) -> int:
        return self.bits // 32

    @property
    def of_i8(self) -> str:
        return vector(self.bits // 8, "i8")

    @property
    def of_i16(self) -> str:
        return vector(self.bits // 16, "i16")

    @property
    def of_i32(self) -> str:
        return vector(self.bits // 32, "i32")

    def words_of(self, number: int) -> str:
        """A constant."""
        return splat(self.bits // 16, "i16", number)


_XMM = _Registers(128, "_xmm", "sse2.pmadd.wd", "ssse3.pmadd.ub.sw.128", "ssse3")
_YMM = _Registers(256, "_ymm", "avx2.pmadd.wd", "avx2.pmadd.ub.sw", "avx2")
_ZMM = _Registers(512, "_zmm", "avx512.pmaddw.d.512", "avx512.pmaddubs.w.512", "avx512bw")


@cache
def x86_dot_products() -> tuple[TensorIntrinsic, ...]:
    """All of them; of those with one description, the fastest first."""
    return (
        *_dots(_ZMM, "", "avx512vnni"),
        _bfloats(),
        *_dots(_YMM, _YMM.suffix, "avxvnni"),
        *(one for registers in (_ZMM, _YMM, _XMM) for one in _multiplied(registers)),
    )


def _dots(r: _Registers, suffix: str, feature: str) -> tuple[TensorIntrinsic, ...]:
    """By ``vpdpbusd``. For codes, it has the signed numbers broadcast."""
    plain, codes, nibbles = (f"vpdpbusd{kind}{suffix}" for kind in ("", "_bytes", "_nibbles"))
    return (
        declared(plain, dot_product(r.lanes, u8, i8, i32), _dot(r, plain, "%a.all", "%b"), (feature,)),
        declared(codes, dot_product(r.lanes, i8, u8, i32), _dot(r, codes, "%b", "%a.all"), (feature,)),
        declared(nibbles, product_of_nibbles(r.lanes), _dot_of_nibbles(r, nibbles), (feature,)),
    )


def _dot(r: _Registers, name: str, unsigned: str, signed: str) -> str:
    return f"""
define {r.of_i32} @{name}_add(<4 x i8> %a, {r.of_i8} %b, {r.of_i32} %c) {{{_all(r, "%a")}
  %sum = call {r.of_i32} @llvm.x86.avx512.vpdpbusd.{r.bits}({r.of_i32} %c, {r.of_i8} {unsigned}, {r.of_i8} {signed})
  ret {r.of_i32} %sum
}}
{_declaration_of_dot(r)}
"""


def _dot_of_nibbles(r: _Registers, name: str) -> str:
    dot = f"call {r.of_i32} @llvm.x86.avx512.vpdpbusd.{r.bits}"
    return f"""
define {r.of_i32} @{name}_add(<4 x i8> %a, {r.of_i8} %b, <4 x i8> %d, {r.of_i32} %c) {{{_nibbles(r)}
  %some = {dot}({r.of_i32} %c, {r.of_i8} %low, {r.of_i8} %a.all)
  %sum = {dot}({r.of_i32} %some, {r.of_i8} %high, {r.of_i8} %d.all)
  ret {r.of_i32} %sum
}}
{_declaration_of_dot(r)}
"""


def _declaration_of_dot(r: _Registers) -> str:
    return f"declare {r.of_i32} @llvm.x86.avx512.vpdpbusd.{r.bits}({r.of_i32}, {r.of_i8}, {r.of_i8})"


def _bfloats() -> TensorIntrinsic:
    text = f"""
define <16 x float> @vdpbf16ps_add(<2 x bfloat> %a, <32 x bfloat> %b, <16 x float> %c) {{{
        broadcast("%all", "%a", "bfloat", 2, 16)
    }
  %sum = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %c, <32 x bfloat> %all, <32 x bfloat> %b)
  ret <16 x float> %sum
}}
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
"""
    return declared("vdpbf16ps", dot_product(16, bf16, bf16, f32), text, ("avx512bf16",))


def _multiplied(r: _Registers) -> tuple[TensorIntrinsic, ...]:
    """By ``pmaddwd`` and ``pmaddubsw``. Two additions and the words of a row are about as much again."""
    kinds = {"pmaddwd": (u8, i8), "pmaddwd_signed": (i8, i8), "pmaddwd_bytes": (i8, u8)}
    limits, nibbles = f"pmaddubsw{r.suffix}", f"pmaddubsw_nibbles{r.suffix}"
    features = (r.feature,)
    return (
        declared(
            limits,
            dot_product(r.lanes, u8, i8, i32, is_limited=True),
            _products_of_limited(r, limits),
            features,
            multiply_adds=2,
            temporaries=3,
        ),
        *(
            declared(
                f"{kind}{r.suffix}",
                dot_product(r.lanes, *types, i32),
                _products(r, f"{kind}{r.suffix}", *types),
                features,
                multiply_adds=2,
                temporaries=4,
            )
            for kind, types in kinds.items()
        ),
        *(
            declared(
                name,
                dot_product(r.lanes, i16, right, i32),
                _products_of_words(r, name, right),
                features,
                temporaries=1,
            )
            for name, right in ((f"pmaddwd_words{r.suffix}", i8), (f"pmaddwd_pairs{r.suffix}", i16))
        ),
        declared(
            nibbles,
            product_of_nibbles(r.lanes),
            _products_of_nibbles(r, nibbles),
            features,
            multiply_adds=2,
            temporaries=3,
        ),
    )


def _products(r: _Registers, name: str, left: DType, right: DType) -> str:
    multiply = f"call {r.of_i32} @llvm.x86.{r.words}"
    return f"""
define {r.of_i32} @{name}_add(<4 x i8> %a, {r.of_i8} %b, {r.of_i32} %c) {{{_all(r, "%a")}{_halves(r, "%a.all", left)}{
        _halves(r, "%b", right)
    }
  %even = {multiply}({r.of_i16} %a.all.even, {r.of_i16} %b.even)
  %odd = {multiply}({r.of_i16} %a.all.odd, {r.of_i16} %b.odd)
  %four = add {r.of_i32} %even, %odd
  %sum = add {r.of_i32} %c, %four
  ret {r.of_i32} %sum
}}
declare {r.of_i32} @llvm.x86.{r.words}({r.of_i16}, {r.of_i16})
"""


def _halves(r: _Registers, given: str, dtype: DType) -> str:
    """The even and the odd bytes of ``given`` in words."""
    eight = r.words_of(8)
    words = f"\n  {given}.words = bitcast {r.of_i8} {given} to {r.of_i16}"
    if dtype == u8:
        return f"""{words}
  {given}.even = and {r.of_i16} {given}.words, {r.words_of(255)}
  {given}.odd = lshr {r.of_i16} {given}.words, {eight}"""
    return f"""{words}
  {given}.up = shl {r.of_i16} {given}.words, {eight}
  {given}.even = ashr {r.of_i16} {given}.up, {eight}
  {given}.odd = ashr {r.of_i16} {given}.words, {eight}"""


def _products_of_words(r: _Registers, name: str, right: DType) -> str:
    """Bytes of a panel are widened as they are loaded, once for all rows."""
    panel = vector(r.bits // 16, str(right))
    widened = f"\n  %words = sext {panel} %b to {r.of_i16}" if right == i8 else ""
    words = "%words" if right == i8 else "%b"
    return f"""
define {r.of_i32} @{name}_add(<2 x i16> %a, {panel} %b, {r.of_i32} %c) {{{broadcast("%a.all", "%a", "i16", 2, r.lanes)}{
        widened
    }
  %two = call {r.of_i32} @llvm.x86.{r.words}({r.of_i16} %a.all, {r.of_i16} {words})
  %sum = add {r.of_i32} %c, %two
  ret {r.of_i32} %sum
}}
declare {r.of_i32} @llvm.x86.{r.words}({r.of_i16}, {r.of_i16})
"""


def _products_of_limited(r: _Registers, name: str) -> str:
    """The limits are written out, so that no weight gives another result than the description; rows share them."""
    most, least = (f"call {r.of_i8} @llvm.{one}.v{r.bits // 8}i8" for one in ("smax", "smin"))
    return f"""
define {r.of_i32} @{name}_add(<4 x i8> %a, {r.of_i8} %b, {r.of_i32} %c) {{{_all(r, "%a")}
  %above = {most}({r.of_i8} %b, {r.of_i8} {splat(r.bits // 8, "i8", -LIMIT)})
  %weight = {least}({r.of_i8} %above, {r.of_i8} {splat(r.bits // 8, "i8", LIMIT)})
  %pairs = call {r.of_i16} @llvm.x86.{r.bytes}({r.of_i8} %a.all, {r.of_i8} %weight)
  %four = call {r.of_i32} @llvm.x86.{r.words}({r.of_i16} %pairs, {r.of_i16} {r.words_of(1)})
  %sum = add {r.of_i32} %c, %four
  ret {r.of_i32} %sum
}}
declare {r.of_i8} @llvm.smax.v{r.bits // 8}i8({r.of_i8}, {r.of_i8})
declare {r.of_i8} @llvm.smin.v{r.bits // 8}i8({r.of_i8}, {r.of_i8})
declare {r.of_i16} @llvm.x86.{r.bytes}({r.of_i8}, {r.of_i8})
declare {r.of_i32} @llvm.x86.{r.words}({r.of_i16}, {r.of_i16})
"""


def _products_of_nibbles(r: _Registers, name: str) -> str:
    multiply = f"call {r.of_i16} @llvm.x86.{r.bytes}"
    return f"""
define {r.of_i32} @{name}_add(<4 x i8> %a, {r.of_i8} %b, <4 x i8> %d, {r.of_i32} %c) {{{_nibbles(r)}
  %first = {multiply}({r.of_i8} %low, {r.of_i8} %a.all)
  %second = {multiply}({r.of_i8} %high, {r.of_i8} %d.all)
  %pairs = add {r.of_i16} %first, %second
  %eight = call {r.of_i32} @llvm.x86.{r.words}({r.of_i16} %pairs, {r.of_i16} {r.words_of(1)})
  %sum = add {r.of_i32} %c, %eight
  ret {r.of_i32} %sum
}}
declare {r.of_i16} @llvm.x86.{r.bytes}({r.of_i8}, {r.of_i8})
declare {r.of_i32} @llvm.x86.{r.words}({r.of_i16}, {r.of_i16})
"""


def _nibbles(r: _Registers) -> str:
    """Both halves of the bytes of ``%b``, and both broadcast operands."""
    count = r.bits // 8
    return f"""
  %low = and {r.of_i8} %b, {splat(count, "i8", 15)}
  %high = lshr {r.of_i8} %b, {splat(count, "i8", 4)}{_all(r, "%a")}{_all(r, "%d")}"""


def _all(r: _Registers, name: str) -> str:
    return broadcast(f"{name}.all", name, "i8", 4, r.lanes)
