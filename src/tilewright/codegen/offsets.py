"""Index expressions as sums: ``constant + sum of atom * factor``, by structure alone (called for every access)."""

from dataclasses import dataclass

from tilewright.loops.ir import Buffer
from tilewright.symbolic.expr import Binary, Const, Expr, binary, const
from tilewright.symbolic.operations import BinaryOp


@dataclass(frozen=True, slots=True)
class LinearForm:
    """``constant`` plus each atom times its factor; atoms are no sums, differences or multiples."""

    constant: int
    terms: tuple[tuple[Expr, int], ...]


def linear_form(expr: Expr) -> LinearForm:
    """``expr`` (of dtype ``index``) as a sum; terms in the order of their first appearance.

    Digits of one number that stand beside each other are that number again: ``(x // 14) * 14 + x % 14`` is ``x``, as
    where dimensions were joined that lie side by side in memory.
    """
    terms: dict[Expr, int] = {}
    constant = _collect(expr, 1, terms)
    while (joined := _join_digits(terms)) is not None:
        constant += joined
    return LinearForm(constant, tuple((atom, factor) for atom, factor in terms.items() if factor))


def flat_form(buffer: Buffer, indices: tuple[Expr, ...]) -> LinearForm:
    """Where the element of ``buffer`` at ``indices`` lies, in elements from its start."""
    flat: Expr = const(0)
    for index, extent in zip(indices, buffer.shape, strict=True):
        flat = binary(BinaryOp.ADD, binary(BinaryOp.MUL, flat, extent), index)
    return linear_form(flat)


def _collect(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    match expr:
        case Const(value):
            return factor * int(value)
        case Binary(BinaryOp.ADD, a, b):
            return _collect(a, factor, terms) + _collect(b, factor, terms)
        case Binary(BinaryOp.SUB, a, b):
            return _collect(a, factor, terms) + _collect(b, -factor, terms)
        case Binary(BinaryOp.MUL, a, Const(value)):
            return _collect(a, factor * int(value), terms)
        case Binary(BinaryOp.MUL, Const(value), b):
            return _collect(b, factor * int(value), terms)
        case _:
            terms[expr] = terms.get(expr, 0) + factor
            return 0


def _join_digits(terms: dict[Expr, int]) -> int | None:
    """Put a number in the place of two terms that are its digits; the constant that comes with it, None if none are."""
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
