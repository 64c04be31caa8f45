"""Extents at a generic point: symbols become random numbers, and equal numbers mean equal expressions.

Two polynomials over the symbols of a rule that agree at a random point of a field of about 2**31 elements are equal,
except with a probability of degree / 2**31 (Schwartz, 1980; Zippel, 1979). So a proof with such numbers for extents is
a proof for all extents. A quotient, which is not a polynomial, is a fixed nonlinear function with ``a // 1 == a``:
quotients are equal only if their operands are. That of two literals is the true one, as extents may be literals.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from tilewright.base.errors import BadProgram
from tilewright.symbolic.expr import Binary, Const, Expr, Unary, Var, const
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.domains import PRIME

MIX = (1_103_515_245, 12_345)
"""Two arbitrary numbers that make quotients differ from polynomials."""


def element(name: str) -> int:
    """A pseudorandom number for a name, never one of a literal."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    return 1_000_003 + int.from_bytes(digest, "big") % (PRIME - 2_000_003)


LITERALS = 1 << 16
"""Numbers below are literals: no symbol has such a value, and hardly any expression of symbols."""


def quotient(a: int, b: int) -> int:
    """The value of ``a // b``, which literals have as they are."""
    if max(a, b) < LITERALS:
        return a // max(b, 1)
    return (a + (b - 1) * (a * a + MIX[0] * b + MIX[1])) % PRIME


@dataclass(slots=True)
class Point:
    """A number for each symbol: derived from its name, unless a condition determines another."""

    known: dict[Var, int] = field(default_factory=dict[Var, int])
    required: list[tuple[Expr, Expr]] = field(default_factory=list[tuple[Expr, Expr]])
    """Symbols determined by equations."""

    def value(self, extent: Expr | int) -> int:
        """``extent`` at this point. Raises ``BadProgram`` if it is not integer arithmetic."""
        match extent:
            case int():
                return extent % PRIME
            case Const(value):
                return int(value) % PRIME
            case Var(name):
                return self.known.get(extent, element(name))
            case Unary(UnaryOp.NEG, a):
                return -self.value(a) % PRIME
            case Binary(op, a, b):
                return self._binary(op, self.value(a), self.value(b), extent)
            case _:
                raise BadProgram(f"the extent `{extent}` is no sum, difference, product or quotient")

    def _binary(self, op: BinaryOp, a: int, b: int, whole: Expr) -> int:
        match op:
            case BinaryOp.ADD:
                return (a + b) % PRIME
            case BinaryOp.SUB:
                return (a - b) % PRIME
            case BinaryOp.MUL:
                return a * b % PRIME
            case BinaryOp.FLOORDIV:
                return quotient(a, b)
            case _:
                raise BadProgram(f"the extent `{whole}` is no sum, difference, product or quotient")

    def equal(self, a: Expr | int, b: Expr | int) -> bool:
        """Whether two extents are equal functions of the symbols."""
        return self.value(a) == self.value(b)

    def require(self, a: Expr, b: Expr) -> bool:
        """Move to a point where two extents are equal, if a symbol in them is free; returns whether they are equal."""
        if self.equal(a, b):
            return True
        for left, right in ((a, b), (b, a)):
            if self._solve(left, right):
                self.required.append((a, b))
                return self.equal(a, b)
        return False

    def _solve(self, a: Expr, b: Expr) -> bool:
        """Give a symbol the value that makes ``a == b``, if ``a`` is that symbol, or a multiple of it."""
        match a:
            case Var() if a not in self.known and a not in b.variables:
                self.known[a] = self.value(b)
            case Binary(BinaryOp.MUL, Var() as symbol, factor) if symbol not in self.known and self.value(factor):
                self.known[symbol] = self.value(b) * pow(self.value(factor), -1, PRIME) % PRIME
            case _:
                return False
        return True


def point_where(needs: Iterable[Expr]) -> Point:
    """A generic point among those where ``needs`` hold.

    Only conditions that can be solved for a symbol are used: ``n == EXTENT`` and ``n % NUMBER == 0``. A proof without
    the others is more general.
    """
    point = Point()
    for need in needs:
        match need:
            case Binary(BinaryOp.EQ, Binary(BinaryOp.MOD, Var() as symbol, divisor), Const(value=0)):
                multiple = element(f"{symbol} // {divisor}")
                point.known.setdefault(symbol, point.value(divisor) * multiple % PRIME)
            case Binary(BinaryOp.EQ, a, b):
                point.require(a, b)
            case _:
                pass
    return point


def as_extent(value: int | Expr) -> Expr:
    """An extent as an expression."""
    return value if isinstance(value, Expr) else const(value)
