"""Sums of products."""

from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.draw import Draw, DType, Proposal, Value

Rule = Callable[[Draw], Proposal | None]


def _matmul(draw: Draw) -> Proposal:
    first = draw.value(rank=(1, 4), kinds="iuf", within=(-100, 100))
    second = _right(draw, first, first.dtype)
    if draw.chance(0.1) and first.rank == second.rank == 2 and first.shape[0] == second.shape[1]:
        return Proposal([second, first])
    return Proposal([first, second])


def _right(draw: Draw, first: Value, dtype: DType) -> Value:
    """A matrix, or a stack of them, that ``first`` can be multiplied by."""
    inner = first.shape[-1]

    def fits(value: Value) -> bool:
        return value.dtype == dtype and value.rank == 2 and value.shape[0] == inner and value.within(-100, 100)

    columns = draw.integer(1, 20)
    if draw.chance(0.15):
        return draw.like((inner,), dtype)
    if first.rank > 2 and draw.chance(0.5):
        batch = tuple(1 if draw.chance(0.3) else extent for extent in first.shape[:-2])
        return draw.like((*batch[draw.integer(0, len(batch)) :], inner, columns), dtype)
    return draw.reused(fits) or draw.fresh((inner, columns), dtype)


def _gemm(draw: Draw) -> Proposal:
    first = draw.value(rank=(2, 2), kinds="iuf", within=(-100, 100))
    flags = {"transA": draw.integer(0, 1), "transB": draw.integer(0, 1)}
    rows, inner = first.shape[::-1] if flags["transA"] else first.shape
    columns = draw.integer(1, 33)
    second = draw.like((columns, inner) if flags["transB"] else (inner, columns), first.dtype)
    shapes = [(rows, columns), (columns,), (1, columns), (rows, 1), (1,), ()]
    inputs = [first, second]
    if draw.opset < 11 or draw.chance(0.7):
        inputs.append(draw.like(draw.pick(shapes), first.dtype))
    if first.dtype.kind == "f" and draw.chance(0.5):
        return Proposal(inputs, {**flags, "alpha": 0.5, "beta": 1.5})
    return Proposal(inputs, flags)


def _matmul_integer(draw: Draw) -> Proposal:
    first = draw.value(rank=(2, 3))
    kind = first.dtype if draw.chance(0.5) else draw.dtype(1)
    second = draw.fresh((first.shape[-1], draw.integer(1, 20)), kind)
    points = [draw.parameters(draw.elements((), dtype)) if draw.chance(0.6) else None for dtype in (first.dtype, kind)]
    return Proposal([first, second, *points])


_EQUATIONS = {
    2: ("ij->ji", "ij->i", "ij->", "ij,jk->ik", "ij,kj->ik", "ij,ij->ij", "ij,j", "ij,ik->jk"),
    3: ("bij,bjk->bik", "bij,bkj->bik", "bij->bji", "...ij,...jk->...ik", "bij,jk", "bij,bij->b"),
    4: ("bhid,bhjd->bhij", "bihd,bjhd->bhij", "abcd->dcba", "...ij->...ji"),
}


def _einsum(draw: Draw) -> Proposal:
    first = draw.value(rank=(2, 4), kinds="f", within=(-50, 50))
    equation = draw.pick(_EQUATIONS[first.rank])
    terms = equation.split("->")[0].split(",")
    if len(terms) == 1:
        return Proposal([first], {"equation": equation})
    if equation.startswith("..."):
        return Proposal([first, draw.like((first.shape[0], first.shape[2], 3), first.dtype)], {"equation": equation})
    extents = dict(zip(terms[0], first.shape, strict=True))
    shape = [extents.get(letter) or draw.integer(1, 9) for letter in terms[1]]
    return Proposal([first, draw.like(shape, first.dtype)], {"equation": equation})


def _det(draw: Draw) -> Proposal:
    extent = draw.integer(1, 4)
    batch = draw.shape(None, 0, 1)
    return Proposal([draw.like((*batch, extent, extent), draw.dtype(0, "f"), (-2, 2))])


def _qlinear_matmul(draw: Draw) -> Proposal:
    """Scales are powers of two, so that what is rounded is exact in float32 and in float64."""
    first = draw.value(rank=(2, 3), kinds="iu")
    second = draw.fresh((first.shape[-1], draw.integer(1, 20)), draw.dtype(3, "iu"))
    result = draw.dtype(7, "iu")
    inputs: list[Value] = []
    for value in (first, second):
        inputs += [value, _power(draw), draw.parameters(draw.elements((), value.dtype))]
    return Proposal([*inputs, _power(draw, 2), draw.parameters(draw.elements((), result))])


def _power(draw: Draw, most: int = -1) -> Value:
    return draw.parameters(np.array(2.0 ** draw.integer(-4, most), np.float32))


RULES: Mapping[str, Rule] = {
    "Det": _det,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
}
