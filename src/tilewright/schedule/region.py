"""Computes the part of a buffer or of a block's domain that is needed inside some loops.

A ``Window`` is a range of one dimension for fixed values of the loops outside: its start moves with them, its extent
does not. Guards count: with ``ii * 5 + iii < 12``, a tile of 3 x 5 iterations is a window of 12.
"""

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from math import gcd

from tilewright.base import dtypes
from tilewright.loops.access import point, regions
from tilewright.loops.ir import Block, Buffer, Loop, Stmt
from tilewright.loops.visit import children, perfect_nest, with_children, with_place
from tilewright.schedule.index_map import digit
from tilewright.schedule.tree import nest
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, Var, const, maximum, minimum
from tilewright.symbolic.linear import common_factor, polynomial
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import equivalent, linear_form, prove, simplify
from tilewright.symbolic.traversal import conjuncts, free_vars


@dataclass(frozen=True, slots=True)
class Window:
    """``start <= i < start + extent``; ``extent`` contains no loop variables."""

    start: Expr
    extent: Expr

    def is_whole(self, size: Expr) -> bool:
        """Whether this is all of a dimension of ``size``."""
        return self.start == ZERO and self.extent == size


Windows = tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """The windows of each buffer that a statement reads and writes."""

    reads: Mapping[Buffer, Windows]
    writes: Mapping[Buffer, Windows]

    def of(self, buffer: Buffer, bounds: Bounds) -> Windows | None:
        """The windows of ``buffer``; None if it is not accessed."""
        return union((self.reads.get(buffer), self.writes.get(buffer)), buffer.shape, bounds)


def touched(stmt: Stmt, bounds: Bounds, wanted: Set[Buffer]) -> Touched:
    """The accesses of ``stmt`` to ``wanted``, for fixed loops around it, whose facts are in ``bounds``."""
    found = regions(tightened(stmt, bounds), bounds, wanted=wanted)
    reads, writes = (
        {
            r.buffer: tuple(_window(s, e, size, bounds) for (s, e), size in zip(r.ranges, r.buffer.shape, strict=True))
            for r in listed
        }
        for listed in (found.reads, found.writes)
    )
    return Touched(reads, writes)


def domain(block: Block, inner: Iterable[Loop], bounds: Bounds) -> Windows:
    """The points of each axis of ``block`` that run in the loops ``inner``; facts about those outside are in
    ``bounds``."""
    box = Buffer("domain", dtypes.index, tuple(axis.extent for axis in block.axes))
    axes = point(box, [axis.var for axis in block.axes])
    probe = nest(inner, dataclasses.replace(block, reads=(), writes=(axes,)))
    return touched(probe, bounds, {box}).writes[box]


def union(listed: Iterable[Windows | None], shape: tuple[Expr, ...], bounds: Bounds) -> Windows | None:
    """Windows that contain all of ``listed``; None if empty. If they do not move together: the whole dimension."""
    present = [windows for windows in listed if windows is not None]
    if not present:
        return None
    return tuple(_hull(column, size, bounds) for column, size in zip(zip(*present, strict=True), shape, strict=True))


def _hull(windows: tuple[Window, ...], size: Expr, bounds: Bounds) -> Window:
    first, *rest = windows
    lo, hi = 0, _number(first.extent)
    for window in rest:
        shift = _number(simplify(window.start - first.start, bounds))
        extent = _number(window.extent)
        if shift == 0 and window.extent == first.extent:
            continue
        if shift is None or extent is None or hi is None:
            return Window(ZERO, size)
        lo, hi = min(lo, shift), max(hi, shift + extent)
    if hi is None:
        return first
    return _window(first.start + lo, const(hi - lo), size, bounds)


def _number(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None


def _window(start: Expr, extent: Expr, size: Expr, bounds: Bounds) -> Window:
    """The range as a window; clipped to the dimension if possible for all iterations at once."""
    start, extent = simplify(start, bounds), simplify(extent, bounds)
    if not bounds.extents.keys().isdisjoint(free_vars(extent)):
        most = interval(extent, bounds).hi
        if most is None:
            return Window(ZERO, size)
        extent = const(most)
    if prove(extent >= size, bounds):
        return Window(ZERO, size)
    if isinstance(start, Const):
        end = simplify(minimum(start + extent, size), bounds)
        start = maximum(start, ZERO)
        extent = simplify(maximum(end - start, ZERO), bounds)
    return Window(start, extent)


# Guards --------------------------------------------------------------------------------------------------------------


def tightened(stmt: Stmt, bounds: Bounds, inner: frozenset[Var] = frozenset()) -> Stmt:
    """``stmt`` with the bindings of its blocks over variables restricted by the guards on the ``inner`` loops."""
    match stmt:
        case Loop():
            loops = perfect_nest(stmt)
            extents = {loop.var: loop.extent for loop in loops}
            body = tightened(loops[-1].body, bounds.extended(extents), inner.union(extents))
            return stmt if body is loops[-1].body else nest(loops, body)
        case Block():
            return _tightened_block(stmt, bounds, inner)
        case _:
            before = children(stmt)
            after = tuple([tightened(child, bounds, inner) for child in before])
            return stmt if all(map(operator.is_, before, after)) else with_children(stmt, after)


def _tightened_block(block: Block, bounds: Bounds, inner: frozenset[Var]) -> Stmt:
    bindings = block.bindings
    loops: list[Loop] = []
    for guard in conjuncts(block.predicate):
        match guard:
            case Binary(BinaryOp.LT, bounded, Const(int(limit))) if free_vars(bounded) <= inner:
                low, high = interval(bounded, bounds)
            case _:
                continue
        if low is None or low < 0 or high is None or high < limit:
            continue
        limited = Var(f"{block.name}.guard{len(loops)}")
        known = bounds.extended({limited: limit})
        changed = tuple(_replaced(binding, bounded, limited, known) for binding in bindings)
        if changed != bindings:
            bindings = changed
            loops.append(Loop(limited, const(limit), block))
    return nest(loops, with_place(block, bindings, block.predicate))


def _replaced(expr: Expr, part: Expr, by: Var, bounds: Bounds) -> Expr:
    """``expr`` with a multiple of the sum ``part`` in it replaced."""
    whole, piece = linear_form(expr, bounds), linear_form(part, bounds)
    ratios = {divmod(whole.coefficient(atom), factor) for atom, factor in piece.terms}
    if len(ratios) != 1:
        return expr
    ((factor, remainder),) = ratios
    return expr if factor <= 0 or remainder else simplify(expr - part * factor + by * factor, bounds)


# Tiles ---------------------------------------------------------------------------------------------------------------


def unit_of(expr: Expr, bounds: Bounds) -> Expr:
    """The common divisor of all terms of ``expr``: a number times run-time extents (symbolic split factors)."""
    terms = [(monomial, factor) for monomial, factor in polynomial(simplify(expr, bounds)).items()]
    common: tuple[Expr, ...] | None = None
    for monomial, _ in terms:
        symbols = tuple(atom for atom in monomial if isinstance(atom, Var) and atom in bounds.dims)
        common = symbols if common is None else common_factor(common, symbols)
    unit: Expr = const(gcd(*(factor for _, factor in terms)))
    for symbol in common or ():
        unit = unit * symbol
    return unit


def unit_index(low: Expr, high: Expr, unit: Expr, bounds: Bounds) -> Expr | None:
    """The number of the unit that contains ``low .. high``; None if it is unknown, or there are several."""
    first = simplify(low // unit, bounds)
    return first if equivalent(first, high // unit, bounds) else None


# From a buffer's dimension to the axis in its index ------------------------------------------------------------------


def axis_window(var: Var, index: Expr, window: Window, own: Window, bounds: Bounds) -> Window | None:
    """The values of ``var`` for which ``index`` is in ``window``, if it is in ``own``; None if they are not a window.

    Handles ``var``, ``var // c``, ``var + c``, and ``var % c`` if ``own`` determines the multiple of ``c``.
    """
    match index:
        case Binary(BinaryOp.ADD, a, Const(int(offset))) if a == var:
            return Window(simplify(window.start - offset, bounds), window.extent)
        case Binary(BinaryOp.SUB, a, Const(int(offset))) if a == var:
            return Window(simplify(window.start + offset, bounds), window.extent)
        case _:
            found = digit(index)
    if found is None or found.var != var:
        return None
    if found.modulus is None:
        return Window(simplify(window.start * found.scale, bounds), simplify(window.extent * found.scale, bounds))
    aligned = equivalent(own.start % found.modulus, ZERO, bounds) and prove(own.extent <= found.modulus, bounds)
    if found.scale == 1 and aligned:
        return Window(simplify(own.start + window.start, bounds), window.extent)
    return None


def is_point(region_range: tuple[Expr, Expr]) -> bool:
    """Whether a range of a region is a single index."""
    return region_range[1] == ONE
