"""Shape computations of operators: broadcasting, axes, row-major offsets, reshapes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from tilewright.base.errors import BadProgram
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.cases import equal_by_cases, simplify_by_cases
from tilewright.symbolic.expr import (
    ONE,
    ZERO,
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_expr,
    const,
    maximum,
    minimum,
)
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import equivalent, simplify
from tilewright.symbolic.traversal import substitute
from tilewright.tensor.ir import Tensor

Shape = tuple[Expr, ...]


@lru_cache(maxsize=256)
def _run_time(extents: frozenset[Var]) -> Bounds:
    """Facts about run-time extents: they are not negative."""
    return Bounds(dims=dict.fromkeys(sorted(extents, key=lambda v: v.unique)))


def same_extent(a: Expr, b: Expr) -> bool:
    """Whether two extents are provably equal."""
    return a == b or equivalent(a, b, _run_time(a.variables | b.variables)) or equal_by_cases(a, b)


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are provably equal."""
    return len(a) == len(b) and all(map(same_extent, a, b))


def simplified(extent: Expr) -> Expr:
    """``extent`` simplified."""
    return simplify_by_cases(simplify(extent, _run_time(extent.variables)))


def number_at(extent: Expr, values: Mapping[Var, int]) -> int:
    """``extent`` with ``values`` for variables. Raises ``BadProgram`` if it depends on another one."""
    known = values.get(extent) if isinstance(extent, Var) else None
    if known is not None:  # the common case
        return known
    given = {variable: const(values[variable]) for variable in extent.variables if variable in values}
    number = simplified(substitute(extent, given))
    if not isinstance(number, Const):
        raise BadProgram(f"{extent} has a symbol that is not bound")
    return int(number.value)


def broadcast(*shapes: Shape) -> Shape:
    """The common shape, by NumPy's rules. Raises ``BadProgram`` if there is none."""
    rank = max(map(len, shapes), default=0)
    padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_common(extents, shapes) for extents in zip(*padded, strict=True))


def _common(extents: Sequence[Expr], shapes: Sequence[Shape]) -> Expr:
    result: Expr = ONE
    for extent in extents:
        if result == ONE:
            result = extent
        elif extent != ONE and not same_extent(extent, result):
            raise BadProgram(f"shapes {', '.join(map(show, shapes))} do not broadcast: {extent} against {result}")
    return result


def show(shape: Sequence[int | Expr]) -> str:
    """``[2, n, 3]``."""
    return f"[{', '.join(map(str, shape))}]"


def require_broadcast(tensor: Tensor, shape: Shape, role: str) -> None:
    """Raises ``BadProgram``, with ``role``, unless ``tensor`` broadcasts to ``shape`` itself."""
    if broadcast(shape, tensor.shape) != shape:
        raise BadProgram(f"{role} {tensor} does not broadcast to {show(shape)}")


def element(tensor: Tensor, indices: Sequence[Expr]) -> Expr:
    """``tensor`` at ``indices`` of a shape that it broadcasts to."""
    own = indices[len(indices) - tensor.ndim :]
    return tensor[tuple(ZERO if extent == ONE else index for extent, index in zip(tensor.shape, own, strict=True))]


def normalize_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front. Raises ``BadProgram`` if there is no such axis."""
    if not -rank <= axis < rank:
        raise BadProgram(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank


def normalize_axes(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted axes counted from the front; None means all. Raises ``BadProgram`` for a repeated one."""
    if axes is None:
        return tuple(range(rank))
    result = sorted(normalize_axis(axis, rank) for axis in axes)
    if len(set(result)) != len(result):
        raise BadProgram(f"axes {tuple(axes)} repeat one")
    return tuple(result)


def element_count(shape: Shape) -> Expr:
    """The number of elements."""
    count: Expr = ONE
    for extent in shape:
        count = count * extent
    return simplified(count)


def static(shape: Shape) -> tuple[int, ...] | None:
    """The extents as integers, if all are."""
    values = [int(extent.value) for extent in shape if isinstance(extent, Const)]
    return tuple(values) if len(values) == len(shape) else None


def place_of(flat: Expr, extents: Sequence[ExprLike]) -> list[Expr]:
    """The position of the element with the row-major offset ``flat``."""
    place: list[Expr] = []
    for extent in reversed(extents):
        place.append(flat % extent)
        flat = flat // extent
    return place[::-1]


def nearest_index(index: Expr, extent: Expr) -> Expr:
    """``index`` clamped to ``0 .. extent - 1``."""
    return maximum(minimum(index, extent - 1), ZERO)


def reshape_indices(old: Shape, new: Shape, indices: Sequence[Expr]) -> tuple[Expr, ...]:
    """The position in ``old`` of the element at ``indices`` of ``new``, both row-major.

    Dimensions are matched in groups of equal size first, so that unchanged dimensions need no division.
    """
    result: list[Expr] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i_end, j_end = _next_group(old, new, i, j)
        result.extend(_regroup(old[i:i_end], new[j:j_end], indices[j:j_end]))
        i, j = i_end, j_end
    return tuple(result)


def _next_group(old: Shape, new: Shape, i: int, j: int) -> tuple[int, int]:
    """The ends of the smallest groups from ``i`` and ``j`` on with equally many elements."""
    for i_end in range(i + (i < len(old)), len(old) + 1):
        for j_end in range(j + (j < len(new)), len(new) + 1):
            if same_extent(element_count(old[i:i_end]), element_count(new[j:j_end])):
                rest = element_count(old[i_end:]), element_count(new[j_end:])
                if same_extent(*rest):
                    return i_end, j_end
    return len(old), len(new)


def _regroup(old: Shape, new: Shape, indices: Sequence[Expr]) -> list[Expr]:
    """Indices into ``old`` from those of ``new``, ignoring extents of 1."""
    flat: Expr = ZERO
    for index, extent in zip(indices, new, strict=True):
        flat = flat if extent == ONE else flat * extent + index
    outermost = next((p for p, extent in enumerate(old) if extent != ONE), None)
    result: list[Expr] = []
    for position in reversed(range(len(old))):
        extent = old[position]
        result.append(ZERO if extent == ONE else flat if position == outermost else flat % extent)
        flat = flat // extent
    return result[::-1]


def infer_reshape(shape: Shape, target: Sequence[int | Expr], allow_zero: bool = False) -> Shape:
    """ONNX's Reshape: 0 copies the input's extent (unless ``allow_zero``), one -1 is inferred.

    Raises ``BadProgram`` if the numbers of elements differ.
    """
    result: list[Expr | None] = []
    for position, extent in enumerate(target):
        if extent == 0 and not allow_zero:
            if position >= len(shape):
                raise BadProgram(f"0 at position {position} of {list(target)} copies what {show(shape)} has not")
            result.append(shape[position])
        elif isinstance(extent, int) and extent < -1:
            raise BadProgram(f"{list(target)} is no shape: {extent} is negative")
        else:
            result.append(None if isinstance(extent, int) and extent == -1 else as_expr(extent))
    if result.count(None) > 1:
        raise BadProgram(f"{list(target)} is no shape: only one extent may be -1")
    known = tuple(extent for extent in result if extent is not None)
    left = _quotient(shape, known) if None in result else ONE
    final = tuple(left if extent is None else extent for extent in result)
    total = element_count(shape)
    ambiguous = None in result and element_count(known) == ZERO
    if ambiguous or not same_extent(element_count(final), total):
        raise BadProgram(f"{show(shape)} with {total} elements can't become {list(target)}")
    return final


def _quotient(shape: Shape, part: Shape) -> Expr:
    """The quotient of the element counts of ``shape`` and ``part``; factors of both cancel out, even if they are 0."""
    above, below = _factors(shape), list[Expr]()
    for factor in _factors(part):
        if factor in above:
            above.remove(factor)
        else:
            below.append(factor)
    return simplified(element_count(tuple(above)) // element_count(tuple(below)))


def _factors(shape: Shape) -> list[Expr]:
    """The factors of the element count: ``b`` and 4 of an extent ``b * 4``."""
    found: list[Expr] = []
    stack = list(reversed(shape))
    while stack:
        match stack.pop():
            case Binary(BinaryOp.MUL, a, b):
                stack += [b, a]
            case factor:
                found.append(factor)
    return found
