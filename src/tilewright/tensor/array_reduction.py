"""Reductions of NumPy arrays by the reducers of tensor expressions.

``product`` computes a sum of products by matrix multiplication. ``combined`` handles all other sources and reducers: by
a NumPy function if there is one, else pairwise, which needs only associativity and keeps rounding errors small.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import TRUE, Binary, Expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor.grid import Grid
from tilewright.tensor.ir import Reducer, Reduction

Combine: TypeAlias = Callable[..., list[Array]]
"""Combines the left and the right partial results of a reducer."""

_UFUNCS: Mapping[BinaryOp, np.ufunc] = {
    BinaryOp.ADD: np.add,
    BinaryOp.MUL: np.multiply,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.AND: np.bitwise_and,
    BinaryOp.OR: np.bitwise_or,
    BinaryOp.XOR: np.bitwise_xor,
}


def identities(reducer: Reducer) -> list[Array]:
    """The reducer's identities, of rank 0."""
    return compile_exprs(reducer.identities, ())()


def combiner(reducer: Reducer) -> Combine:
    """The reducer as a function of arrays that broadcast."""
    return compile_exprs(reducer.results, (*reducer.left, *reducer.right))


def factors(reduction: Reduction) -> tuple[Expr, Expr] | None:
    """``a`` and ``b`` if ``reduction`` is the sum of ``a * b`` in a dtype in which NumPy multiplies matrices."""
    match reduction.sources:
        case (Binary(BinaryOp.MUL, a, b),) if _ufunc(reduction.reducer) is np.add and reduction.condition == TRUE:
            return (a, b) if a.dtype.is_int or a.dtype in (dtypes.f32, dtypes.f64) else None
        case _:
            return None


def operation(reducer: Reducer) -> BinaryOp | None:
    """The only operation that combines two partial results, if there is just one."""
    match reducer.results:
        case (Binary(op, a, b),) if {a, b} == {*reducer.left, *reducer.right}:
            return op
        case _:
            return None


def _ufunc(reducer: Reducer) -> np.ufunc | None:
    """The NumPy function that combines two partial results, if there is one."""
    combining = operation(reducer)
    return None if combining is None else _UFUNCS.get(combining)


def product(grid: Grid, a: Expr, b: Expr, spatial: int) -> Array:
    """The sum of ``a * b`` over the axes from ``spatial`` on; axes on which it does not depend have extent 1."""
    reduced = tuple(range(spatial, len(grid.shape)))
    left, right = _agreeing(grid.evaluate(a), grid.evaluate(b), reduced)
    rows = [p for p in range(spatial) if left.shape[p] > 1 and right.shape[p] == 1]
    columns = [p for p in range(spatial) if right.shape[p] > 1 and left.shape[p] == 1]
    batch = [p for p in range(spatial) if p not in rows and p not in columns]
    if (rows or columns) and 0 not in grid.shape:
        matrices = _as_matrices(left, batch, rows, reduced), _as_matrices(right, batch, columns, reduced)
        flat = np.matmul(matrices[0], matrices[1].swapaxes(-1, -2))
        order = [*batch, *rows, *columns]
        once = flat.reshape([max(left.shape[p], right.shape[p]) for p in order]).transpose(np.argsort(order))
    else:
        once = np.add.reduce(np.multiply(left, right), axis=reduced, dtype=left.dtype)
    repeated = prod(grid.shape[p] // max(1, left.shape[p]) for p in reduced)
    return np.multiply(once, left.dtype.type(repeated))


def _agreeing(left: Array, right: Array, reduced: tuple[int, ...]) -> tuple[Array, Array]:
    """Both arrays with equal extents along the axes ``reduced``."""
    common = [max(left.shape[p], right.shape[p]) if 0 not in (left.shape[p], right.shape[p]) else 0 for p in reduced]
    spatial = left.ndim - len(reduced)
    return (
        np.broadcast_to(left, (*left.shape[:spatial], *common)),
        np.broadcast_to(right, (*right.shape[:spatial], *common)),
    )


def _as_matrices(array: Array, batch: list[int], rows: list[int], reduced: tuple[int, ...]) -> Array:
    """``array`` as ``[batch..., rows, reduced]``; its other axes have extent 1."""
    others = [p for p in range(array.ndim) if p not in (*batch, *rows, *reduced)]
    ordered = array.transpose([*others, *batch, *rows, *reduced])
    outer = (array.shape[p] for p in batch)
    return ordered.reshape((*outer, prod(array.shape[p] for p in rows), prod(array.shape[p] for p in reduced)))


def combined(grid: Grid, reduction: Reduction, spatial: int) -> list[Array]:
    """The sources combined over the axes from ``spatial`` on; axes on which they do not depend have extent 1."""
    reducer, inner = reduction.reducer, grid.shape[spatial:]
    condition = None if reduction.condition == TRUE else grid.evaluate(reduction.condition)
    terms = [grid.evaluate(source, condition) for source in reduction.sources]
    if condition is not None:
        terms = [np.where(condition, term, neutral) for term, neutral in zip(terms, identities(reducer), strict=True)]
    outer = np.broadcast_shapes(*(term.shape for term in terms))[:spatial]
    full = [np.broadcast_to(term, (*outer, *inner)) for term in terms]
    ufunc = _ufunc(reducer)
    if ufunc is not None and not _is_short(reducer.identities[0].dtype):
        axes = tuple(range(spatial, len(grid.shape)))
        return [ufunc.reduce(full[0], axis=axes, dtype=full[0].dtype, initial=identities(reducer)[0])]
    return _pairwise(reducer, [term.reshape((*outer, prod(inner))) for term in full])


def _is_short(dtype: DType) -> bool:
    """16-bit floats: NumPy adds them sequentially, and rounds each time."""
    return dtype.is_float and dtype.bits == 16


def _pairwise(reducer: Reducer, terms: list[Array]) -> list[Array]:
    """Combine neighbours along the last axis until one is left."""
    combine = combiner(reducer)
    if terms[0].shape[-1] == 0:
        return [np.broadcast_to(e, term.shape[:-1]) for e, term in zip(identities(reducer), terms, strict=True)]
    while (count := terms[0].shape[-1]) > 1:
        even = count - count % 2
        paired = combine(*(t[..., 0:even:2] for t in terms), *(t[..., 1:even:2] for t in terms))
        terms = [np.concatenate([p, t[..., even:]], axis=-1) for p, t in zip(paired, terms, strict=True)]
    return [term[..., 0] for term in terms]
