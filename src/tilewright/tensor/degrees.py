"""Bounds the degrees of a te program's results, as rational functions of its inputs.

Two fractions that differ agree at a random point of a field of p elements with a probability of at most d / p, where d
bounds the degrees of a / b - c / d (Schwartz 1980, Zippel 1979). Other than ring operations are random functions in the
field (``domains``): their results, and the outcomes of comparisons, count as new variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.symbolic.check import Check
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Unary
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp
from tilewright.tensor.ir import Compute, Operation, Placeholder, Tensor, topological_order

SMALL_POWER = 4
"""Powers up to this exponent are products in the field."""
_LINEAR = frozenset({UnaryOp.NEG, UnaryOp.ABS})


@dataclass(frozen=True, slots=True)
class Degree:
    """Bounds of the degrees of numerator and denominator."""

    above: int
    below: int = 0

    def __add__(self, other: "Degree") -> "Degree":
        return Degree(max(self.above + other.below, other.above + self.below), self.below + other.below)

    def __mul__(self, other: "Degree") -> "Degree":
        return Degree(self.above + other.above, self.below + other.below)

    def or_(self, other: "Degree") -> "Degree":
        """The degrees of a value that is one of two."""
        return Degree(max(self.above, other.above), max(self.below, other.below))

    def times(self, count: int) -> "Degree":
        """The degrees of a sum of ``count`` such fractions."""
        return Degree(self.above + max(0, count - 1) * self.below, count * self.below)

    def against(self, other: "Degree") -> int:
        """The degree of the numerator of the difference."""
        return (self + other).above


_NUMBER, _VARIABLE = Degree(0), Degree(1)


def degrees(outputs: Sequence[Tensor], inputs: Mapping[Tensor, Degree]) -> list[Degree]:
    """The degrees of each output, given those of the elements of ``inputs``."""
    known = {(tensor.op, tensor.output): degree for tensor, degree in inputs.items()}
    for op in topological_order(outputs):
        if isinstance(op, Compute):
            for output, degree in enumerate(_of_compute(op, known)):
                known[op, output] = degree
        elif not isinstance(op, Placeholder):
            known.update({(tensor.op, tensor.output): _VARIABLE for tensor in outputs if tensor.op is op})
    return [known[tensor.op, tensor.output] for tensor in outputs]


def _of_compute(op: Compute, known: Mapping[tuple[Operation, int], Degree]) -> list[Degree]:
    memo: dict[Expr, Degree] = {}
    bodies = [_of(value, known, memo) for value in op.values]
    if op.reduction is None:
        return bodies
    count = prod(int(axis.extent.value) for axis in op.reduce_axis if isinstance(axis.extent, Const))
    return [_reduced(op, body, count) for body in bodies]


def _reduced(op: Compute, body: Degree, count: int) -> Degree:
    assert op.reduction is not None, "somebody looked"
    match op.reduction.reducer.results:
        case (Binary(BinaryOp.ADD, _, _),):
            return body.times(count)
        case (Binary(BinaryOp.MUL, _, _),):
            return Degree(body.above * count, body.below * count)
        case _:
            return body


def _of(expr: Expr, known: Mapping[tuple[Operation, int], Degree], memo: dict[Expr, Degree]) -> Degree:
    if not expr.has_reads:
        return _NUMBER
    if expr not in memo:
        memo[expr] = _of_new(expr, known, memo)
    return memo[expr]


def _of_new(expr: Expr, known: Mapping[tuple[Operation, int], Degree], memo: dict[Expr, Degree]) -> Degree:
    match expr:
        case Read(source):
            return known[source.op, source.output] if isinstance(source, Tensor) else _VARIABLE
        case Cast(a, _):
            return _of(a, known, memo)
        case Unary(op, a):
            return _of(a, known, memo) if op in _LINEAR else _VARIABLE
        case Select(_, a, b):
            return _of(a, known, memo).or_(_of(b, known, memo))
        case Binary(op, a, b):
            return _of_binary(op, _of(a, known, memo), _of(b, known, memo))
        case Check(index):
            return _of(index, known, memo)
        case _:
            return _VARIABLE


def _of_binary(op: BinaryOp, a: Degree, b: Degree) -> Degree:
    match op:
        case BinaryOp.ADD | BinaryOp.SUB:
            return a + b
        case BinaryOp.MUL:
            return a * b
        case BinaryOp.DIV:
            return a * Degree(b.below, b.above)
        case BinaryOp.MIN | BinaryOp.MAX:
            return a.or_(b)
        case BinaryOp.POW:  # a small power is a product
            return Degree(a.above * SMALL_POWER, a.below * SMALL_POWER).or_(_VARIABLE)
        case _:
            return _NUMBER if op in COMPARISONS else _VARIABLE
