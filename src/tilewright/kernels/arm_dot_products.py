"""Dot products of AArch64 (Arm's Architecture Reference Manual, C7), for registers of 128 bits.

``sdot`` (dotprod) multiplies signed bytes, ``usdot`` (i8mm) unsigned by signed ones; both are exact, modulo 2**32. What
has another sign is moved by 128 where there is no ``usdot``, and 128 times the sum of the other factors is added: a
second ``sdot``, which all columns, or all rows of a tile share. ``bfdot`` (bf16) adds two products in f32, rounded to
odd, and treats denormal numbers as 0.
"""

from functools import cache

from tilewright.base.dtypes import bf16, f32, i8, i32, u8
from tilewright.kernels.dot_descriptions import broadcast, declared, dot_product, product_of_nibbles, splat
from tilewright.schedule.intrinsics import TensorIntrinsic

LANES = 4
_SIGN = splat(16, "i8", -128)
"""What moves numbers by 128: as a term, or as the bit that differs."""
_ALL = broadcast("%a.all", "%a", "i8", 4, LANES)
_DOT = "declare <4 x i32> @llvm.aarch64.neon.{name}.v4i32.v16i8(<4 x i32>, <16 x i8>, <16 x i8>)"


@cache
def arm_dot_products() -> tuple[TensorIntrinsic, ...]:
    """All of them; of those with one description, the fastest first."""
    plain, codes, signed = (dot_product(LANES, *types, i32) for types in ((u8, i8), (i8, u8), (i8, i8)))
    bfloats, old = dot_product(LANES, bf16, bf16, f32), ("dotprod",)
    moved = {
        "sdot_unsigned": (plain, _moved("sdot_unsigned", "%a.all", "%b")),
        "sdot_bytes": (codes, _moved("sdot_bytes", "%b", "%a.all")),
    }
    return (
        declared("usdot", plain, _dot("usdot", "usdot", "%a.all", "%b"), ("i8mm",)),
        declared("sdot", signed, _dot("sdot", "sdot", "%a.all", "%b"), old),
        declared("usdot_bytes", codes, _dot("usdot_bytes", "usdot", "%b", "%a.all"), ("i8mm",)),
        declared("sdot_nibbles", product_of_nibbles(LANES), _dot_of_nibbles(), old),
        declared("bfdot", bfloats, _dot_of_bfloats(), ("bf16",)),
        *(declared(name, *both, old, multiply_adds=2, temporaries=6) for name, both in moved.items()),
    )


def _call(instruction: str) -> str:
    return f"call <4 x i32> @llvm.aarch64.neon.{instruction}.v4i32.v16i8"


def _dot(name: str, instruction: str, first: str, second: str) -> str:
    return f"""
define <4 x i32> @{name}_add(<4 x i8> %a, <16 x i8> %b, <4 x i32> %c) {{{_ALL}
  %sum = {_call(instruction)}(<4 x i32> %c, <16 x i8> {first}, <16 x i8> {second})
  ret <4 x i32> %sum
}}
{_DOT.format(name=instruction)}
"""


def _moved(name: str, unsigned: str, signed: str) -> str:
    """``sum(u s) = sum((u - 128) s) - sum(-128 s)``."""
    dot = _call("sdot")
    return f"""
define <4 x i32> @{name}_add(<4 x i8> %a, <16 x i8> %b, <4 x i32> %c) {{{_ALL}
  %moved = xor <16 x i8> {unsigned}, {_SIGN}
  %less = {dot}(<4 x i32> zeroinitializer, <16 x i8> {signed}, <16 x i8> {_SIGN})
  %some = {dot}(<4 x i32> %c, <16 x i8> %moved, <16 x i8> {signed})
  %sum = sub <4 x i32> %some, %less
  ret <4 x i32> %sum
}}
{_DOT.format(name="sdot")}
"""


def _dot_of_nibbles() -> str:
    dot = _call("sdot")
    return f"""
define <4 x i32> @sdot_nibbles_add(<4 x i8> %a, <16 x i8> %b, <4 x i8> %d, <4 x i32> %c) {{{_ALL}{
        broadcast("%d.all", "%d", "i8", 4, LANES)
    }
  %low = and <16 x i8> %b, {splat(16, "i8", 15)}
  %high = lshr <16 x i8> %b, {splat(16, "i8", 4)}
  %some = {dot}(<4 x i32> %c, <16 x i8> %low, <16 x i8> %a.all)
  %sum = {dot}(<4 x i32> %some, <16 x i8> %high, <16 x i8> %d.all)
  ret <4 x i32> %sum
}}
{_DOT.format(name="sdot")}
"""


def _dot_of_bfloats() -> str:
    return f"""
define <4 x float> @bfdot_add(<2 x bfloat> %a, <8 x bfloat> %b, <4 x float> %c) {{{
        broadcast("%all", "%a", "bfloat", 2, LANES)
    }
  %sum = call <4 x float> @llvm.aarch64.neon.bfdot.v4f32.v8bf16(<4 x float> %c, <8 x bfloat> %all, <8 x bfloat> %b)
  ret <4 x float> %sum
}}
declare <4 x float> @llvm.aarch64.neon.bfdot.v4f32.v8bf16(<4 x float>, <8 x bfloat>, <8 x bfloat>)
"""
