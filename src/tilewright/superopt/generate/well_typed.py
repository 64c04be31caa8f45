"""Typing of the generator's operations: the extents that must be equal, and the shape of the result.

Each function is a ``Typing``: it raises ``Mismatch`` for operands that do not fit.
"""

from collections.abc import Sequence

from tilewright.superopt.generate.extents import Mismatch, Shape, Solver, literal, size_of
from tilewright.superopt.generate.operations import Typing


def same_shape(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """All operands have one shape."""
    for other in shapes[1:]:
        solver.unify_shapes(shapes[0], other)
    return shapes[0]


def of_rank(rank: int, typing: Typing) -> Typing:
    """``typing`` for operands of ``rank`` only."""

    def typed(solver: Solver, shapes: Sequence[Shape]) -> Shape:
        if any(len(shape) != rank for shape in shapes):
            raise Mismatch
        return typing(solver, shapes)

    return typed


def product_of_matrices(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A product of matrices, or of a batch of matrices by a matrix or by a batch of the same size."""
    a, b = shapes
    if len(b) < 2 or len(a) < len(b):
        raise Mismatch
    solver.unify(a[-1], b[-2])
    for x, y in zip(a[len(a) - len(b) : -2], b[:-2], strict=True):
        solver.unify(x, y)
    return (*a[:-1], b[-1])


def convolved(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A convolution with filters of as many channels, padded to keep the size."""
    x, weight = shapes
    _pin_kernel(solver, x, weight)
    solver.unify(x[1], weight[1])
    return (x[0], weight[0], *x[2:])


def convolved_by_channel(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A convolution with one filter for each channel."""
    x, weight = shapes
    _pin_kernel(solver, x, weight)
    solver.unify(x[1], weight[0])
    solver.unify(weight[1], literal(1))
    return x


def _pin_kernel(solver: Solver, x: Shape, weight: Shape) -> None:
    """Bind the kernel's extents to odd numbers, for which padding keeps the size."""
    if len(x) != 4 or len(weight) != 4 or any(size_of(extent) % 2 == 0 for extent in weight[2:]):
        raise Mismatch
    for extent in weight[2:]:
        solver.pin(extent)


def scaled(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A tensor times a scalar."""
    if not shapes[0] or shapes[1]:
        raise Mismatch
    return shapes[0]


def joined(axis: int, solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """The concatenation of two tensors along ``axis``."""
    first = shapes[0]
    if not -len(first) <= axis < len(first):
        raise Mismatch
    at = axis % len(first)
    for other in shapes[1:]:
        solver.unify_shapes(first, other, but=at)
    joined = tuple(part for shape in shapes for part in shape[at])
    return (*first[:at], joined, *first[at + 1 :])


def half(axis: int, which: int, solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """The first or the second half along ``axis``."""
    (x,) = shapes
    if not -len(x) <= axis < len(x):
        raise Mismatch
    at = axis % len(x)
    return (*x[:at], solver.halves(x[at])[which], *x[at + 1 :])


def permuted(perm: tuple[int, ...], solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A transposition."""
    (x,) = shapes
    if len(x) != len(perm):
        raise Mismatch
    return tuple(x[p] for p in perm)


def image(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """An operation on four dimensions that keeps the shape."""
    if len(shapes[0]) != 4:
        raise Mismatch
    return shapes[0]


def enlarged(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A kernel of 1 x 3, 3 x 1 or 1 x 1, padded with zeros to 3 x 3."""
    (weight,) = shapes
    if len(weight) != 4 or tuple(map(size_of, weight[2:])) not in {(1, 3), (3, 1), (1, 1)}:
        raise Mismatch
    for extent in weight[2:]:
        solver.pin(extent)
    return (*weight[:2], literal(3), literal(3))


def broadcast_to_rows(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A vector broadcast to each row."""
    x, v = shapes
    if len(v) != 1 or len(x) < 2:
        raise Mismatch
    solver.unify(x[-1], v[0])
    return x


def number_of_each_row(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A number broadcast to each row."""
    x, v = shapes
    if len(x) != len(v) or len(x) < 2:
        raise Mismatch
    solver.unify_shapes(x, v, but=len(x) - 1)
    solver.unify(v[-1], literal(1))
    if size_of(x[-1]) == 1:
        raise Mismatch
    return x


def reduced_rows(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A reduction to one number for each row."""
    (x,) = shapes
    if len(x) < 2 or size_of(x[-1]) == 1:
        raise Mismatch
    return (*x[:-1], literal(1))


def rows_of_one(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """An operand that has one number for each row, such as a variance."""
    (x,) = shapes
    if len(x) < 2:
        raise Mismatch
    solver.unify(x[-1], literal(1))
    return x


def along(axis: int, solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A number for each index along ``axis`` of four dimensions."""
    x, v = shapes
    if len(x) != 4 or len(v) != 4:
        raise Mismatch
    for at, extent in enumerate(v):
        solver.unify(extent, x[axis] if at == axis else literal(1))
    return x
