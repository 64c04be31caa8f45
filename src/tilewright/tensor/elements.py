"""Symbolic evaluation of small integer tensors whose elements are expressions over run-time extents.

    (y,) = elements_of([doubled], {x: (n, Const(3))}, bounds)     # (2*n, 6)

Models compute shapes by nodes (``Shape``, ``Gather``, ``Concat``); this evaluates them symbolically from the te
programs of their operators, without further declarations.

An integer element is an ``index`` expression, for any integer dtype of the tensor; a bool is a boolean expression.
64-bit integers are assumed not to overflow, as in index arithmetic. Narrower ones must fit; if that is not proven, it
becomes a ``Limit``. A float is an integer, or the quotient of an integer and a literal in ``ceil(n / 2)``, as exporters
write it. Their integers must be so small that floats have them, which becomes a ``Limit``, too. Then ``floor`` and
``ceil`` are exact: a quotient that is no integer is at least ``1 / k`` away from one, more than it is rounded by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from tilewright.base.dtypes import DType, f32, f64, index
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.check import Check, checked
from tilewright.symbolic.conditions import negated
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Binary,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
    maximum,
    not_equal,
    select,
)
from tilewright.symbolic.folding import wrap
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp
from tilewright.symbolic.sharing import size_of
from tilewright.symbolic.simplify import simplify
from tilewright.tensor.ir import Compute, Operation, Reduction, Tensor

Elements: TypeAlias = tuple[Expr, ...]
"""The elements of a tensor, row-major."""

_Index: TypeAlias = tuple[int, ...]

MOST = 256
"""Maximum number of elements kept as expressions: shapes have a few, and kernels compute masks faster."""

LARGEST = 256
"""Maximum operations of an element: a shape takes a dozen."""

_ARITHMETIC = frozenset(
    {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.MIN, BinaryOp.MAX}
)
_EXACT: Mapping[DType, int] = {f32: 1 << 24, f64: 1 << 53}
"""Integers up to which floats have all."""
_ROUNDED_DOWN = {BinaryOp.TRUNCDIV: BinaryOp.FLOORDIV, BinaryOp.TRUNCMOD: BinaryOp.MOD}
"""Operations and their equivalents for numbers that are not negative."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition at run time: ``0 <= value <= most``; with ``most`` None, ``value >= 0``."""

    value: Expr
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The elements of each output, and the conditions under which they are valid."""

    outputs: tuple[Elements, ...]
    limits: tuple[Limit, ...]


def elements_of(outputs: Sequence[Tensor], feeds: Mapping[Tensor, Elements], bounds: Bounds) -> Known | None:
    """The elements of ``outputs``, given those of the tensors in ``feeds``; None if they can't be derived.

    ``bounds``: known facts about the run-time extents.
    """
    known = {(tensor.op, tensor.output): values for tensor, values in feeds.items()}
    evaluation = _Evaluation(known, bounds)
    try:
        elements = tuple(evaluation.all_of(tensor) for tensor in outputs)
    except _DoesNotFollowError:
        return None
    return Known(elements, tuple(dict.fromkeys(evaluation.limits)))


class _DoesNotFollowError(Exception):
    """An element depends on data, is a float that is no quotient of integers, or is too large."""


def _extents(tensor: Tensor) -> _Index:
    extents = [int(extent.value) for extent in tensor.shape if isinstance(extent, Const)]
    if len(extents) != tensor.ndim:
        raise _DoesNotFollowError
    return tuple(extents)


def _flat(at: _Index, extents: _Index) -> int:
    flat = 0
    for position, extent in zip(at, extents, strict=True):
        if not 0 <= position < extent:
            raise _DoesNotFollowError
        flat = flat * extent + position
    return flat


class _Evaluation:
    """Elements, computed on demand and once."""

    def __init__(self, feeds: Mapping[tuple[Operation, int], Elements], bounds: Bounds) -> None:
        self.limits: list[Limit] = []
        self._feeds = feeds
        self._bounds = bounds
        self._known: dict[tuple[Operation, int, _Index], Expr] = {}

    def all_of(self, tensor: Tensor) -> Elements:
        extents = _extents(tensor)
        points = list(product(*map(range, extents)))
        if len(points) > MOST:
            raise _DoesNotFollowError
        return tuple(self._element(tensor, point) for point in points)

    def _element(self, tensor: Tensor, at: _Index) -> Expr:
        key = (tensor.op, tensor.output, at)
        if key not in self._known:
            computed = self._computed(tensor, at)
            self._check_size(computed)
            self._known[key] = self._simplified(computed)
            self._check_size(self._known[key])
        return self._known[key]

    def _check_size(self, element: Expr) -> None:
        """Checks the size of expressions: models may nest shapes deeply, too."""
        if size_of(element).nodes > LARGEST:
            raise _DoesNotFollowError

    def _computed(self, tensor: Tensor, at: _Index) -> Expr:
        if (tensor.op, tensor.output) in self._feeds:
            return self._feeds[tensor.op, tensor.output][_flat(at, _extents(tensor))]
        if not isinstance(tensor.op, Compute):
            raise _DoesNotFollowError
        values = {axis.var: const(position) for axis, position in zip(tensor.op.axes, at, strict=True)}
        if tensor.op.reduction is None:
            return self._value(tensor.op.bodies[tensor.output], values)
        return self._reduced(tensor.op.reduction, values)[tensor.output]

    def _reduced(self, reduction: Reduction, values: Mapping[Var, Expr]) -> list[Expr]:
        reducer = reduction.reducer
        result = [self._value(identity, {}) for identity in reducer.identities]
        for point in product(*map(self._run, reduction.axes)):
            at = {**values, **{axis.var: const(p) for axis, p in zip(reduction.axes, point, strict=True)}}
            condition = self._value(reduction.condition, at)
            if condition == FALSE:
                continue
            if condition != TRUE:
                raise _DoesNotFollowError
            right = [self._value(source, at) for source in reduction.sources]
            both = dict(zip((*reducer.left, *reducer.right), (*result, *right), strict=True))
            result = [self._value(combined, both) for combined in reducer.results]
        return result

    def _run(self, axis: IterVar) -> range:
        if not isinstance(axis.extent, Const) or axis.extent.value > MOST:
            raise _DoesNotFollowError
        return range(int(axis.extent.value))

    def _simplified(self, value: Expr) -> Expr:
        return value if isinstance(value, Const) or value.dtype.is_float else simplify(value, self._bounds)

    # Scalars

    def _value(self, expr: Expr, at: Mapping[Var, Expr]) -> Expr:
        match expr:
            case Const(value, dtype):
                return const(value) if dtype.is_int else expr
            case Var():
                return at.get(expr, expr)
            case Read(source, indices) if isinstance(source, Tensor):
                return self._element(source, tuple(self._number(index, at) for index in indices))
            case Select(condition, a, b):
                return self._select(condition, a, b, at)
            case Cast(a, dtype):
                return self._cast(self._value(a, at), a.dtype, dtype)
            case Unary(op, a):
                return self._unary(op, self._value(a, at), a.dtype)
            case Binary(op, a, b):
                return self._binary(op, a, b, at)
            case Check():
                return self._checked(expr, self._value(expr.index, at), self._value(expr.extent, at))
            case _:
                raise _DoesNotFollowError

    def _checked(self, check: Check, index: Expr, extent: Expr) -> Expr:
        """The position that ``index`` denotes, if it is known to be in range."""
        position = simplify(checked(index, extent, check.origin, from_end=check.from_end), self._bounds)
        if isinstance(position, Check):
            raise _DoesNotFollowError
        return position

    def _number(self, expr: Expr, at: Mapping[Var, Expr]) -> int:
        value = self._simplified(self._value(expr, at))
        if not isinstance(value, Const):
            raise _DoesNotFollowError
        return int(value.value)

    def _select(self, condition: Expr, a: Expr, b: Expr, at: Mapping[Var, Expr]) -> Expr:
        chosen = self._simplified(self._value(condition, at))
        if isinstance(chosen, Const):
            return self._value(a if chosen.value else b, at)
        return select(chosen, self._value(a, at), self._value(b, at))

    def _cast(self, value: Expr, source: DType, target: DType) -> Expr:
        if source.is_float and target.is_int:
            return self._fitting(self._whole(value, source, UnaryOp.FLOOR), target)
        if source.is_int and target in _EXACT:
            return cast(value, target)
        if source.is_float or target.is_float:
            raise _DoesNotFollowError
        if target.is_bool:
            return value if source.is_bool else not_equal(value, ZERO)
        return select(value, ONE, ZERO) if source.is_bool else self._fitting(value, target)

    def _fitting(self, value: Expr, dtype: DType) -> Expr:
        """``value`` as an integer of ``dtype``; a literal wraps around."""
        if isinstance(value, Const):
            return const(wrap(int(value.value), dtype)) if dtype.bits < index.bits else value
        if dtype == index:
            return value
        low, high = interval(self._simplified(value), self._bounds)
        if low is None or low < dtype.min:
            raise _DoesNotFollowError
        if dtype.bits < index.bits and (high is None or high > dtype.max):
            if low < 0:
                raise _DoesNotFollowError
            self.limits.append(Limit(value, int(dtype.max)))
        return value

    def _unary(self, op: UnaryOp, value: Expr, dtype: DType) -> Expr:
        if op is UnaryOp.NOT and dtype.is_bool:
            return negated(value)
        if op in (UnaryOp.CEIL, UnaryOp.FLOOR) and dtype in _EXACT:
            return cast(self._whole(value, dtype, op), dtype)
        if not dtype.is_int or op not in (UnaryOp.NEG, UnaryOp.ABS):
            raise _DoesNotFollowError
        opposite = ZERO - value
        return self._fitting(opposite if op is UnaryOp.NEG else maximum(value, opposite), dtype)

    def _binary(self, op: BinaryOp, a: Expr, b: Expr, at: Mapping[Var, Expr]) -> Expr:
        if a.dtype.is_float:
            return self._float(op, self._value(a, at), self._value(b, at), a.dtype)
        left = self._simplified(self._value(a, at))
        if a.dtype.is_bool and left in _DECIDING.get(op, ()):
            return left
        right = self._simplified(self._value(b, at))
        if op in COMPARISONS or (a.dtype.is_bool and op in _DECIDING):
            return binary(op, left, right)
        if not a.dtype.is_int:
            raise _DoesNotFollowError
        if op is BinaryOp.MOD and isinstance(right, Const) and right.value > 0 and self._is_never_positive(left):
            # What is missing to a multiple: `-n % 8` is `(n + 7) // 8 * 8 - n`, so that `n` and it are one product.
            return self._fitting((right - ONE - left) // right * right + left, a.dtype)
        if op in _ROUNDED_DOWN and self._is_natural(left) and self._is_natural(right):
            op = _ROUNDED_DOWN[op]
        if op not in _ARITHMETIC:
            raise _DoesNotFollowError
        return self._fitting(binary(op, left, right), a.dtype)

    def _float(self, op: BinaryOp, left: Expr, right: Expr, dtype: DType) -> Expr:
        """An integer or a quotient."""
        match op, left, right:
            case BinaryOp.DIV, Cast(), Const(k) if k == k // 1 and 1 <= k <= _EXACT[f32]:
                return binary(op, left, right)
            case BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL, Cast() | Const(), Cast() | Const():
                return cast(self._exact(binary(op, self._integer(left), self._integer(right)), dtype), dtype)
            case _:
                raise _DoesNotFollowError

    def _integer(self, value: Expr) -> Expr:
        """The integer that a float is."""
        match value:
            case Cast(a, _):
                return a
            case Const(number, _) if number == number // 1 and abs(number) < _EXACT[f32]:
                return const(int(number))
            case _:
                raise _DoesNotFollowError

    def _whole(self, value: Expr, dtype: DType, rounding: UnaryOp) -> Expr:
        """A float that is not negative, rounded to an integer."""
        match value:
            case Binary(BinaryOp.DIV, Cast(a, _), Const(k, _)):
                numerator = self._exact(a, dtype)
                return (numerator + (int(k) - 1 if rounding is UnaryOp.CEIL else 0)) // int(k)
            case _:
                return self._exact(self._integer(value), dtype)

    def _exact(self, value: Expr, dtype: DType) -> Expr:
        """``value``, limited to numbers that are not negative and that ``dtype`` has."""
        low, high = interval(self._simplified(value), self._bounds)
        if dtype not in _EXACT or low is None or low < 0:
            raise _DoesNotFollowError
        if high is None or high > _EXACT[dtype]:
            self.limits.append(Limit(value, _EXACT[dtype]))
        return value

    def _is_never_positive(self, value: Expr) -> bool:
        high = interval(value, self._bounds).hi
        return high is not None and high <= 0

    def _is_natural(self, value: Expr) -> bool:
        low = interval(value, self._bounds).lo
        return low is not None and low >= 0


_DECIDING: Mapping[BinaryOp, tuple[Expr, ...]] = {BinaryOp.AND: (FALSE,), BinaryOp.OR: (TRUE,)}
"""The left operand if it decides: then the right one is not evaluated, and may read out of bounds."""
