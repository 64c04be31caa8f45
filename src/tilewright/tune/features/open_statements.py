"""Features of statements for all candidates of a pattern at once: those of ``statements.py``, over arrays.

Nothing is scheduled: numbers of the candidates are put for the symbols of the pattern. A loop that runs once is none.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from tilewright.base.dtypes import index
from tilewright.sketch.finishing import KINDS, Ints
from tilewright.sketch.pattern import Pattern
from tilewright.sketch.sizes import Size, part_of
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import ZERO, Binary, Const, Expr, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.traversal import substitute, transform
from tilewright.target.target import Target
from tilewright.tune.features.open_nests import Accessed, Floats, Mask, Nest, Numbers
from tilewright.tune.features.open_sites import Index, OpenSite, open_sites, symbol_terms
from tilewright.tune.features.operations import Mode, operations_in
from tilewright.tune.features.statements import BUFFERS, GROUPS, LENGTHS, NAMES, OF_BUFFER, SAMPLES, Position
from tilewright.tune.features.values import values_of


class OpenStatements:
    """The statements of all candidates of a pattern. Raises ``Unsupported`` where only numbers tell."""

    def __init__(self, pattern: Pattern, knobs: Sequence[Knob[Value]], target: Target) -> None:
        self._found = open_sites(pattern.program)
        self._pattern = pattern
        self._target = target
        self._decided = {
            size.knob: np.array([part_of(value, 0) for value in knobs[size.knob].values], np.int64)
            for size in pattern.finishing.sizes
            if isinstance(size, Size)
        }
        self._symbols = tuple(symbol.extent for symbol in pattern.symbols)
        self._extents = tuple(self._found.extents)
        self._sized = tuple(dict.fromkeys(_sizes(self._found.sites)))
        self._function = compile_exprs([*self._found.extents.values(), *self._sized], self._symbols)

    def numbers(self, digits: Digits) -> Floats:
        """The features of (candidates, knobs) before the logarithm is taken: (candidates, statements, ``NAMES``)."""
        symbols = self._pattern.numbers(digits)
        given = symbols or [np.zeros(len(digits), np.int64)]
        known = self._function(*symbols)
        arrays = [np.maximum(np.broadcast_to(np.asarray(one, np.int64), given[0].shape), 1) for one in known]
        extents = dict(zip(self._extents, arrays, strict=False))
        sized = dict(zip(self._sized, arrays[len(self._extents) :], strict=True))

        def decided(size: int) -> Ints:
            knob = self._decided[size.knob][digits[:, size.knob]] if isinstance(size, Size) else size
            return np.broadcast_to(np.asarray(knob, np.int64), given[0].shape)

        finished = self._pattern.finishing.of(extents, decided)
        values = Numbers(dict(zip(self._symbols, symbols, strict=True)), sized, len(digits))
        nests = [Nest(site, finished, values) for site in self._found.sites]
        return _rows(nests, self._target)

    def features(self, digits: Digits) -> Floats:
        """As ``statement_features``: (candidates, statements, ``NAMES``)."""
        return np.log2(self.numbers(digits) + 1.0)


def _sizes(sites: Sequence[OpenSite]) -> list[Expr]:
    """All sizes of buffers and of axes."""
    found: list[Expr] = []
    for site in sites:
        for access in site.accesses:
            found += access.buffer.shape
            for point in access.points:
                for form in point:
                    found += [extent for part, _ in form.parts for _, extent in part.axes]
        found += site.allocated.shape if site.allocated else ()
        for one in site.indices:
            found += [extent for _, extent in one.extents]
    return found


# --- rows --------------------------------------------------------------------------------------------------------


class _Traffic:
    """What all statements touch within each loop (``statements._Traffic``)."""

    def __init__(self, nests: Sequence[Nest]) -> None:
        self.total: dict[str, Ints] = {}
        self.single: dict[str, int] = {}
        self.elements: defaultdict[tuple[str, str], list[Ints]] = defaultdict(list)
        for nest in nests:
            for access in nest.accesses:
                for depth, loop in enumerate(nest.loops):
                    elements = access.elements[depth]
                    self.total[loop] = self.total.get(loop, 0) + elements * access.itemsize
                    self.single[loop] = self.single.get(loop, 0) + access.itemsize
                    self.elements[loop, access.access.buffer.name].append(elements)


def _rows(nests: Sequence[Nest], target: Target) -> Floats:
    candidates = nests[0].values.count
    accesses = [access for nest in nests for access in nest.accesses]
    found = values_of([one for access in accesses for one in access.sums()], candidates)
    start = 0
    for access in accesses:
        start = access.finish(found, start)
    traffic = _Traffic(nests)
    rows = np.empty((candidates, len(nests), len(NAMES)))
    for position, nest in enumerate(nests):
        columns = [
            *_operations(nest),
            *_annotations(nest),
            *(0, *(1 for _ in LENGTHS)),
            *_buffers(nest, traffic),
            *_intensities(nest),
            *_allocation(nest),
            *_outer(nest, target),
        ]
        for column, numbers in enumerate(columns):
            rows[:, position, column] = numbers
    return rows


def _operations(nest: Nest) -> list[Floats]:
    counts = np.repeat(np.array(nest.site.operations.counts, np.float64)[:, None], nest.values.count, axis=1)
    for expr in nest.site.indices:
        counts += _index_operations(expr, nest.values)
    return list(counts * nest.iterations)


def _index_operations(of: Index, values: Numbers) -> Floats:
    """The operations of an index, (kinds, candidates): of each combination of numbers in it, once."""
    terms = list(dict.fromkeys(symbol_terms(of.expr, values.variables)))
    numbers = np.stack([*(values.of_term(term) for term in terms), *(values.size(e) for _, e in of.extents)], axis=1)
    unique, inverse = np.unique(numbers, axis=0, return_inverse=True)
    axes = tuple(var for var, _ in of.extents)
    counts = [
        _counted(_put(of.expr, dict(zip(terms, row, strict=False))), axes, tuple(row[len(terms) :]))
        for row in unique.tolist()
    ]
    return np.array(counts, np.float64)[inverse.reshape(-1)].T


def _put(expr: Expr, numbers: Mapping[Expr, int]) -> Expr:
    """``expr`` with numbers for parts of it."""
    found = numbers.get(expr)
    if found is not None:
        return const(found)
    if not expr.operands():
        return expr
    return transform(expr, lambda node: const(numbers[node]) if node in numbers else None)


@lru_cache(maxsize=1 << 14)
def _counted(expr: Expr, axes: tuple[Var, ...], extents: tuple[int, ...]) -> tuple[int, ...]:
    """The operations of ``expr`` as the schedule writes it: sums stay as they are, parts of axes are simplified."""
    bounds = Bounds(dict(zip(axes, extents, strict=True)))
    once: dict[Var, Expr] = {axis: ZERO for axis, extent in zip(axes, extents, strict=True) if extent == 1}
    given = substitute(expr, once) if once else expr
    simple = transform(given, lambda node: _simpler(node, bounds)) if expr.dtype == index else simplify(given, bounds)
    return operations_in(simple, Mode.REPAIRED).counts


def _simpler(node: Expr, bounds: Bounds) -> Expr | None:
    match node:
        case Binary(BinaryOp.MOD | BinaryOp.FLOORDIV as op):
            simple = simplify(node, bounds)
            return None if isinstance(simple, Binary) and simple.op is op else simple
        case Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, a, Const(int(factor))), b) if a == b:
            return b * (factor + 1)
        case Binary(BinaryOp.ADD, a, b) if a == b:
            return a * 2
        case _:
            return None


def _annotations(nest: Nest) -> list[Floats | Ints | Mask]:
    found: list[Floats | Ints | Mask] = []
    spatial, reducing = nest.followed(nest.site.spatial), nest.followed(nest.site.reducing)
    is_first = {True: _first(nest.is_loop & spatial[:, None]), False: _first(nest.is_loop & reducing[:, None])}
    is_last = {True: _last(nest.is_loop & spatial[:, None]), False: _last(nest.is_loop & reducing[:, None])}
    places = list(Position)
    for kind in GROUPS.values():
        own = nest.is_loop & (nest.kinds == KINDS.index(kind))
        innermost = _last(own)
        position = np.full(nest.values.count, places.index(Position.NONE))
        for place in range(len(nest.loops)):
            if spatial[place] and reducing[place]:
                code: Ints | int = places.index(Position.MIXED)
            elif not spatial[place] and not reducing[place]:
                code = places.index(Position.OUTER_SPATIAL)
            else:
                along = bool(spatial[place])
                base = places.index(Position.INNER_SPATIAL if along else Position.INNER_REDUCE)
                code = base + np.where(is_last[along][place], 0, np.where(is_first[along][place], 2, 1))
            position = np.where(innermost[place], code, position)
        length = np.where(innermost, nest.extents, 0).sum(axis=0)
        product = np.where(own, nest.extents, 1).prod(axis=0)
        count = own.sum(axis=0)
        found += [count, np.where(count > 0, product, 0), length, *(position == code for code in range(len(places)))]
    return found


def _last(mask: Mask) -> Mask:
    """Only the last true one of each column."""
    return mask & (np.cumsum(mask[::-1], axis=0)[::-1] == 1)


def _first(mask: Mask) -> Mask:
    return mask & (np.cumsum(mask, axis=0) == 1)


def _buffers(nest: Nest, traffic: _Traffic) -> list[Floats]:
    table = np.stack([_buffer(nest, access, traffic) for access in nest.accesses])
    order = np.lexsort((-table[:, OF_BUFFER.index("bytes")], -table[:, OF_BUFFER.index("lines")]), axis=0)
    table = np.take_along_axis(table, order[:, None, :], axis=0)[:BUFFERS]
    missing = np.zeros((BUFFERS - len(table), len(OF_BUFFER), nest.values.count))
    return list(np.concatenate([table, missing]).reshape(BUFFERS * len(OF_BUFFER), -1))


def _buffer(nest: Nest, access: Accessed, traffic: _Traffic) -> Floats:
    """(features, candidates)."""
    one, is_both = np.ones(nest.values.count), access.access.is_read and access.access.is_written
    amounts = [
        nest.iterations * (len(access.access.points) * access.itemsize) * one,
        access.elements[0] * access.itemsize * one,
        access.lines,
        access.unique_lines,
    ]
    distance, size, count, is_in_loop = _reuse(nest, access, traffic)
    per_reuse = [np.where(count > 0, amount / np.maximum(count, 1), amount * 2) for amount in amounts]
    return np.stack(
        [
            one * (access.access.is_read and not is_both),
            one * (access.access.is_written and not is_both),
            one * is_both,
            *amounts,
            one * is_in_loop,
            one * ((count > 0) & ~is_in_loop),
            one * (count == 0),
            distance,
            size,
            count * one,
            *per_reuse,
            access.stride,
        ]
    )


def _reuse(nest: Nest, access: Accessed, traffic: _Traffic) -> tuple[Floats, Floats, Ints, Mask]:
    """``statements._reuse``: distance, bytes, how often, and whether in a loop that does not move."""
    candidates = nest.values.count
    running, inside = np.ones(candidates), np.full(candidates, -1.0)
    distance, size = np.zeros(candidates), np.zeros(candidates)
    count, is_in_loop, is_done = (
        np.zeros(candidates, np.int64),
        np.zeros(candidates, np.bool_),
        np.zeros(candidates, np.bool_),
    )
    for depth in range(len(nest.loops) - 1, -1, -1):
        loop, extent = nest.loops[depth], nest.extents[depth]
        is_here = nest.is_loop[depth] & ~is_done
        is_still = is_here & ~access.moves[depth]
        distance = np.where(is_still, running, distance)
        size = np.where(is_still, np.where(inside < 0, traffic.single[loop], inside), size)
        count = np.where(is_still, extent, count)
        is_in_loop |= is_still
        is_done |= is_still
        is_here &= ~is_still
        running = np.where(is_here, running * extent, running)
        inside = np.where(is_here, traffic.total[loop], inside)
        elements = traffic.elements[loop, access.access.buffer.name]
        if len(elements) > 1:
            distance = np.where(is_here, np.minimum.reduce(elements) / extent, distance)
            size = np.where(is_here, inside / extent, size)
            count = np.where(is_here, len(elements) - 1, count)
            is_done |= is_here
    return distance, size, count, is_in_loop


def _intensities(nest: Nest) -> list[Floats]:
    flops, candidates = nest.site.operations.flops, nest.values.count
    loops = len(nest.loops)
    if not flops or not loops:
        return [np.zeros(candidates)] * SAMPLES
    work = np.log2(flops * nest.inner[:loops].astype(np.float64))[::-1]
    size = np.sum([access.elements[:loops] * access.itemsize for access in nest.accesses], axis=0)
    intensity = (flops * nest.inner[:loops] / size)[::-1]
    # Where the innermost loops are none, the first point is that of the first one that is.
    is_none = ~nest.is_loop[::-1]
    first = np.argmin(is_none, axis=0)
    place = np.maximum(np.arange(loops)[:, None], first)
    work, intensity = np.take_along_axis(work, place, 0), np.take_along_axis(intensity, place, 0)
    found: list[Floats] = []
    has_loops = nest.is_loop.any(axis=0)
    for sample in range(1, SAMPLES + 1):
        x = work[-1] / SAMPLES * sample
        low = np.clip((work <= x).sum(axis=0) - 1, 0, loops - 1)
        high = np.minimum(low + 1, loops - 1)
        x0, x1 = (np.take_along_axis(work, one[None], 0)[0] for one in (low, high))
        y0, y1 = (np.take_along_axis(intensity, one[None], 0)[0] for one in (low, high))
        slope: Floats = (y1 - y0) / np.where(x1 > x0, x1 - x0, 1.0)
        value: Floats = y0 + slope * np.maximum(x - x0, 0.0)
        found.append(np.where(has_loops, value, 0.0))
    return found


def _allocation(nest: Nest) -> list[Floats]:
    made = nest.site.allocated
    if made is None:
        return [np.zeros(nest.values.count)] * 4
    elements = np.ones(nest.values.count)
    for extent in made.shape:
        elements = elements * nest.values.size(extent)
    times = nest.around(made.loops).astype(np.float64)
    size = float(nest.site.buffer.dtype.itemsize)
    iterations: Floats = nest.iterations / times
    return [elements * size, elements * times, times, iterations]


def _outer(nest: Nest, target: Target) -> list[Floats | Ints]:
    kinds = {kind: nest.is_loop & (nest.kinds == place) for place, kind in enumerate(KINDS)}
    unrolled, lanes = (
        np.where(kinds[GROUPS[group]], nest.extents, 1).prod(axis=0) for group in ("unroll", "vectorize")
    )
    vectors = -(-lanes // target.lanes(8 * nest.site.buffer.dtype.itemsize))
    return [nest.iterations, nest.is_loop.sum(axis=0), unrolled * vectors]
