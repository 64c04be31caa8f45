"""Sums of products: matrix multiplication and its relatives."""

from collections.abc import Sequence

from tilewright.base.errors import BadProgram
from tilewright.ops.batches import aligned
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.operator import Attributes, Batch, BatchAxis, FusionKind, operator
from tilewright.ops.shapes import broadcast, element, require_broadcast, same_extent
from tilewright.symbolic.expr import ONE, ZERO, Expr, cast, const
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


def _products(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Batch dimensions: matrices of a batch, rows and columns."""
    match tuple(map(len, shapes)):
        case (left, right) if left > 1 and right > 1:
            rank = max(left, right)
            sides = BatchAxis((left - 2, None), rank - 2), BatchAxis((None, right - 1), rank - 1)
            return Batch((*aligned((left - 2, right - 2)), *sides), attributes, keeps=True)
        case _:
            return None


@operator("MatMul", FusionKind.CONTRACTION, batched=_products)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``[..., m, k] x [..., k, n] -> [..., m, n]`` by NumPy's rules; a vector counts as a row or a column, which is
    removed."""
    if not a.ndim or not b.ndim:
        raise BadProgram(f"MatMul of {a} and {b}: a scalar has no matrix product")
    inner_b = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if not same_extent(a.shape[-1], inner_b):
        raise BadProgram(f"MatMul of {a} and {b}: {a.shape[-1]} columns against {inner_b} rows")
    if a.dtype != b.dtype:
        raise BadProgram(f"MatMul of {a} and {b}: the dtypes differ")
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
    k = te.reduce_axis((0, a.shape[-1]), name="k")

    wide = accumulator(a.dtype)

    def term(index: Index, inner: Expr) -> Expr:
        outer, rest = index[: len(batch)], index[len(batch) :]
        row, column = rest[: len(rows)], rest[len(rows) :]
        left = element(a, (*outer, *row, inner))
        right = element(b, (*outer, inner, *column)) if b.ndim > 1 else b[inner]
        return cast(left, wide) * cast(right, wide)

    def body(index: Index) -> Expr | Reduction:
        # A sum of one term is none: its result is written row by row, not in tiles.
        return term(index, ZERO) if a.shape[-1] == ONE else te.sum(term(index, k.var), axis=k)

    return narrowed(tensor((*batch, *rows, *columns), body), a.dtype)


def _rows(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Rows, as of the addend if it has them."""
    match shapes:
        case ((_, _), (_, _), *addend) if not attributes.get("transpose_a"):
            of_addend = (0 if len(shape) > 1 and shape[0] > 1 else None for shape in addend)
            return Batch((BatchAxis((0, None, *of_addend), 0),), attributes, keeps=True)
        case _:
            return None


@operator("Gemm", FusionKind.CONTRACTION, batched=_rows)
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """``alpha * op(a) op(b) + beta * c`` for matrices, ``c`` broadcast; ``op`` optionally transposes."""
    if a.ndim != 2 or b.ndim != 2:
        raise BadProgram(f"Gemm of {a} and {b}: both must be matrices")
    product = matmul(_transposed(a) if transpose_a else a, _transposed(b) if transpose_b else b)
    if c is not None:
        require_broadcast(c, product.shape, "Gemm: the addend")

    def body(index: Index) -> Expr:
        value = _scaled(product[index], alpha)
        return value if c is None else value + _scaled(element(c, index), beta)

    return product if c is None and alpha == 1.0 else tensor(product.shape, body)


def _transposed(matrix: Tensor) -> Tensor:
    return tensor(matrix.shape[::-1], lambda index: matrix[index[::-1]])


def _scaled(value: Expr, factor: float) -> Expr:
    return value if factor == 1.0 else value * const(factor, value.dtype)
