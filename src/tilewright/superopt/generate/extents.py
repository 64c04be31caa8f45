"""Symbolic extents with equalities, which determine whether terms are well-typed.

An extent is an ordered sum of parts, as concatenation produces it, so that a slice has symbolic bounds, such as ``n``
of ``n + p``. Each part has a known size, by which the parts of equal sums are aligned: ``unify`` is unification of
words of known lengths, which has one most general solution or none.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeAlias

from tilewright.ops.shapes import simplified
from tilewright.symbolic.expr import Const, Expr, Symbol, const


class Mismatch(Exception):
    """Extents that can't be equal."""


class Part(NamedTuple):
    """A part of ``size`` elements; without a ``name``, a fixed number."""

    size: int
    name: str | None = None


Extent: TypeAlias = tuple[Part, ...]
Shape: TypeAlias = tuple[Extent, ...]


@lru_cache(maxsize=1024)
def literal(size: int) -> Extent:
    """An extent that is a number."""
    return (Part(size),)


def size_of(extent: Extent) -> int:
    """The number of elements."""
    return sum([part.size for part in extent])


def sizes(shape: Shape) -> tuple[int, ...]:
    """The extents as numbers."""
    return tuple(map(size_of, shape))


def concrete(shape: Shape) -> Shape:
    """The same shape without symbols."""
    return tuple(literal(size_of(extent)) for extent in shape)


def as_attribute(extent: Extent) -> int | Expr:
    """The extent as an attribute of an operator: a number, or a sum of symbols."""
    number = sum(part.size for part in extent if part.name is None)
    total: Expr | None = None
    for part in extent:
        if part.name is not None:
            total = Symbol(part.name) if total is None else total + Symbol(part.name)
    return number if total is None else total + number if number else total


def difference(whole: Extent, part: Extent) -> int | Expr:
    """``whole`` without its trailing ``part``."""
    left = simplified(as_expr(whole) - as_expr(part))
    return int(left.value) if isinstance(left, Const) else left


def as_expr(extent: Extent) -> Expr:
    """The extent of a variable."""
    value = as_attribute(extent)
    return value if isinstance(value, Expr) else const(value)


def as_shape(shape: Shape) -> tuple[int | Expr, ...]:
    """A shape as an attribute."""
    return tuple(map(as_attribute, shape))


@dataclass(slots=True)
class Solver:
    """Bindings of symbols, as far as equalities determine them."""

    _meaning: dict[str | None, Extent] = field(default_factory=dict["str | None", Extent])
    _count: int = 0

    def fresh(self, size: int) -> Extent:
        """A fresh symbol."""
        self._count += 1
        return (Part(size, f"s{self._count}"),)

    def resolved(self, extent: Extent) -> Extent:
        """The extent as a sum of unbound symbols and numbers."""
        known = [self._meaning.get(part.name) for part in extent]
        if not any(known):  # mostly nothing is
            return extent
        parts = (
            (part,) if meaning is None else self.resolved(meaning) for part, meaning in zip(extent, known, strict=True)
        )
        return tuple(chain.from_iterable(parts))

    def shape(self, shape: Shape) -> Shape:
        """All extents resolved."""
        return tuple(map(self.resolved, shape))

    def unify(self, a: Extent, b: Extent) -> None:
        """Make two extents equal. Raises ``Mismatch`` for different sizes."""
        left, right = self.resolved(a), self.resolved(b)
        if left == right:  # mostly they are
            return
        if size_of(left) != size_of(right):
            raise Mismatch
        while left:
            x, y = left[0], right[0]
            if x.size > y.size:
                left = (*self._opened(x, y.size), *left[1:])
            elif x.size < y.size:
                right = (*self._opened(y, x.size), *right[1:])
            else:
                self._equate(x, y)
                left, right = left[1:], right[1:]
            left, right = self.resolved(left), self.resolved(right)

    def pin(self, extent: Extent) -> None:
        """Bind the symbols of an extent to their present sizes."""
        self.unify(extent, literal(size_of(extent)))

    def unify_shapes(self, a: Shape, b: Shape, but: int | None = None) -> None:
        """Make two shapes equal, except along the dimension ``but``. Raises ``Mismatch`` if they can't be."""
        if len(a) != len(b):
            raise Mismatch
        for position, (x, y) in enumerate(zip(a, b, strict=True)):
            if position != but:
                self.unify(x, y)

    def halves(self, extent: Extent) -> tuple[Extent, Extent]:
        """The two halves of an extent. Raises ``Mismatch`` for an odd size."""
        parts = self.resolved(extent)
        half, odd = divmod(size_of(parts), 2)
        if odd or not half:
            raise Mismatch
        first: Extent = ()
        while (missing := half - size_of(first)) > 0:
            part = parts[0]
            if part.size > missing:
                parts = (*self._opened(part, missing), *parts[1:])
            else:
                first, parts = (*first, part), parts[1:]
        return first, parts

    def _equate(self, x: Part, y: Part) -> None:
        """Make two parts of the same size equal; numbers stay numbers."""
        if x.name is not None and x != y:
            self._meaning[x.name] = (y,)
        elif y.name is not None and x != y:
            self._meaning[y.name] = (x,)

    def _opened(self, part: Part, size: int) -> Extent:
        """``part`` split into two, the first one of ``size``."""
        if part.name is None:
            return (Part(size), Part(part.size - size))
        self._meaning[part.name] = (*self.fresh(size), *self.fresh(part.size - size))
        return self._meaning[part.name]
