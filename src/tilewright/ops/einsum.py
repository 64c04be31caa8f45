"""Einstein summation: products of elements, summed over the subscripts missing in the result."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import broadcast
from tilewright.symbolic.expr import ONE, ZERO, Expr, cast
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

ELLIPSIS = "..."
Subscripts = tuple[str, ...]
"""One name for each dimension: a letter, or ``...0``, ``...1`` for those of the ellipsis, the last one being 0."""


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[Subscripts], Subscripts]:
    """The subscripts of the operands and of the result. Raises ``BadProgram`` for an equation invalid for these ranks.

    Without ``->``, the result has the ellipsis, then, sorted, the letters that occur once.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise BadProgram(f"Einsum: `{equation}` has {len(terms)} operands, not {len(ranks)}")
    operands = [_subscripts(term, rank, equation) for term, rank in zip(terms, ranks, strict=True)]
    hidden = sorted({s for o in operands for s in o if s.startswith(ELLIPSIS)}, key=lambda s: -int(s[len(ELLIPSIS) :]))
    if arrow:
        result = _letters(right, tuple(hidden), equation)
        if ELLIPSIS not in right and hidden:
            raise BadProgram(f"Einsum: the result of `{equation}` has no ellipsis, but an operand has")
    else:
        counts = Counter(c for c in left if c.isalpha())
        result = (*hidden, *sorted(c for c, count in counts.items() if count == 1))
    known = {s for operand in operands for s in operand}
    if len(set(result)) != len(result) or not known.issuperset(result):
        raise BadProgram(f"Einsum: the result of `{equation}` repeats a letter, or has one that no operand has")
    return operands, result


def _subscripts(term: str, rank: int, equation: str) -> Subscripts:
    letters = term.replace(ELLIPSIS, "")
    hidden = rank - len(letters)
    if hidden < 0 or (hidden and ELLIPSIS not in term):
        raise BadProgram(f"Einsum: `{term}` of `{equation}` does not fit an operand with {rank} dimensions")
    return _letters(term, tuple(f"{ELLIPSIS}{p}" for p in reversed(range(hidden))), equation)


def _letters(term: str, hidden: Subscripts, equation: str) -> Subscripts:
    """The names of a term, with those of its ellipsis."""
    before, dots, after = term.partition(ELLIPSIS)
    if not (before + after).isalpha() and before + after:
        raise BadProgram(f"Einsum: `{equation}` is no equation: subscripts are letters")
    return (*before, *(hidden if dots else ()), *after)


def contract(operands: Sequence[Tensor], subscripts: Sequence[Subscripts], result: Subscripts) -> Tensor:
    """The sum of products; a dimension of extent 1 is broadcast. Raises ``BadProgram`` if extents or dtypes differ."""
    extents: dict[str, Expr] = {}
    for operand, names in zip(operands, subscripts, strict=True):
        if operand.dtype != operands[0].dtype:
            raise BadProgram(f"Einsum of {operands[0]} and {operand}: the dtypes differ")
        for name, extent in zip(names, operand.shape, strict=True):
            extents[name] = broadcast((extents.get(name, ONE),), (extent,))[0]
    summed = {name: te.reduce_axis((0, extents[name]), name=f"k{p}") for p, name in enumerate(extents)}
    summed = {name: axis for name, axis in summed.items() if name not in result}
    wide = accumulator(operands[0].dtype)

    def product(index: Index) -> Expr:
        at = dict(zip(result, index, strict=True)) | {name: axis.var for name, axis in summed.items()}
        values: list[Expr] = []
        for operand, names in zip(operands, subscripts, strict=True):
            places = (ZERO if e == ONE else at[name] for name, e in zip(names, operand.shape, strict=True))
            values.append(cast(operand[tuple(places)], wide))
        return reduce(lambda a, b: a * b, values)

    def body(index: Index) -> Expr | Reduction:
        return te.sum(product(index), axis=tuple(summed.values())) if summed else product(index)

    return narrowed(tensor(tuple(extents[name] for name in result), body), operands[0].dtype)


@operator("Einsum", FusionKind.CONTRACTION)
def einsum(a: Tensor, b: Tensor, *, equation: str) -> Tensor:
    """The sum of products of two operands by ``equation``, as in ``ij,jk->ik`` (NumPy's ``einsum``)."""
    operands, result = parse(equation, (a.ndim, b.ndim))
    return contract((a, b), operands, result)


@operator("EinsumOfOne", FusionKind.REDUCTION)
def einsum_of_one(x: Tensor, *, equation: str) -> Tensor:
    """Sums, diagonals and transposes of one operand, as in ``bii->b``."""
    operands, result = parse(equation, (x.ndim,))
    return contract((x,), operands, result)
