"""Attention: ``softmax(scale * q k + mask) v`` (Vaswani et al., "Attention Is All You Need", 2017)."""

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.contraction import matmul
from tilewright.ops.movement import transpose
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import element, simplified
from tilewright.ops.softmax import softmax
from tilewright.symbolic.expr import Const, Expr, const, select, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.tensor.ir import Tensor


@operator("Attention", FusionKind.CONTRACTION, Trait.COMPOSITE)
def attention(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    empty: Tensor | None = None,
    *,
    scale: float = 1.0,
    is_guarded: bool = False,
    are_rows: bool = False,
    group: int = 1,
) -> Tensor:
    """``softmax(scale * q keys + mask) v`` of ``q [..., m, d]``, ``keys [..., d, n]`` and ``v [..., n, e]``.

    The mask is broadcast to ``[..., m, n]``. Probabilities count as 0 in rows that are ``empty [..., m, 1]`` and, if it
    ``is_guarded``, where they are NaN: in rows without a finite score. If keys ``are_rows``, they are ``[..., n, d]``.
    Of each ``group`` of successive heads of queries, all have the same keys and values (Ainslie et al., "GQA", 2023):
    ``q [..., heads, m, d]``, and ``heads / group`` of them.
    """
    columns = transpose(keys, perm=swapped(keys.ndim)) if are_rows else keys
    products = matmul(q, _repeated(columns, group))

    def score(index: Index) -> Expr:
        scaled = products[index] * const(scale, products.dtype)
        return scaled if mask is None else scaled + element(mask, index)

    probabilities = softmax(tensor(products.shape, score))

    def guarded(index: Index) -> Expr:
        value, zero = probabilities[index], const(0, probabilities.dtype)
        value = select(unary(UnaryOp.ISNAN, value), zero, value) if is_guarded else value
        return value if empty is None else select(element(empty, index), zero, value)

    return matmul(tensor(probabilities.shape, guarded), _repeated(v, group))


def swapped(rank: int) -> tuple[int, ...]:
    """The permutation of a transposition of matrices."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _repeated(x: Tensor, times: int) -> Tensor:
    """Each head of ``x [..., heads, m, n]`` so many times."""
    if times == 1:
        return x
    if x.ndim < 3:
        raise BadProgram(f"Attention: {x} has no heads that a group of {times} could share")
    shape = (*x.shape[:-3], simplified(x.shape[-3] * times), *x.shape[-2:])
    return tensor(shape, lambda index: x[(*index[:-3], index[-3] // times, *index[-2:])])


@operator("KeyPanels", FusionKind.INJECTIVE)
def key_panels(keys: Tensor, *, width: int) -> Tensor:
    """``[..., d, n]`` as panels of ``width`` keys, ``[..., n / width, d, width]``; the last one is padded with 0."""
    *leading, depth, count = keys.shape
    panels = simplified((count + (width - 1)) // width)

    def body(index: Index) -> Expr:
        *before, panel, row, key = index
        place = panel * width + key
        inside = keys[(*before, row, place)]
        return inside if _divides(width, count) else select(place < count, inside, const(0, keys.dtype))

    return tensor((*leading, panels, depth, const(width)), body)


def _divides(width: int, count: Expr) -> bool:
    return isinstance(count, Const) and int(count.value) % width == 0
