"""Statements of a pattern in their loops, with the numbers of all candidates: what is touched, as in ``touched.py``.

Arrays are (candidates,), (loops, candidates), or (loops + 1, candidates), where the last row is one iteration. A loop
that runs once is none, but keeps its row.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.errors import Unsupported
from tilewright.sketch.finishing import Finished, Ints
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Expr, Var
from tilewright.tune.features.open_sites import Coefficient, Form, OpenAccess, OpenSite, Part
from tilewright.tune.features.touched import LINE
from tilewright.tune.features.values import ManyValues, Sum

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]


class Numbers:
    """What expressions over symbols are, of each candidate."""

    def __init__(self, symbols: Mapping[Var, Ints], sized: Mapping[Expr, Ints], count: int) -> None:
        self._terms: dict[Expr, Ints] = {**symbols}
        self.variables = frozenset(symbols)
        self.count = count
        self._sized = sized
        self._known: dict[Coefficient, Ints] = {}

    def size(self, extent: Expr) -> Ints:
        return self._sized[extent]

    def of(self, terms: Coefficient) -> Ints:
        found = self._known.get(terms)
        if found is None:
            found = np.zeros(self.count, np.int64)
            for monomial, factor in terms:
                product = np.full(self.count, factor, np.int64)
                for atom in monomial:
                    product = product * self.of_term(atom)
                found = found + product
            self._known[terms] = found
        return found

    def of_term(self, expr: Expr) -> Ints:
        if expr not in self._terms:
            variables = tuple(sorted(expr.variables, key=str))
            (found,) = _compiled(expr, variables)(*(self._terms[variable] for variable in variables))
            self._terms[expr] = np.asarray(found, np.int64)
        return self._terms[expr]


@lru_cache(maxsize=4096)
def _compiled(expr: Expr, variables: tuple[Var, ...]) -> Callable[..., list[Array]]:
    return compile_exprs([expr], variables)


class Nest:
    """A statement in its loops. Arrays are (loops, candidates), or (loops + 1, candidates)."""

    def __init__(self, site: OpenSite, finished: Finished, values: Numbers) -> None:
        tail = finished.tails.get(site.block)
        self.site = site
        self.values = values
        self.loops = site.loops if tail is None else tail.order
        if set(site.loops) - set(self.loops):
            raise Unsupported(f"the loops around {site.block} are not those of its pattern")
        self.parts = {} if tail is None else tail.parts
        self.extents = np.array([finished.extents[loop] for loop in self.loops], np.int64).reshape(-1, values.count)
        self.kinds = np.array([finished.kinds[loop] for loop in self.loops], np.int64).reshape(-1, values.count)
        self.is_loop = self.extents > 1
        self.place = {loop: place for place, loop in enumerate(self.loops)}
        self.inner = np.ones((len(self.loops) + 1, values.count), np.int64)
        """Iterations of the loops from each on."""
        for depth in range(len(self.loops) - 1, -1, -1):
            self.inner[depth] = self.inner[depth + 1] * self.extents[depth]
        self._part_extents = {loop: finished.extents[loop] for loop in self.parts}
        self.accesses = [Accessed(access, self) for access in site.accesses]

    @property
    def iterations(self) -> Ints:
        return self.inner[0]

    def around(self, loops: Sequence[str]) -> Ints:
        """The product of the extents of some loops."""
        return reduce(np.multiply, [self.extents[self.place[loop]] for loop in loops], np.ones_like(self.inner[0]))

    def factors(self, linear: Sequence[tuple[str, Coefficient]]) -> dict[int, Ints]:
        """The factor of each loop, by its place."""
        found: dict[int, Ints] = {}
        for loop, coefficient in linear:
            factor = self.values.of(coefficient)
            if loop in self.parts:
                found[self.place[self.parts[loop]]] = factor * self._part_extents[loop]
            found[self.place[loop]] = factor
        return found

    def followed(self, loops: frozenset[str]) -> Mask:
        """Which loops are among ``loops``: (loops,)."""
        own = loops | {outer for loop, outer in self.parts.items() if loop in loops}
        return np.array([loop in own for loop in self.loops], np.bool_)


class _PartOf:
    """A part of an index in a nest; ``is_active`` where it is one: elsewhere it is linear, or 0."""

    def __init__(self, part: Part, factor: Ints, nest: Nest) -> None:
        values = nest.values
        self.factor = factor
        self.divisor = np.maximum(values.of(part.divisor), 1)
        self.is_remainder = part.is_remainder
        self.start = values.of(part.number.constant)
        self.factors = nest.factors(part.number.linear)
        low = high = values.of(part.start)
        for coefficient, extent in part.axes:
            moved = values.of(coefficient) * (values.size(extent) - 1)
            low, high = low + np.minimum(moved, 0), high + np.maximum(moved, 0)
        is_within = (low >= 0) & (high < self.divisor)
        is_one = self.divisor == 1
        self.is_active = ~is_within & ~is_one
        self.is_linear = is_within if part.is_remainder else is_one
        """Where it is its number."""
        self._extents = nest.extents

    def reach(self, extents: Mapping[int, Ints]) -> Ints:
        """How far its values are apart while loops run that often."""
        low = high = self.start
        for place, extent in extents.items():
            moved = self.factors[place] * (extent - 1)
            low, high = low + np.minimum(moved, 0), high + np.maximum(moved, 0)
        if not self.is_remainder:
            return high // self.divisor - low // self.divisor
        is_exact = (low >= 0) & (high < self.divisor)
        return np.where(is_exact, high - low, np.where(low >= 0, np.minimum(high, self.divisor - 1), self.divisor - 1))

    def stride(self, place: int, extent: Ints) -> Floats:
        """Along a loop: the first difference, or the mean."""
        first = self.reach({place: np.full_like(extent, 2)})
        mean: Floats = self.reach({place: extent}) / np.maximum(extent - 1, 1)
        step: Floats = np.where(first != 0, first.astype(np.float64), mean)
        return step * self.factor


class _Dimension:
    """An index of a place."""

    def __init__(self, form: Form, own: tuple[Ints, Ints], extent: Ints, nest: Nest) -> None:
        self.extent = extent
        self.parts = [_PartOf(part, nest.values.of(factor), nest) for part, factor in form.parts]
        self.linear = nest.factors(form.linear)
        for part in self.parts:
            for place, factor in part.factors.items():
                added = np.where(part.is_linear, part.factor * factor, 0)
                self.linear[place] = self.linear.get(place, np.zeros_like(added)) + added
        self.parts = [part for part in self.parts if part.is_active.any()]
        self._own = own
        self._nest = nest
        self.places = sorted({*self.linear, *(place for part in self.parts for place in part.factors)})
        """The loops that it may move along."""

    def moves(self, place: int) -> Mask:
        found = np.zeros(self._nest.values.count, np.bool_)
        if place in self.linear:
            found |= self.linear[place] != 0
        for part in self.parts:
            if place in part.factors:
                found |= part.is_active & (part.factors[place] != 0)
        return found

    def sums(self) -> list[Sum]:
        """While the loops of each of ``places`` and those inside run; and last, in one iteration."""
        found: list[Sum] = []
        one = np.ones_like(self.extent)
        for depth in [*self.places, len(self._nest.loops)]:
            terms = [self._own]
            extents = self._nest.extents
            terms += [(np.abs(factor), extents[place]) for place, factor in self.linear.items() if place >= depth]
            for part in self.parts:
                inner = {place: extents[place] for place in part.factors if place >= depth}
                terms.append((np.abs(np.where(part.is_active, part.factor, 0)), part.reach(inner) + one))
            found.append(Sum(tuple(terms), self.extent))
        return found

    def stride(self, place: int) -> Floats:
        total = self.linear.get(place, np.zeros_like(self.extent)).astype(np.float64)
        for part in self.parts:
            if place in part.factors:
                total = total + np.where(part.is_active, part.stride(place, self._nest.extents[place]), 0.0)
        return total


class _Place:
    """Points that move in the same way."""

    def __init__(self, points: Sequence[tuple[Form, ...]], shape: Sequence[Ints], nest: Nest) -> None:
        values = nest.values
        self.points = len(points)
        self.nest = nest
        one = np.ones(values.count, np.int64)
        self.dims = [
            _Dimension(forms[0], _hull([values.of(form.constant) for form in forms], one), extent, nest)
            for forms, extent in zip(zip(*points, strict=True), shape, strict=True)
        ]
        self.moves = np.zeros((len(nest.loops), values.count), np.bool_)
        for dim in self.dims:
            for place in dim.places:
                self.moves[place] |= dim.moves(place)
        self.moves &= nest.is_loop

    def finish(self, found: ManyValues, start: int) -> int:
        """Take the values of ``sums`` from ``start`` on."""
        loops, one = len(self.nest.loops), np.ones((len(self.nest.loops) + 1, self.nest.values.count), np.int64)
        product = one
        self.first: list[tuple[Ints, Ints]] = []
        for dim in self.dims:
            rows = np.searchsorted(np.array([*dim.places, loops]), np.arange(loops + 1))
            product = product * found.counts[start + rows]
            self.first.append((found.counts[start], found.spans[start]))
            start += len(dim.places) + 1
        self.elements = np.minimum(self.points * self.nest.inner, product)
        return start

    def strides(self) -> Floats:
        """In elements, along each loop."""
        total = np.zeros(self.moves.shape)
        pitch = np.ones(self.nest.values.count, np.int64)
        for dim in reversed(self.dims):
            for place in dim.places:
                total[place] += dim.stride(place) * pitch
            pitch = pitch * dim.extent
        return np.abs(total)

    def lines(self, itemsize: int) -> Floats:
        one = np.ones(self.nest.values.count, np.int64)
        run, reach, pitch, is_whole = one, one * 0, one, one > 0
        for dim, (count, span) in zip(reversed(self.dims), reversed(self.first), strict=True):
            now = is_whole & (count == span + 1)
            run = np.where(now, run * count, run)
            is_whole = now & (count == dim.extent)
            reach = reach + span * pitch
            pitch = pitch * dim.extent
        apart = -(-self.elements[0] // run) * -(-run * itemsize // LINE)
        return np.minimum(apart, -(-(reach + 1) * itemsize // LINE)).astype(np.float64)


def _hull(starts: Sequence[Ints], one: Ints) -> tuple[Ints, Ints]:
    """The step and the number of the values from the least to the largest of several."""
    if len(starts) == 1:
        return one, one
    first, last = np.minimum.reduce(starts), np.maximum.reduce(starts)
    step = np.gcd.reduce([start - first for start in starts])
    return np.maximum(step, 1), np.where(step == 0, 1, (last - first) // np.maximum(step, 1) + 1)


class Accessed:
    """What is touched (``touched.Touched``)."""

    def __init__(self, access: OpenAccess, nest: Nest) -> None:
        self.access = access
        self.nest = nest
        shape = [nest.values.size(extent) for extent in access.buffer.shape]
        self.size = reduce(np.multiply, shape, np.ones(nest.values.count, np.int64))
        groups: defaultdict[object, list[tuple[Form, ...]]] = defaultdict(list)
        for point in access.points:
            groups[tuple((form.linear, form.parts) for form in point)].append(point)
        self.places = [_Place(points, shape, nest) for points in groups.values()]

    @property
    def itemsize(self) -> int:
        return self.access.buffer.dtype.itemsize

    def sums(self) -> list[Sum]:
        return [one for place in self.places for dim in place.dims for one in dim.sums()]

    def finish(self, found: ManyValues, start: int) -> int:
        for place in self.places:
            start = place.finish(found, start)
        extents, is_loop = self.nest.extents, self.nest.is_loop
        loops, count = extents.shape
        total = np.sum([place.elements for place in self.places], axis=0)
        self.elements = np.minimum(total, self.size)
        self.moves = np.logical_or.reduce([place.moves for place in self.places])
        strides = np.minimum.reduce([np.where(place.moves, place.strides(), np.inf) for place in self.places])
        stride = np.zeros(count)
        around = np.ones(count, np.int64)
        is_last = np.zeros(count, np.bool_)
        is_found = np.zeros(count, np.bool_)
        is_innermost = np.ones(count, np.bool_)
        for depth in range(loops - 1, -1, -1):
            is_new = self.moves[depth] & ~is_found
            stride = np.where(is_new, strides[depth], stride)
            is_last |= is_new & is_innermost
            is_found |= is_new
            around = np.where(is_found, around * extents[depth], around)
            is_innermost &= ~is_loop[depth]
        self.lines = np.maximum(1.0, around * np.minimum(1.0, stride * self.itemsize / LINE))
        self.unique_lines = np.sum([place.lines(self.itemsize) for place in self.places], axis=0)
        self.stride = np.where(is_last, stride, 0.0)
        return start
