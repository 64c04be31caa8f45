"""What an access touches as its loops run: elements, lines of the cache, and how far apart.

Along a dimension, an index has the values of a sum of ``factor * x`` with ``0 <= x < count``. How many these are is
exact unless copies of something with gaps overlap; then it is a bound. So it is where dimensions depend on each other,
and where what is not linear in loops leaves out values. Where an index is data, it may be anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from tilewright.symbolic.bounds import Bounds, Interval, interval
from tilewright.symbolic.expr import Expr, Var
from tilewright.tune.features.sites import Access, LoopAround

LINE = 64
"""Bytes of a line of the cache."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of an index: how many, from the least to the largest, and a divisor of all differences."""

    count: int = 1
    span: int = 0
    step: int = 0

    def plus(self, factor: int, count: int) -> "Values":
        """These and, beside each, those at 1 to ``count - 1`` times ``factor``, which is not less than before."""
        span = self.span + factor * (count - 1)
        if count == 1 or factor == 0:
            return self
        if self.count == 1:
            return Values(count, span, factor)
        step = gcd(self.step, factor)
        if factor > self.span:
            return Values(self.count * count, span, step)
        most = span // step + 1
        has_no_gaps = step == self.step and (self.count - 1) * step == self.span
        return Values(most if has_no_gaps else min(self.count * count, most), span, step)


@dataclass(frozen=True, slots=True)
class Touched:
    """What an access touches. ``elements``: different ones while each loop runs once, outermost first, and last those
    of one iteration; ``moves``: whether the place depends on each loop."""

    elements: tuple[int, ...]
    moves: tuple[bool, ...]
    lines: float
    """How often another line is accessed than in the iteration before."""
    unique_lines: float
    stride: float
    """Elements from an iteration of the innermost loop to the next one."""


def touched(access: Access, loops: tuple[LoopAround, ...]) -> Touched:
    """What ``access`` touches in ``loops``."""
    places = _places(access, loops)
    elements = [0] * (len(loops) + 1)
    for place in places:
        for level, count in enumerate(place.elements):
            elements[level] += count
    size = prod(access.shape)
    moves = tuple([any(place.moves[depth] for place in places) for depth in range(len(loops))])
    depth = max((depth for depth, is_moved in enumerate(moves) if is_moved), default=None)
    itemsize = access.buffer.dtype.itemsize
    stride = 0.0 if depth is None else min(p.stride(depth) for p in places if p.moves[depth])
    around = 1 if depth is None else prod([loop.extent for loop in loops[: depth + 1]])
    return Touched(
        tuple([min(count, size) for count in elements]),
        moves,
        max(1.0, around * min(1.0, stride * itemsize / LINE)),
        sum([place.lines(itemsize) for place in places]),
        stride if depth == len(loops) - 1 else 0.0,
    )


def _places(access: Access, loops: tuple[LoopAround, ...]) -> list["_Place"]:
    """Points that move in the same way are one place that is larger."""
    groups: dict[tuple[tuple[tuple[Expr, int], ...], ...], list[list[tuple[int, int]]]] = {}
    for point in access.points:
        terms = tuple([form.terms for form, _ in point])
        groups.setdefault(terms, []).append([(form.constant, extent) for form, extent in point])
    return [_Place(terms, boxes, access.shape, loops) for terms, boxes in groups.items()]


class _Place:
    """Boxes of a buffer that move along loops together."""

    def __init__(
        self,
        terms: Sequence[tuple[tuple[Expr, int], ...]],
        boxes: Sequence[Sequence[tuple[int, int]]],
        shape: tuple[int, ...],
        loops: tuple[LoopAround, ...],
    ) -> None:
        dims = [
            _Dimension(own, _hull(starts), extent, loops)
            for own, starts, extent in zip(terms, zip(*boxes, strict=True), shape, strict=True)
        ]
        self.moves = [any(dim.moves[depth] for dim in dims) for depth in range(len(loops))]
        self._dims = dims
        accesses = sum([prod([extent for _, extent in box]) for box in boxes])
        self.elements = [min(accesses, prod([dim.values[-1].count for dim in dims]))]
        for depth in range(len(loops) - 1, -1, -1):
            accesses *= loops[depth].extent
            self.elements.append(min(accesses, prod([dim.values[depth].count for dim in dims])))
        self.elements.reverse()

    def stride(self, depth: int) -> float:
        """In elements, along a loop."""
        total, pitch = 0.0, 1
        for dim in reversed(self._dims):
            total += dim.stride(depth) * pitch
            pitch *= dim.extent
        return abs(total)

    def lines(self, itemsize: int) -> float:
        """Different ones, if rows begin with a line."""
        run, reach, pitch, is_whole = 1, 0, 1, True
        for dim in reversed(self._dims):
            values = dim.values[0]
            if is_whole:
                is_whole = values.count == values.span + 1
                run *= values.count if is_whole else 1
                is_whole &= values.count == dim.extent
            reach += values.span * pitch
            pitch *= dim.extent
        apart = -(-self.elements[0] // run) * -(-run * itemsize // LINE)
        return float(min(apart, -(-(reach + 1) * itemsize // LINE)))


class _Dimension:
    """An index. ``values``: while the loops from each on run, and last in one iteration."""

    def __init__(
        self, terms: tuple[tuple[Expr, int], ...], own: tuple[int, int], extent: int, loops: tuple[LoopAround, ...]
    ) -> None:
        self.extent = extent
        self._terms = terms
        self._loops = loops
        moving = frozenset[Var]().union(*[term.variables for term, _ in terms])
        self.moves = [loop.var in moving for loop in loops]
        values = [_clipped(_values((own,)), extent)]
        for depth in range(len(loops) - 1, -1, -1):
            values.append(self._within(depth, own) if self.moves[depth] else values[-1])
        values.reverse()
        self.values = values

    def _within(self, depth: int, own: tuple[int, int]) -> Values:
        """The values while the loops from ``depth`` on run."""
        inner = {loop.var: loop.extent for loop in self._loops[depth:]}
        parts = [own]
        for term, factor in self._terms:
            if isinstance(term, Var):
                parts.append((abs(factor), inner.get(term, 1)))
            else:
                found = _range(term, tuple([(loop.var, inner.get(loop.var, 1)) for loop in self._around(term)]))
                if found is None:
                    return Values(self.extent, self.extent - 1, 1)
                parts.append((abs(factor), found + 1))
        return _clipped(_values(tuple(sorted(parts))), self.extent)

    def stride(self, depth: int) -> float:
        """Along a loop. Of what is not linear in it: the first one, or the mean if that is 0."""
        loop, total = self._loops[depth], 0.0
        for term, factor in self._terms:
            if term == loop.var:
                total += factor
            elif loop.var in term.variables:
                around = self._around(term)
                first = _range(term, tuple([(one.var, 2 if one is loop else 1) for one in around]))
                every = _range(term, tuple([(one.var, loop.extent if one is loop else 1) for one in around]))
                if first is None or every is None:
                    return float(self.extent)
                total += factor * (first or every / (loop.extent - 1))
        return total

    def _around(self, term: Expr) -> Iterable[LoopAround]:
        return [loop for loop in self._loops if loop.var in term.variables]


def _hull(starts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The values from the least to the largest of several ranges: a step, and how many."""
    ranges = sorted(set(starts))
    first, size = ranges[0]
    if len(ranges) == 1:
        return 1, size
    last = max(start + extent for start, extent in ranges) - 1
    step = gcd(*(start - first for start, _ in ranges)) if all(extent == 1 for _, extent in ranges) else 1
    return step, (last - first) // step + 1


def _clipped(values: Values, extent: int) -> Values:
    """Those that can be within a dimension: what is outside is guarded."""
    return Values(min(values.count, extent), min(values.span, extent - 1), values.step)


@lru_cache(maxsize=1 << 14)
def _values(parts: tuple[tuple[int, int], ...]) -> Values:
    """Those of a sum of factors, in ascending order, times a number from 0 on that is below a count."""
    values = Values()
    for factor, count in parts:
        values = values.plus(factor, count)
    return values


@lru_cache(maxsize=1 << 14)
def _range(term: Expr, extents: tuple[tuple[Var, int], ...]) -> int | None:
    """How far the values of a term are apart, at most; None if it is data."""
    if term.has_reads:
        return None
    found: Interval = interval(term, Bounds(dict(extents)))
    return None if found.lo is None or found.hi is None else found.hi - found.lo
