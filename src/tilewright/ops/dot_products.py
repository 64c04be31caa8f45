"""Products of matrices of bytes, as dot-product instructions take them."""

from tilewright.base.dtypes import i8, i32, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import same_extent, simplified
from tilewright.symbolic.expr import ExprLike, as_expr, cast
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@operator("DotProducts", FusionKind.CONTRACTION)
def dot_products(a: Tensor, b: Tensor, *, columns: ExprLike) -> Tensor:
    """``a [..., m, k]`` (u8) times a matrix that is packed as ``b [n/16, k/4, 16, 4]`` (i8), summed up in i32.

    The matrix has ``columns`` columns: those that were added to fill ``b`` are left out of the result.
    """
    if a.ndim < 2 or b.ndim != 4 or (a.dtype, b.dtype) != (u8, i8):
        raise BadProgram(f"DotProducts of {a} and {b}: a matrix of u8 and a packed one of i8 are needed")
    strips, groups, lanes, group = b.shape
    if not same_extent(a.shape[-1], simplified(groups * group)):
        raise BadProgram(f"DotProducts of {a} and {b}: {a.shape[-1]} columns against {groups} groups of {group} rows")
    outer, inner = te.reduce_axis((0, groups), name="k"), te.reduce_axis((0, group), name="g")

    def body(index: Index) -> Reduction:
        *rows, column = index
        left = a[(*rows, outer.var * group + inner.var)]
        right = b[column // lanes, outer.var, column % lanes, inner.var]
        return te.sum(cast(left, i32) * cast(right, i32), axis=(outer, inner))

    product = tensor((*a.shape[:-1], simplified(strips * lanes)), body)
    shape = (*a.shape[:-1], as_expr(columns))
    return product if shape == product.shape else tensor(shape, lambda index: product[index])
