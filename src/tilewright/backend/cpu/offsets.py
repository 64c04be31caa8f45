"""Index expressions as sums: ``constant + sum of atom * factor``, by structure alone (called for every access)."""

from dataclasses import dataclass

from tilewright.loops.ir import Buffer
from tilewright.symbolic.expr import Binary, Const, Expr, binary, const
from tilewright.symbolic.operations import BinaryOp


@dataclass(frozen=True, slots=True)
class LinearForm:
    """``constant`` plus each atom times its factor; atoms are not sums, differences or multiples."""

    constant: int
    terms: tuple[tuple[Expr, int], ...]


def linear_form(expr: Expr) -> LinearForm:
    """``expr`` (of dtype ``index``) as a sum; terms in the order of their first appearance.

    Adjacent digits of one number are recombined: ``(x // 14) * 14 + x % 14`` is ``x``, as for fused dimensions that are
    contiguous in memory.
    """
    terms: dict[Expr, int] = {}
    return _form(_collect(expr, 1, terms), terms)


def _form(constant: int, terms: dict[Expr, int]) -> LinearForm:
    while (joined := _join_digits(terms)) is not None:
        constant += joined
    return LinearForm(constant, tuple([(atom, factor) for atom, factor in terms.items() if factor]))


def flat_form(buffer: Buffer, indices: tuple[Expr, ...]) -> LinearForm:
    """The offset of the element of ``buffer`` at ``indices``, in elements."""
    strides = _strides(buffer)
    if strides is not None:
        terms: dict[Expr, int] = {}
        return _form(sum([_collect(i, s, terms) for i, s in zip(indices, strides, strict=True)]), terms)
    flat: Expr = const(0)
    for index, extent in zip(indices, buffer.shape, strict=True):
        flat = binary(BinaryOp.ADD, binary(BinaryOp.MUL, flat, extent), index)
    return linear_form(flat)


def _strides(buffer: Buffer) -> list[int] | None:
    """The stride of each dimension in elements; None if known only at run time."""
    strides = [1]
    for extent in reversed(buffer.shape[1:]):
        if not isinstance(extent, Const):
            return None
        strides.insert(0, strides[0] * int(extent.value))
    return strides[: len(buffer.shape)]


def _collect(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    # No ``match``: this is called for every part of every index.
    if isinstance(expr, Const):
        return factor * int(expr.value)
    if isinstance(expr, Binary):
        op, a, b = expr.op, expr.a, expr.b
        if op is BinaryOp.ADD:
            return _collect(a, factor, terms) + _collect(b, factor, terms)
        if op is BinaryOp.SUB:
            return _collect(a, factor, terms) + _collect(b, -factor, terms)
        if op is BinaryOp.MUL and isinstance(b, Const):
            return _collect(a, factor * int(b.value), terms)
        if op is BinaryOp.MUL and isinstance(a, Const):
            return _collect(b, factor * int(a.value), terms)
    terms[expr] = terms.get(expr, 0) + factor
    return 0


def _join_digits(terms: dict[Expr, int]) -> int | None:
    """Replace two terms that are digits of a number by it; returns the resulting constant, None if there are none."""
    for high, factor in terms.items():
        match high:
            case Binary(BinaryOp.FLOORDIV, number, Const(int(base))) if base > 0:
                low = binary(BinaryOp.MOD, number, const(base))
                if factor and terms.get(low, 0) * base == factor:
                    step = terms.pop(low)
                    del terms[high]
                    return _collect(number, step, terms)
            case _:
                pass
    return None
