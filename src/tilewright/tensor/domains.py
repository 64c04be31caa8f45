"""Domains of scalars over which te programs are compared: a finite field, and float64.

``Modular``: the integers modulo 2^31 - 1. Two sums of products that differ as polynomials agree at a random point with
a probability of at most degree / 2^31 (Schwartz 1980, Zippel 1979), so one evaluation distinguishes them. Other
operations keep as many of their laws as possible:

- division is the inverse, ``x / 0`` is 0; roots, exponentials ... are random functions, given by a keyed hash;
- ``min``, ``max`` and comparisons follow a random total order, in which numbers near 0 keep their places; thus extrema
  are associative, commutative and idempotent, and ``max(x, 0)`` is linear only by chance;
- infinities lie outside of the field; they can only be compared.

``Real``: float64 and the true functions. Identities of random functions hold for them up to rounding; identities of
true functions only (``exp(a) exp(b) = exp(a + b)``) hold here, too.

Arrays of both have any shape; all functions broadcast.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.dtypes import f64
from tilewright.base.errors import Unsupported
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_unary
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp

Residues: TypeAlias = NDArray[np.uint64]

PRIME = (1 << 31) - 1
"""A Mersenne prime: 2^31 is congruent to 1, so the bits above bit 31 are added to those below."""
_P = np.uint64(PRIME)
_BITS = np.uint64(31)
_MINUS_INFINITY, _INFINITY = np.uint64(PRIME), np.uint64(PRIME + 1)
_NEAR = np.uint64(1 << 16)
"""Integers up to this absolute value keep their order."""
_FAR = np.uint64(PRIME - 2 * (1 << 16) + 1)
"""Number of residues that are neither near 0 nor the negative of one that is."""
_MIDDLE = np.uint64(1 << 63)
_FOLD = 4
"""Number of products of residues whose sum fits in 64 bits."""
_HALF = np.uint64(PRIME // 2)
_STEP_BITS = np.uint64(23)
_INCREASING = frozenset(op.value for op in (UnaryOp.EXP, UnaryOp.TANH, UnaryOp.ERF, UnaryOp.SIGMOID, UnaryOp.ATAN))
"""Functions of all numbers that keep their order."""


class Domain(Protocol):
    """A domain: scalars, and the semantics of operations on them."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype of arrays of scalars."""
        ...

    def constant(self, value: float) -> Array:
        """A literal of a program, of rank 0."""
        ...

    def integers(self, values: Array) -> Array:
        """Integers and truth values as scalars."""
        ...

    def unary(self, op: UnaryOp, a: Array) -> Array:
        """``op`` of each element."""
        ...

    def binary(self, op: BinaryOp, a: Array, b: Array) -> Array:
        """``a op b``; comparisons give truth values."""
        ...

    def total(self, values: Iterable[Array]) -> Array:
        """The sum of arrays along their first axes, which are not empty."""
        ...

    def total_of_products(self, pairs: Iterable[tuple[Array, Array]]) -> Array:
        """The sum of products of arrays along their first axes, which are not empty."""
        ...

    def is_finite(self, a: Array) -> bool:
        """Whether no element is an infinity."""
        ...

    def random(self, shape: tuple[int, ...], seed: int) -> Array:
        """Random scalars, reproducible by the seed."""
        ...

    def agree(self, a: Array, b: Array) -> bool:
        """Whether all elements are equal, as far as this domain can decide."""
        ...


@dataclass(frozen=True, slots=True)
class Modular:
    """The integers modulo 2^31 - 1, as uint64; ``seed`` chooses the random functions and the order."""

    seed: int = 0

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(np.uint64)

    def constant(self, value: float) -> Residues:
        """The exact value as a fraction. Raises ``Unsupported`` for NaN."""
        if value in (float("inf"), float("-inf")):
            return np.asarray(_INFINITY if value > 0 else _MINUS_INFINITY)
        if value != value:
            raise Unsupported("a program with NaN in it has no value modulo a prime")
        exact = Fraction(value)
        return np.asarray(exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME, np.uint64)

    def integers(self, values: Array) -> Residues:
        return np.remainder(values.astype(np.int64), PRIME).astype(np.uint64)

    def unary(self, op: UnaryOp, a: Array) -> Array:
        x = a.astype(np.uint64, copy=False)
        match op:
            case UnaryOp.NEG:
                return _opposite(x)
            case UnaryOp.ABS:
                return self._extreme(x, _opposite(x), largest=True)
            case UnaryOp.FLUSH:
                return x
            case UnaryOp.ISNAN:
                return np.zeros(x.shape, np.bool_)
            case UnaryOp.ISINF:
                return np.greater_equal(x, _P)
            case UnaryOp.EXPM1:
                return _sum(self._random_function(UnaryOp.EXP.value, x), _opposite(np.uint64(1)))
            case UnaryOp.LOG1P:
                return self._random_function(UnaryOp.LOG.value, _sum(x, np.uint64(1)))
            case _:
                return self._random_function(op.value, x)

    def binary(self, op: BinaryOp, a: Array, b: Array) -> Array:
        x, y = a.astype(np.uint64, copy=False), b.astype(np.uint64, copy=False)
        if op in COMPARISONS:
            return evaluate_binary(op, self._rank(x), self._rank(y), f64)
        match op:
            case BinaryOp.ADD:
                return _sum(x, y)
            case BinaryOp.SUB:
                return _sum(x, _opposite(y))
            case BinaryOp.MUL:
                return _product(x, y)
            case BinaryOp.DIV:
                return _product(x, _inverse(y))
            case BinaryOp.MIN | BinaryOp.MAX:
                return self._extreme(x, y, largest=op is BinaryOp.MAX)
            case BinaryOp.POW if y.size == 1 and int(y.item()) <= _FOLD:
                return _power(x, int(y.item()))
            case _:
                return self._random_function(op.value, _product(x, self._random_function(op.value, y)))

    def total(self, values: Iterable[Array]) -> Residues:
        first, *others = (value.astype(np.uint64, copy=False) for value in values)
        result: Residues = np.add.reduce(first, axis=0)
        for value in others:  # 2^33 residues fit
            result = result + np.add.reduce(value, axis=0)
        return _residue(result)

    def total_of_products(self, pairs: Iterable[tuple[Array, Array]]) -> Residues:
        result: Residues | None = None
        pending = 0
        for a, b in pairs:
            products = np.multiply(a.astype(np.uint64, copy=False), b.astype(np.uint64, copy=False))
            # the sum of 2^28 folded values is below one that is not folded
            product: Residues = products[0] if len(products) == 1 else np.add.reduce(_folded(products), axis=0)
            if result is None:
                result = product
            elif product.shape == result.shape:
                result += product
            else:
                result = result + product
            pending += 1
            if pending == _FOLD:
                result = _folded(result)
                pending = 1  # the rest is below 2^34, less than a product
        assert result is not None, "there is at least one product"
        return _residue(result)

    def is_finite(self, a: Array) -> bool:
        return not np.greater_equal(a, _P).any()

    def random(self, shape: tuple[int, ...], seed: int) -> Residues:
        generator = np.random.Generator(np.random.PCG64([self.seed, seed]))
        return generator.integers(0, PRIME, shape, dtype=np.uint64)

    def agree(self, a: Array, b: Array) -> bool:
        return np.array_equal(a, b)

    def _random_function(self, name: str, x: Residues) -> Residues:
        digest = blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        return np.remainder(_mixed(np.bitwise_xor(x, np.uint64(int.from_bytes(digest, "little")))), _P)

    def _rank(self, x: Residues) -> Residues:
        """The rank of each element in the random order, as a number of 64 bits; ranks of different elements differ."""
        rank = _mixed(np.bitwise_xor(x, np.uint64(0x9E37_79B9_7F4A_7C15 ^ (self.seed & 0xFFFF_FFFF))))
        if not np.greater_equal(np.subtract(x, _NEAR), _FAR).any():  # negative numbers wrap around
            return rank
        opposite = np.subtract(_P, x)  # beyond all small integers, for infinities
        rank = np.where(x < _NEAR, np.add(_MIDDLE, x), rank)
        rank = np.where(opposite < _NEAR, np.subtract(_MIDDLE, opposite), rank)
        rank = np.where(x == _MINUS_INFINITY, np.uint64(0), rank)
        return np.where(x == _INFINITY, ~np.uint64(0), rank)

    def _extreme(self, x: Residues, y: Residues, *, largest: bool) -> Residues:
        left_is_larger = np.greater(self._rank(x), self._rank(y))
        return np.where(left_is_larger, x, y) if largest else np.where(left_is_larger, y, x)


@dataclass(frozen=True, slots=True)
class Noting(Modular):
    """``Modular`` that records which operations were given random semantics: random functions, and order."""

    noted: set[str] = field(default_factory=set[str], compare=False)

    def _random_function(self, name: str, x: Residues) -> Residues:
        self.noted.add(name)
        return Modular._random_function(self, name, x)

    def _rank(self, x: Residues) -> Residues:
        self.noted.add("order")
        return Modular._rank(self, x)


@dataclass(frozen=True, slots=True)
class Increasing(Modular):
    """``Modular`` in which functions that keep the order of numbers do so: what is true of all such functions holds.

    The order is that of integers, from ``-PRIME / 2`` to ``PRIME / 2``; each of these functions is a random one that
    never decreases.
    """

    def _random_function(self, name: str, x: Residues) -> Residues:
        if name not in _INCREASING:
            return Modular._random_function(self, name, x)
        steps = _steps(self.seed, name)
        place = np.where(np.greater_equal(x, _P), np.where(x == _INFINITY, _P - np.uint64(1), np.uint64(0)), _raised(x))
        at = np.right_shift(place, _STEP_BITS)
        low, high = steps[at], steps[at + np.uint64(1)]
        within = np.bitwise_and(place, np.uint64((1 << int(_STEP_BITS)) - 1))
        return _lowered(np.add(low, np.right_shift(np.multiply(np.subtract(high, low), within), _STEP_BITS)))

    def _rank(self, x: Residues) -> Residues:
        rank = np.add(_raised(x), np.uint64(1))
        rank = np.where(x == _MINUS_INFINITY, np.uint64(0), rank)
        return np.where(x == _INFINITY, ~np.uint64(0), rank)


@dataclass(frozen=True, slots=True)
class Real:
    """float64. ``tolerance``: allowed rounding error, relative to the largest element."""

    tolerance: float = 1e-9

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(np.float64)

    def constant(self, value: float) -> Array:
        return np.asarray(value, np.float64)

    def integers(self, values: Array) -> Array:
        return values.astype(np.float64)

    def unary(self, op: UnaryOp, a: Array) -> Array:
        return evaluate_unary(op, a)

    def binary(self, op: BinaryOp, a: Array, b: Array) -> Array:
        return evaluate_binary(op, a, b, f64)

    def total(self, values: Iterable[Array]) -> Array:
        first, *others = (value.astype(np.float64, copy=False) for value in values)
        result: Array = np.add.reduce(first, axis=0)
        for value in others:
            result = np.add(result, np.add.reduce(value, axis=0))
        return result

    def total_of_products(self, pairs: Iterable[tuple[Array, Array]]) -> Array:
        return self.total(np.multiply(a, b) for a, b in pairs)

    def is_finite(self, a: Array) -> bool:
        return bool(np.isfinite(a.astype(np.float64, copy=False)).all())

    def random(self, shape: tuple[int, ...], seed: int) -> Array:
        return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape)

    def agree(self, a: Array, b: Array) -> bool:
        """If one is NaN or infinite, the other must be, too: else a rule would hide or cause an overflow."""
        x, y = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
        if x.shape != y.shape:
            return False
        finite = np.isfinite(x)
        scale = float(np.max(np.abs(x[finite]), initial=0.0))
        return bool(np.allclose(x, y, rtol=0.0, atol=self.tolerance * scale, equal_nan=True))


def _folded(x: Residues) -> Residues:
    """A congruent number below 2^34."""
    return np.add(np.bitwise_and(x, _P), np.right_shift(x, _BITS))


def _residue(x: Residues) -> Residues:
    """The residue of any 64-bit number."""
    return _once(_folded(_folded(x)))


def _once(x: Residues) -> Residues:
    """The residue of a number below ``2 * PRIME``: a negative difference wraps around to the larger one."""
    return np.minimum(x, np.subtract(x, _P))


def _opposite(x: Residues | np.uint64) -> Residues:
    return _once(np.subtract(_P, x))


def _sum(x: Residues, y: Residues | np.uint64) -> Residues:
    return _once(np.add(x, y))


def _product(x: Residues, y: Residues) -> Residues:
    return _once(_folded(np.multiply(x, y)))


def _power(x: Residues, exponent: int) -> Residues:
    result, square = np.ones_like(x), x
    while exponent:
        result = _product(result, square) if exponent & 1 else result
        square = _product(square, square)
        exponent >>= 1
    return result


def _inverse(x: Residues) -> Residues:
    """``x ** (PRIME - 2)`` (Fermat); 0 for 0."""
    return _power(x, PRIME - 2)


def _raised(x: Residues) -> Residues:
    """The place of each residue in the order of integers, from 0 on."""
    return _sum(x, _HALF)


def _lowered(place: Residues) -> Residues:
    """The residue at each place in that order."""
    return _sum(place, _opposite(_HALF))


@lru_cache(maxsize=64)
def _steps(seed: int, name: str) -> Residues:
    """The places to which a function maps every 2^23rd place, in order."""
    digest = blake2b(f"{seed} {name} increasing".encode(), digest_size=8).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
    count = (PRIME >> int(_STEP_BITS)) + 2
    return np.sort(generator.integers(0, PRIME, count, dtype=np.uint64))


def _mixed(x: Residues) -> Residues:
    """A pseudorandom bijection of 64-bit numbers (Steele et al., "SplitMix", OOPSLA 2014)."""
    x = np.multiply(np.bitwise_xor(x, np.right_shift(x, np.uint64(30))), np.uint64(0xBF58_476D_1CE4_E5B9))
    x = np.multiply(np.bitwise_xor(x, np.right_shift(x, np.uint64(27))), np.uint64(0x94D0_49BB_1331_11EB))
    return np.bitwise_xor(x, np.right_shift(x, np.uint64(31)))
