"""Families of linear operators that commute: what mixes channels only, and what mixes, copies or shifts places only.

A convolution of points (a kernel of one tap) mixes channels; means, averages and copies concern places. Filters are
composed with points by a convolution of the filters themselves. So it is with products of matrices, which mix columns,
and means over rows.
"""

from collections.abc import Sequence
from functools import partial

from tilewright.passes.rules.terms import Term
from tilewright.superopt.generate.extents import Mismatch, Shape, Solver, as_attribute, literal, size_of
from tilewright.superopt.generate.families import NORMALIZATION, TASO, TRANSFORMER
from tilewright.superopt.generate.operations import Family, Input, Operation, Role, apply, of_name

_SWAP = (1, 0, 2, 3)
_WINDOW = {"dilations": (1, 1), "group": 1, "pads": (0, 0, 0, 0), "strides": (1, 1)}
_DATA, _WEIGHT = Role.DATA, Role.WEIGHT

# Typing


def _points(solver: Solver, filters: Shape) -> None:
    """Bind the kernel of ``filters`` to one tap."""
    if len(filters) != 4 or size_of(filters[2]) != 1 or size_of(filters[3]) != 1:
        raise Mismatch
    for extent in filters[2:]:
        solver.pin(extent)


def _after(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """Filters of the results of points."""
    filters, points = shapes
    if len(filters) != 4:
        raise Mismatch
    _points(solver, points)
    solver.unify(filters[1], points[0])
    return (filters[0], points[1], *filters[2:])


def _before(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """Points of the results of filters."""
    filters, points = shapes
    if len(filters) != 4:
        raise Mismatch
    _points(solver, points)
    solver.unify(points[1], filters[0])
    return (points[0], *filters[1:])


def _by_channel(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A number for each channel of an image, or of filters."""
    x, numbers = shapes
    if len(x) != 4 or len(numbers) != 3:
        raise Mismatch
    solver.unify(x[1], numbers[0])
    for extent in numbers[1:]:
        solver.unify(extent, literal(1))
    return x


def _sums(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    _by_channel(solver, shapes)
    return (shapes[0][0],)


def _by_filter(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    x, numbers = shapes
    if len(x) != 4 or len(numbers) != 1:
        raise Mismatch
    solver.unify(x[1], numbers[0])
    return x


def _mean_of_places(_solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if len(x) != 4 or size_of(x[2]) == 1:
        raise Mismatch
    return (*x[:2], literal(1), literal(1))


def _image(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if len(x) != 4 or size_of(x[2]) == 1:
        raise Mismatch
    return x


def _copied(axis: int, _solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if len(x) != 4 or size_of(x[2]) == 1:
        raise Mismatch
    extents = list(x)
    extents[axis] = (*x[axis], *x[axis])
    return tuple(extents)


def _of_rows(keeps: bool, _solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if len(x) != 3 or size_of(x[1]) == 1:
        raise Mismatch
    return (x[0], literal(1), x[2]) if keeps else (x[0], x[2])


def _columns(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    x, numbers = shapes
    if len(x) < 2 or len(numbers) != 1:
        raise Mismatch
    solver.unify(x[-1], numbers[0])
    return x


def _product(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    x, w = shapes
    if len(x) < 2 or len(w) != 2:
        raise Mismatch
    solver.unify(x[-1], w[0])
    return (*x[:-1], w[1])


# Terms


def _plain(name: str, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply(name, *operands)


def _filters_after(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    filters, points = operands
    return apply("Conv", filters, apply("Transpose", points, perm=_SWAP), **_WINDOW)


def _filters_before(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    filters, points = operands
    composed = apply("Conv", apply("Transpose", filters, perm=_SWAP), points, **_WINDOW)
    return apply("Transpose", composed, perm=_SWAP)


def _summed(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("ReduceSum", apply("Mul", *operands), axes=(-3, -2, -1), keepdims=False)


def _shifted(operands: Sequence[Term], shapes: Sequence[Shape], _result: Shape) -> Term:
    x, numbers = operands
    return apply("Add", x, apply("Reshape", numbers, shape=(as_attribute(shapes[1][0]), 1, 1)))


def _repeated(axis: int, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Repeat", *operands, axis=axis, times=2)


def _mean(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("ReduceMean", *operands, axes=(-2, -1))


def _reduced(name: str, keeps: bool, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply(name, *operands, axes=(-2,), keepdims=keeps)


# Families


def _inputs(names: str, shape: tuple[str | int, ...], *, weight: bool = False) -> tuple[Input, ...]:
    return tuple(Input(name, shape, weight) for name in names.split())


PLACES = Family(
    "places",
    (
        *_inputs("i1", ("n", "c", "h", "w")),
        *_inputs("p1 p2", ("c", "c2", 1, 1), weight=True),
        *_inputs("u1", ("c", "c2", 3, 3), weight=True),
        *_inputs("s1", ("c", 1, 1), weight=True),
    ),
    (
        of_name(NORMALIZATION, "Conv"),
        Operation("AveragePool", _image, of_name(TASO, "AveragePool").building, (_DATA,)),
        Operation("Mean of places", _mean_of_places, _mean, (_DATA,)),
        *(Operation(f"Repeat{axis}", partial(_copied, axis), partial(_repeated, axis), (_DATA,)) for axis in (-2, -1)),
        *(
            Operation(f"{name} by channel", _by_channel, partial(_plain, name), (_DATA, _WEIGHT))
            for name in ("Add", "Mul")
        ),
        Operation("Shift", _by_filter, _shifted, (_DATA, _WEIGHT)),
        Operation("Filters after points", _after, _filters_after, (_WEIGHT, _WEIGHT)),
        Operation("Filters before points", _before, _filters_before, (_WEIGHT, _WEIGHT)),
        Operation("Filters by channel", _by_channel, partial(_plain, "Mul"), (_WEIGHT, _WEIGHT)),
        Operation("Sums of filters", _sums, _summed, (_WEIGHT, _WEIGHT)),
    ),
    (
        {"n": 2, "c": 4, "c2": 4, "h": 4, "w": 6},
        {"n": 4, "c": 6, "c2": 6, "h": 6, "w": 4},
        {"n": 2, "c": 2, "c2": 2, "h": 2, "w": 4},
    ),
)
"""Images: channels are mixed, places averaged, copied and shifted."""

ROWS = Family(
    "rows",
    (
        *_inputs("t1 t2", ("b", "m", "k")),
        *_inputs("w1", ("k", "k2"), weight=True),
        *_inputs("v1", ("k",), weight=True),
    ),
    (
        Operation("MatMul", _product, partial(_plain, "MatMul"), (_DATA, _WEIGHT)),
        *(
            Operation(f"{name} of rows, {keeps}", partial(_of_rows, keeps), partial(_reduced, name, keeps), (_DATA,))
            for name in ("ReduceSum", "ReduceMean")
            for keeps in (True, False)
        ),
        *(
            Operation(f"{name} of a vector", _columns, partial(_plain, name), (_DATA, _WEIGHT))
            for name in ("Add", "Mul")
        ),
        of_name(TRANSFORMER, "Add"),
    ),
    (
        {"b": 2, "m": 4, "k": 6, "k2": 6},
        {"b": 2, "m": 6, "k": 4, "k2": 4},
        {"b": 4, "m": 2, "k": 4, "k2": 4},
    ),
)
"""Sequences: columns are mixed, rows averaged."""
