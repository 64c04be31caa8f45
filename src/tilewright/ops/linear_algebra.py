"""Operators on square matrices."""

from dataclasses import dataclass

from tilewright.base.dtypes import i64
from tilewright.base.errors import BadProgram, Unsupported
from tilewright.loops.extern import alloc, extern, for_range, if_then, seq, store
from tilewright.loops.ir import Buffer, Stmt
from tilewright.ops.build import Index, accumulator, for_each, narrowed, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import same_extent
from tilewright.symbolic.expr import Const, Expr, binary, cast, const, not_equal, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


@operator("Det", FusionKind.OPAQUE)
def determinant(x: Tensor) -> Tensor:
    """The determinants of ``[..., n, n]``, by Gaussian elimination with the largest pivot of each column.

    Raises ``Unsupported`` if ``n`` is known only at run time.
    """
    if x.ndim < 2 or not same_extent(x.shape[-1], x.shape[-2]) or not x.dtype.is_float:
        raise BadProgram(f"Det of {x}: square matrices of floats are needed")
    extent = x.shape[-1]
    if not isinstance(extent, Const):
        raise Unsupported(f"Det: extent {extent} of {x} is known at run time only")
    wide = accumulator(x.dtype)
    size = int(extent.value)
    start = tensor(x.shape, lambda index: cast(x[index], wide))

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (matrices,), (result,) = inputs, outputs
        return for_each(x.shape[:-2], lambda at: _Elimination(matrices, result, at, size).steps())

    (found,) = extern([x.shape[:-2]], [start], body, dtype=[wide], name="determinant")
    return narrowed(found, x.dtype)


@dataclass(frozen=True, slots=True)
class _Elimination:
    """One matrix of ``size`` rows, at index ``at`` of the batch."""

    matrices: Buffer
    result: Buffer
    at: Index
    size: int

    def steps(self) -> Stmt:
        """The determinant is the product of the pivots; each swap of rows changes its sign."""
        one = const(1.0, self.result.dtype)

        def body(rows: Buffer) -> Stmt:
            def copy(i: Expr) -> Stmt:
                return for_range(self.size, lambda j: store(rows, (i, j), self.matrices[(*self.at, i, j)]), name="j")

            start = seq(for_range(self.size, copy, name="i"), store(self.result, self.at, one))
            return seq(start, for_range(self.size, lambda k: self._column(rows, k), name="k"))

        return alloc((self.size, self.size), self.result.dtype, body, name="rows")

    def _column(self, rows: Buffer, k: Expr) -> Stmt:
        pivot = rows[k, k]
        product = store(self.result, self.at, self.result[self.at] * pivot)
        eliminate = if_then(not_equal(pivot, const(0.0, pivot.dtype)), self._eliminate(rows, k))
        return seq(alloc((), i64, lambda best: self._choose(rows, best, k), name="best"), product, eliminate)

    def _choose(self, rows: Buffer, best: Buffer, k: Expr) -> Stmt:
        """Bring the row with the largest element of column ``k`` to row ``k``."""

        def compare(r: Expr) -> Stmt:
            larger = unary(UnaryOp.ABS, rows[r, k]) > unary(UnaryOp.ABS, rows[best[()], k])
            return if_then((r > k) & larger, store(best, (), r))

        def swap(held: Buffer) -> Stmt:
            def one(c: Expr) -> Stmt:
                return seq(
                    store(held, (), rows[k, c]),
                    store(rows, (k, c), rows[best[()], c]),
                    store(rows, (best[()], c), held[()]),
                )

            negate = store(self.result, self.at, -self.result[self.at])
            return if_then(not_equal(best[()], k), seq(for_range(self.size, one, name="c"), negate))

        search = seq(store(best, (), k), for_range(self.size, compare, name="r"))
        return seq(search, alloc((), rows.dtype, swap, name="held"))

    def _eliminate(self, rows: Buffer, k: Expr) -> Stmt:
        """Subtract multiples of row ``k`` from those below it."""

        def row(r: Expr, factor: Buffer) -> Stmt:
            def subtract(c: Expr) -> Stmt:
                return if_then(c > k, store(rows, (r, c), rows[r, c] - factor[()] * rows[k, c]))

            ratio = store(factor, (), binary(BinaryOp.DIV, rows[r, k], rows[k, k]))
            return seq(ratio, for_range(self.size, subtract, name="d"))

        def below(r: Expr) -> Stmt:
            return if_then(r > k, alloc((), rows.dtype, lambda factor: row(r, factor), name="factor"))

        return for_range(self.size, below, name="s")
