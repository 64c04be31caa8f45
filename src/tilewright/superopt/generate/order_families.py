"""A family of functions that keep the order of numbers, and maxima.

Over a field there is no order, so values are compared over ``domains.Increasing``: each function is a random one that
never decreases.
"""

from collections.abc import Sequence

from tilewright.passes.rules.terms import Number, Term
from tilewright.superopt.generate.extents import Mismatch, Shape, Solver, literal, size_of
from tilewright.superopt.generate.families import TASO, unary
from tilewright.superopt.generate.operations import Family, Input, Operation, Role, apply, of_name
from tilewright.superopt.generate.well_typed import same_shape
from tilewright.tensor.domains import Increasing

_DATA = Role.DATA


def _halved(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """The extents of places are numbers, as their halves are no sums of symbols; ``windows`` makes them symbols."""
    (x,) = shapes
    if len(x) != 4 or any(size_of(extent) % 2 for extent in x[2:]):
        raise Mismatch
    for extent in x[2:]:
        solver.pin(extent)
    return (*x[:2], *(literal(size_of(extent) // 2) for extent in x[2:]))


def _largest(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("MaxPool", *operands, kernel_shape=(2, 2), strides=(2, 2))


def _clipped(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Clip", *operands, Number(0.0), Number(6.0))


EXTREMA = Family(
    "extrema",
    (Input("i1", ("n", "c", 4, 6)), Input("i2", ("n", "c", 4, 6))),
    (
        Operation("MaxPool", _halved, _largest, (_DATA,)),
        *map(unary, ("Relu", "Sigmoid", "Tanh", "Exp", "Erf")),
        Operation("Clip", same_shape, _clipped, (_DATA,), elementwise=True),
        of_name(TASO, "Concat1 of rank 4"),
    ),
    ({"n": 2, "c": 4}, {"n": 4, "c": 6}, {"n": 2, "c": 2}),
    Increasing,
)
"""Images, of which the largest of each four places is taken."""
