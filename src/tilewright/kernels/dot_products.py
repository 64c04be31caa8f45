"""Dot-product instructions as tensor intrinsics: sums of a few products of narrow numbers in wide accumulators.

Each lane of a wide accumulator sums several products, so the reduction is packed in lanes, too: four bytes, or two
16-bit numbers. One operand is broadcast to all accumulators::

    c[j] = c[j] + a[0] * b[j, 0] + a[1] * b[j, 1] + ...       a: [4], b: [16, 4], c: [16]

x86 (Intel's manual, volume 2): ``vpdpbusd`` takes unsigned and signed bytes, and is exact, modulo 2**32. ``vdpbf16ps``
adds the second product of a pair first, each rounded to nearest even; it treats denormal numbers as 0.

For weights of 8 and 4 bits (``ops.weight_products``), the panel has the unsigned numbers, and the broadcast operand the
signed ones. Codes of 4 bits of two groups share bytes: a mask and a shift separate them in registers.
"""

from functools import cache

from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic, decl_tensor_intrin
from tilewright.symbolic.expr import Expr, cast, const
from tilewright.target.target import Architecture, Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

LANES = 16
"""Accumulators of 32 bits in a register of 512 bits."""

_LLVM = {u8: "i8", i8: "i8", i32: "i32", bf16: "bfloat", f32: "float"}
_UPDATE = """
define <16 x {wide}> @{name}_add(<{group} x {left}> %a, <{all} x {right}> %b, <16 x {wide}> %c) {{
  %word = bitcast <{group} x {left}> %a to i32
  %first = insertelement <16 x i32> poison, i32 %word, i64 0
  %each = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %left = bitcast <16 x i32> %each to <{all} x {left}>
  %sum = call <16 x {wide}> @llvm.x86.{llvm}.512(<16 x {wide}> %c, <{all} x {left}> %left, <{all} x {right}> %b)
  ret <16 x {wide}> %sum
}}
declare <16 x {wide}> @llvm.x86.{llvm}.512(<16 x {wide}>, <{all} x {left}>, <{all} x {right}>)
"""


_OF_BYTES = """
define <16 x i32> @vpdpbusd_bytes_add(<4 x i8> %a, <64 x i8> %b, <16 x i32> %c) {
  %word = bitcast <4 x i8> %a to i32
  %first = insertelement <16 x i32> poison, i32 %word, i64 0
  %each = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %right = bitcast <16 x i32> %each to <64 x i8>
  %sum = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %c, <64 x i8> %b, <64 x i8> %right)
  ret <16 x i32> %sum
}
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
"""
_OF_NIBBLES = """
define <16 x i32> @vpdpbusd_nibbles_add(<4 x i8> %a, <64 x i8> %b, <4 x i8> %d, <16 x i32> %c) {{
  %low = and <64 x i8> %b, <{masks}>
  %high = lshr <64 x i8> %b, <{shifts}>
  %lower = bitcast <4 x i8> %a to i32
  %upper = bitcast <4 x i8> %d to i32
  %first = insertelement <16 x i32> poison, i32 %lower, i64 0
  %second = insertelement <16 x i32> poison, i32 %upper, i64 0
  %each = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %other = shufflevector <16 x i32> %second, <16 x i32> poison, <16 x i32> zeroinitializer
  %left = bitcast <16 x i32> %each to <64 x i8>
  %right = bitcast <16 x i32> %other to <64 x i8>
  %some = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %c, <64 x i8> %low, <64 x i8> %left)
  %sum = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %some, <64 x i8> %high, <64 x i8> %right)
  ret <16 x i32> %sum
}}
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
""".format(masks=", ".join(["i8 15"] * 64), shifts=", ".join(["i8 4"] * 64))


def dot_products(target: Target) -> IntrinsicSet:
    """The instructions of ``target``: ``vpdpbusd`` (u8 x i8 -> i32) and ``vdpbf16ps`` (bf16 x bf16 -> f32)."""
    known = all_dot_products().intrinsics if target.arch is Architecture.X86_64 else ()
    return IntrinsicSet(tuple(i for i in known if i.update is not None and all(map(target.has, i.update.features))))


@cache
def all_dot_products() -> IntrinsicSet:
    """The instructions of all processors: those that a trace or the text of a program may name."""
    return IntrinsicSet(
        (
            _declared("vpdpbusd", "avx512.vpdpbusd", (u8, i8, i32), "avx512vnni"),
            _declared("vdpbf16ps", "avx512bf16.dpbf16ps", (bf16, bf16, f32), "avx512bf16"),
            _of_codes("vpdpbusd_bytes", _product_of_bytes(), _OF_BYTES),
            _of_codes("vpdpbusd_nibbles", _product_of_nibbles(), _OF_NIBBLES),
        )
    )


def _of_codes(name: str, product: Tensor, text: str) -> TensorIntrinsic:
    reset, update = f"{name}_zero", f"{name}_add"
    return decl_tensor_intrin(
        product, name, reset=reset, update=update, implementations={update: text}, features=("avx512vnni",)
    )


def _product_of_bytes() -> Tensor:
    return _dot_product(4, i8, u8, i32)


def _product_of_nibbles() -> Tensor:
    """Of two groups of four: the codes of the second one are the upper halves of the bytes."""
    first, second = (te.placeholder((4,), i8, name) for name in ("a", "d"))
    b, k = te.placeholder((LANES, 4), u8, "b"), te.reduce_axis((0, 4), name="k")

    def body(j: Expr) -> Reduction:
        low, high = b[j, k] & const(15, u8), b[j, k] >> const(4, u8)
        return te.sum(cast(first[k], i32) * cast(low, i32) + cast(second[k], i32) * cast(high, i32), axis=k)

    return te.compute((LANES,), body, name="c")


def _declared(name: str, llvm: str, dtypes: tuple[DType, DType, DType], feature: str) -> TensorIntrinsic:
    left, right, wide = (_LLVM[dtype] for dtype in dtypes)
    group = 32 // dtypes[0].bits
    text = _UPDATE.format(name=name, llvm=llvm, left=left, right=right, wide=wide, group=group, all=LANES * group)
    reset, update = f"{name}_zero", f"{name}_add"
    product = _dot_product(group, *dtypes)
    texts = {update: text}
    return decl_tensor_intrin(product, name, reset=reset, update=update, implementations=texts, features=(feature,))


def _dot_product(group: int, left: DType, right: DType, wide: DType) -> Tensor:
    a, b = te.placeholder((group,), left, "a"), te.placeholder((LANES, group), right, "b")
    k = te.reduce_axis((0, group), name="k")

    def body(j: Expr) -> Reduction:
        return te.sum(cast(a[k], wide) * cast(b[j, k], wide), axis=k)

    return te.compute((LANES,), body, name="c")
