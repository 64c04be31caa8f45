"""Attention whose products are of pairs of bfloat16, and whose sums and softmax are of float32.

Both right operands, keys and values, are packed as matrix units and dot products read them: ``[..., k/2, n, 2]``.
"""

from math import inf

from tilewright.base.dtypes import bf16, f32
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import element, same_shape, simplified
from tilewright.ops.softmax import weight_up_to_one
from tilewright.symbolic.expr import Expr, binary, cast, const, equal, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

_PAIR = 2


@operator("Pairs", FusionKind.INJECTIVE)
def pairs(x: Tensor, *, rows: int, columns: int, are_columns: bool = False) -> Tensor:
    """``x [..., k, n]`` (f32) rounded to bf16, in pairs of rows: ``[..., rows/2, columns, 2]``, padded with 0.

    If they ``are_columns``, ``x`` is ``[..., n, k]``.
    """
    if x.dtype != f32 or x.ndim < _PAIR or rows % _PAIR:
        raise BadProgram(f"Pairs of {x}: matrices of f32 and an even number of rows are needed, not {rows}")
    *leading, depth, count = (*x.shape[:-2], x.shape[-1], x.shape[-2]) if are_columns else x.shape

    def body(index: Index) -> Expr:
        *before, pair, column, inner = index
        row = pair * _PAIR + inner
        value = _rounded(x[(*before, column, row) if are_columns else (*before, row, column)])
        inside = [] if depth == const(rows) else [row < depth]
        inside += [] if count == const(columns) else [column < count]
        return select(all_of(*inside), value, const(0, bf16)) if inside else value

    return tensor((*leading, const(rows // _PAIR), const(columns), const(_PAIR)), body)


@operator("PairAttention", FusionKind.OPAQUE)
def pair_attention(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    empty: Tensor | None = None,
    *,
    count: int,
    scale: float = 1.0,
    is_guarded: bool = False,
) -> Tensor:
    """``Attention`` of ``q [..., m, d]`` (f32), which is rounded to bf16, with ``Pairs`` of keys and of values.

    ``count``: of the keys; weights of those that pad them are 0. All have the same leading dimensions. The weights of
    values are rounded, too; they are divided by the sum of the rounded ones.
    """
    leading, rows, depth = q.shape[:-2], q.shape[-2], q.shape[-1]
    if (q.dtype, keys.dtype, v.dtype) != (f32, bf16, bf16) or not keys.ndim == v.ndim == q.ndim + 1:
        raise BadProgram(f"PairAttention of {q}, {keys} and {v}: f32, and pairs of bf16, are needed")
    padded = keys.shape[-2]
    steps = (simplified(keys.shape[-3] * _PAIR), simplified(v.shape[-3] * _PAIR))
    heads = same_shape(leading, keys.shape[:-3]) and same_shape(leading, v.shape[:-3])
    if not heads or not same_shape((depth, padded), steps):
        raise BadProgram(f"PairAttention of {q}, {keys} and {v}: their dimensions do not fit")
    queries = tensor(q.shape, lambda index: _rounded(q[index]), name="queries")
    scores = _product(queries, keys, "scores")

    def score(index: Index) -> Expr:
        value = scores[index] * const(scale, f32)
        value = value if mask is None else value + element(mask, index)
        value = value if empty is None else select(element(empty, index), const(-inf, f32), value)
        return value if padded == const(count) else select(index[-1] < count, value, const(-inf, f32))

    key = te.reduce_axis((0, padded), name="key")
    of_row = (*leading, rows)
    top = tensor(of_row, lambda index: te.max(score((*index, key.var)), axis=key), name="top")

    def weight(index: Index) -> Expr:
        highest = top[index[:-1]]
        # Without a finite score there is nothing to relate to: all weights are 0.
        finite = select(equal(highest, const(-inf, f32)), const(0.0, f32), highest)
        return _rounded(weight_up_to_one(score(index) - finite))

    weights = tensor((*of_row, padded), weight, name="weights")
    each = te.reduce_axis((0, padded), name="key")
    total = tensor(of_row, lambda index: te.sum(cast(weights[(*index, each.var)], f32), axis=each), name="total")
    sums = _product(weights, v, "sums")

    def normal(index: Index) -> Expr:
        value, by = sums[index], total[index[:-1]]
        result = binary(BinaryOp.DIV, value, by)
        if is_guarded:
            result = select(unary(UnaryOp.ISNAN, by), const(0.0, f32), result)
            result = select(equal(by, const(0.0, f32)), value, result)
        return result if empty is None else select(element(empty, index), value, result)

    return tensor((*of_row, v.shape[-2]), normal, name="attention")


def _rounded(value: Expr) -> Expr:
    return cast(unary(UnaryOp.FLUSH, value), bf16)


def _product(left: Tensor, right: Tensor, name: str) -> Tensor:
    """``left [..., m, k]`` times ``right [..., k/2, n, 2]``."""
    pair, inner = te.reduce_axis((0, right.shape[-3]), name="p"), te.reduce_axis((0, _PAIR), name="g")

    def body(index: Index) -> Reduction:
        *before, row, column = index
        a, b = left[(*before, row, pair.var * _PAIR + inner.var)], right[(*before, pair.var, column, inner.var)]
        return te.sum(cast(a, f32) * cast(b, f32), axis=(pair, inner))

    return tensor((*left.shape[:-1], right.shape[-2]), body, name=name)
