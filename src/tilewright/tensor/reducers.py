"""Reductions, such as ``te.sum(A[i, k] * B[k, j], axis=k)``, and user-defined reducers.

A reduction is the whole body of a ``te.compute``, never a part of an expression. Over an empty axis, and where no point
fulfils ``where``, it is the reducer's identity. Reducers are associative and commutative; a schedule may reorder them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Annotated, TypeAlias, overload

from tilewright.base.arguments import Called
from tilewright.base.dtypes import DType, boolean
from tilewright.base.errors import BadProgram
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import (
    FALSE,
    TRUE,
    Expr,
    ExprLike,
    Read,
    Var,
    as_expr,
    binary,
    const,
    equal,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import walk
from tilewright.tensor.ir import MARK, Reducer, Reduction

Axes: TypeAlias = IterVar | Sequence[IterVar]
Ranked: TypeAlias = Annotated[tuple[ExprLike, ExprLike], Called("(index, value), as (k, A[i, k]) over the axis k")]
"""What an extreme is taken of."""


@dataclass(frozen=True, slots=True)
class TupleReduction:
    """A reduction of several values together: a ``te.compute`` of it has several outputs."""

    reduction: Reduction


def sum(expr: ExprLike, axis: Axes, where: ExprLike = True) -> Reduction:
    """The sum of ``expr`` over ``axis``, in the dtype of ``expr``; 0 if the axis is empty."""
    return _SUM(expr, axis, where)


def prod(expr: ExprLike, axis: Axes, where: ExprLike = True) -> Reduction:
    """The product of ``expr`` over ``axis``; 1 if the axis is empty."""
    return _PROD(expr, axis, where)


def max(expr: ExprLike, axis: Axes, where: ExprLike = True) -> Reduction:
    """The largest ``expr`` over ``axis``, NaN if there is one; the dtype's smallest value if the axis is empty."""
    return _MAX(expr, axis, where)


def min(expr: ExprLike, axis: Axes, where: ExprLike = True) -> Reduction:
    """The smallest ``expr`` over ``axis``, NaN if there is one; the dtype's largest value if the axis is empty."""
    return _MIN(expr, axis, where)


@overload
def all(*conditions: ExprLike) -> Expr: ...
@overload
def all(condition: ExprLike, /, *, axis: Axes, where: ExprLike = True) -> Reduction: ...
def all(*conditions: ExprLike, axis: Axes | None = None, where: ExprLike = True) -> Expr | Reduction:
    """The conjunction of ``conditions``, short-circuiting. With ``axis``: of one condition over all its points."""
    return _decided(BinaryOp.AND, conditions, axis, where)


@overload
def any(*conditions: ExprLike) -> Expr: ...
@overload
def any(condition: ExprLike, /, *, axis: Axes, where: ExprLike = True) -> Reduction: ...
def any(*conditions: ExprLike, axis: Axes | None = None, where: ExprLike = True) -> Expr | Reduction:
    """The disjunction of ``conditions``, short-circuiting. With ``axis``: of one condition over all its points."""
    return _decided(BinaryOp.OR, conditions, axis, where)


def argmax(expr: Ranked, axis: Axes, where: ExprLike = True) -> TupleReduction:
    """``(index, value)`` of the largest value; of equal ones the lowest index, and NaN before all numbers.

    ``expr`` is ``(index, value)``, as in ``te.argmax((k, A[i, k]), axis=k)``. If the axis is empty: the largest index.
    """
    return _ARGMAX(expr, axis, where)


def argmin(expr: Ranked, axis: Axes, where: ExprLike = True) -> TupleReduction:
    """``(index, value)`` of the smallest value; otherwise as ``argmax``."""
    return _ARGMIN(expr, axis, where)


def min_value(dtype: DType) -> Expr:
    """The smallest value of ``dtype``; minus infinity for floats."""
    return const(dtype.min, dtype)


def max_value(dtype: DType) -> Expr:
    """The largest value of ``dtype``; infinity for floats."""
    return const(dtype.max, dtype)


@dataclass(frozen=True, slots=True)
class CommReducer:
    """A reducer before its dtypes are known; a call gives a reduction.

    ``combine(x, y)`` and ``identity(dtype)`` take single values. If several values are reduced together, ``x``, ``y``
    and both results are tuples, and ``identity`` takes as many dtypes.
    """

    combine: Callable[..., ExprLike | tuple[ExprLike, ...]]
    identity: Callable[..., ExprLike | tuple[ExprLike, ...]]
    name: str

    @overload
    def __call__(self, expr: tuple[ExprLike, ...], axis: Axes, where: ExprLike = True) -> TupleReduction: ...
    @overload
    def __call__(self, expr: ExprLike, axis: Axes, where: ExprLike = True) -> Reduction: ...
    def __call__(
        self, expr: ExprLike | tuple[ExprLike, ...], axis: Axes, where: ExprLike = True
    ) -> Reduction | TupleReduction:
        """``expr`` reduced over ``axis``, where ``where`` holds. Raises ``BadProgram`` for invalid arguments."""
        sources = tuple(map(as_expr, expr)) if isinstance(expr, tuple) else (as_expr(expr),)
        dtypes = tuple(source.dtype for source in sources)
        suffixes = [str(i) for i in range(len(sources))] if isinstance(expr, tuple) else [""]
        left = tuple(Var(f"x{suffix}{MARK}", dtype) for suffix, dtype in zip(suffixes, dtypes, strict=True))
        right = tuple(Var(f"y{suffix}{MARK}", dtype) for suffix, dtype in zip(suffixes, dtypes, strict=True))
        combined = self.combine(left, right) if isinstance(expr, tuple) else self.combine(left[0], right[0])
        results = self._typed("combine", combined, dtypes)
        identities = self._typed("identity", self.identity(*dtypes), dtypes)
        self._check_closed(results, (*left, *right))
        reducer = Reducer(self.name, left, right, results, identities)
        axes, condition = _checked_axes(self.name, axis), as_expr(where, boolean)
        if not condition.dtype.is_bool:
            raise BadProgram(f"{self.name}: `where` is {condition.dtype}, not bool: {condition}")
        reduction = Reduction(reducer, axes, sources, condition)
        return TupleReduction(reduction) if isinstance(expr, tuple) else reduction

    def _typed(self, what: str, values: ExprLike | tuple[ExprLike, ...], dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
        listed = values if isinstance(values, tuple) else (values,)
        if len(listed) != len(dtypes):
            raise BadProgram(f"{self.name}: {len(dtypes)} values are reduced, but {what} gives {len(listed)}")
        typed = tuple(as_expr(value, dtype) for value, dtype in zip(listed, dtypes, strict=True))
        for expr, dtype in zip(typed, dtypes, strict=True):
            if expr.dtype != dtype:
                raise BadProgram(f"{self.name}: {what} gives {expr} of {expr.dtype} for a value of {dtype}; cast it")
        return typed

    def _check_closed(self, results: tuple[Expr, ...], operands: tuple[Var, ...]) -> None:
        for node in (node for result in results for node in walk(result)):
            if isinstance(node, Read) or (isinstance(node, Var) and node not in operands):
                raise BadProgram(f"{self.name}: combine may use its two arguments only, not {node}")


def comm_reducer(
    fcombine: Callable[..., ExprLike | tuple[ExprLike, ...]],
    fidentity: Callable[..., ExprLike | tuple[ExprLike, ...]],
    name: str = "reduce",
) -> CommReducer:
    """A user-defined reducer; it must be associative and commutative.

    ::

        welford = te.comm_reducer(combine, lambda count, mean, m2: (0, 0, 0), name="welford")
        count, mean, m2 = te.compute((n,), lambda i: welford((one, X[i, k], zero), axis=k))
    """
    return CommReducer(fcombine, fidentity, name)


def _checked_axes(name: str, axis: Axes) -> tuple[IterVar, ...]:
    axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
    for each in axes:
        if each.kind is not IterKind.REDUCE:
            raise BadProgram(f"{name}: axis {each.name} is {each.kind.value}; make it with te.reduce_axis((0, extent))")
    if len({each.var for each in axes}) != len(axes):
        raise BadProgram(f"{name}: an axis is listed twice, or two axes have one name: {[each.name for each in axes]}")
    return axes


def _decided(op: BinaryOp, conditions: Sequence[ExprLike], axis: Axes | None, where: ExprLike) -> Expr | Reduction:
    name, start = ("all", TRUE) if op is BinaryOp.AND else ("any", FALSE)
    listed = [as_expr(condition, boolean) for condition in conditions]
    for condition in listed:
        if not condition.dtype.is_bool:
            raise BadProgram(f"{name}: {condition} is {condition.dtype}, not bool; compare it, or cast it")
    if axis is None:
        return reduce(partial(binary, op), listed, start)
    if len(listed) != 1:
        raise BadProgram(f"{name} reduces one condition over axis=, not {len(listed)}; join them first")
    return CommReducer(partial(binary, op), lambda *_: start, name)(listed[0], axis, where)


def _add(x: Expr, y: Expr) -> Expr:
    return x + y


def _zero(dtype: DType) -> Expr:
    return const(0, dtype)


def _multiply(x: Expr, y: Expr) -> Expr:
    return x * y


def _one(dtype: DType) -> Expr:
    return const(1, dtype)


def _extreme(name: str, better: BinaryOp, worst: Callable[[DType], Expr]) -> CommReducer:
    """The reducer of ``(index, value)`` pairs that keeps the better value; of equal ones the lower index."""

    def combine(x: tuple[Expr, Expr], y: tuple[Expr, Expr]) -> tuple[ExprLike, ...]:
        wins, ties = binary(better, x[1], y[1]), equal(x[1], y[1])
        if x[1].dtype.is_float:
            x_is_nan, y_is_nan = unary(UnaryOp.ISNAN, x[1]), unary(UnaryOp.ISNAN, y[1])
            wins, ties = wins | (x_is_nan & ~y_is_nan), ties | (x_is_nan & y_is_nan)
        first = wins | (ties & (x[0] < y[0]))
        return select(first, x[0], y[0]), select(first, x[1], y[1])

    def identity(index: DType, value: DType) -> tuple[ExprLike, ...]:
        return max_value(index), worst(value)

    return CommReducer(combine, identity, name)


_SUM = CommReducer(_add, _zero, "sum")
_PROD = CommReducer(_multiply, _one, "prod")
_MAX = CommReducer(maximum, min_value, "max")
_MIN = CommReducer(minimum, max_value, "min")
_ARGMAX = _extreme("argmax", BinaryOp.GT, min_value)
_ARGMIN = _extreme("argmin", BinaryOp.LT, max_value)
