"""What dot-product instructions compute, as tensor expressions, and parts of their LLVM IR that architectures share.

Each lane of a wide accumulator sums several products, so the reduction is packed in lanes, too: four bytes, or two
16-bit numbers. One operand is broadcast to all accumulators::

    c[j] = c[j] + a[0] * b[j, 0] + a[1] * b[j, 1] + ...       a: [4], b: [lanes, 4], c: [lanes]

For weights of 8 and 4 bits (``ops.weight_products``), the panel has the unsigned numbers, and the broadcast operand the
signed ones. Codes of 4 bits of two groups share bytes: a mask and a shift separate them in registers.
"""

from dataclasses import replace

from tilewright.base.dtypes import DType, i8, i32, u8
from tilewright.loops.ir import Block, Store
from tilewright.ops.dot_products import limited
from tilewright.schedule.intrinsics import TensorIntrinsic, decl_tensor_intrin
from tilewright.symbolic.expr import Binary, Const, Expr, cast, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import walk
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

WORD = 32
"""Bits of an accumulator, and of the operands that it adds the products of."""


def dot_product(lanes: int, left: DType, right: DType, wide: DType, *, is_limited: bool = False) -> Tensor:
    """Sums of as many products as fit in a word: ``c[j] = sum(a[k] * b[j, k])``; of ``limited`` numbers of ``b``."""
    group = WORD // left.bits
    a, b = te.placeholder((group,), left, "a"), te.placeholder((lanes, group), right, "b")
    k = te.reduce_axis((0, group), name="k")

    def body(j: Expr) -> Reduction:
        weight = limited(b[j, k]) if is_limited else b[j, k]
        return te.sum(cast(a[k], wide) * cast(weight, wide), axis=k)

    return te.compute((lanes,), body, name="c")


def has_limits(block: Block) -> bool:
    """Whether ``block`` multiplies by ``limited`` numbers."""
    value = block.body.value if isinstance(block.body, Store) else None
    return value is not None and any(isinstance(e, Binary) and e.op is BinaryOp.MIN for e in walk(value))


def product_of_nibbles(lanes: int) -> Tensor:
    """Sums of two groups of four products: the codes of the second one are the upper halves of the bytes."""
    first, second = (te.placeholder((4,), i8, name) for name in ("a", "d"))
    b, k = te.placeholder((lanes, 4), u8, "b"), te.reduce_axis((0, 4), name="k")

    def body(j: Expr) -> Reduction:
        low, high = b[j, k] & const(15, u8), b[j, k] >> const(4, u8)
        return te.sum(cast(first[k], i32) * cast(low, i32) + cast(second[k], i32) * cast(high, i32), axis=k)

    return te.compute((lanes,), body, name="c")


def declared(
    name: str,
    product: Tensor,
    text: str,
    features: tuple[str, ...],
    *,
    multiply_adds: int = 1,
    temporaries: int = 0,
) -> TensorIntrinsic:
    """The instruction ``name``, whose update ``{name}_add`` is ``text``; its reset is ``{name}_zero``."""
    reset, update = f"{name}_zero", f"{name}_add"
    made = decl_tensor_intrin(
        product, name, reset=reset, update=update, implementations={update: text}, features=features
    )
    return replace(made, multiply_adds=multiply_adds, temporaries=temporaries)


def types_of(intrinsic: TensorIntrinsic) -> tuple[DType, ...]:
    """The types of the operands, and of the accumulators."""
    return tuple(parameter.dtype for parameter in intrinsic.description.params)


def group_of(intrinsic: TensorIntrinsic) -> int:
    """The products that one accumulator adds up."""
    return _extent(intrinsic.description.params[0].shape[-1])


def lanes_of(intrinsic: TensorIntrinsic) -> int:
    """The accumulators."""
    return _extent(intrinsic.description.params[-1].shape[-1])


def _extent(extent: Expr) -> int:
    assert isinstance(extent, Const), "intrinsics have constant shapes"
    return int(extent.value)


# LLVM IR -------------------------------------------------------------------------------------------------------------


def vector(count: int, element: str) -> str:
    """A vector type."""
    return f"<{count} x {element}>"


def splat(count: int, element: str, number: int) -> str:
    """A vector of equal numbers, without its type."""
    return f"<{', '.join([f'{element} {number}'] * count)}>"


def broadcast(made: str, given: str, element: str, group: int, lanes: int) -> str:
    """Lines that define ``made``: the ``group`` of elements that ``given`` is, a word, in each of the lanes.

    Shuffled, not cast to ``i32``: for a load of four bytes, LLVM's code for AArch64 is then one instruction.
    """
    words, few, many = vector(lanes, "i32"), vector(group, element), vector(lanes * group, element)
    places = ", ".join([*(f"i32 {place}" for place in range(group)), *["i32 poison"] * (lanes * group - group)])
    return f"""
  {made}.few = shufflevector {few} {given}, {few} poison, {vector(lanes * group, "i32")} <{places}>
  {made}.first = bitcast {many} {made}.few to {words}
  {made}.each = shufflevector {words} {made}.first, {words} poison, {words} zeroinitializer
  {made} = bitcast {words} {made}.each to {many}"""
