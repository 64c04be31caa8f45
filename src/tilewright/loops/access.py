"""Computes the regions of buffers that a statement reads and writes.

An index is a quasi-affine expression over variables that are *fixed* (symbols) or *relaxed* (over their range). Its
span is found by monotonicity: ``io * 8 + ii // 2`` with ``0 <= ii < 8`` relaxed is ``io * 8 .. io * 8 + 3``. This is
exact where each relaxed variable occurs once. A dimension whose index can't be bounded (such as data) counts as whole.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from tilewright.loops.ir import Alloc, Barrier, Block, Buffer, Call, If, Loop, Region, Seq, Stmt, Store, Stores
from tilewright.loops.visit import allocations, perfect_nest
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, Select, Var, maximum, minimum
from tilewright.symbolic.linear import Polynomial, shifted, to_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import linear_form, prove, simplify
from tilewright.symbolic.traversal import free_vars, reads_in, substitute


@dataclass(frozen=True, slots=True)
class Regions:
    """The accesses of a statement: one region per buffer, in order of first use; without its own allocations."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """``lo <= index <= hi`` over the fixed variables."""

    lo: Expr
    hi: Expr


def regions(stmt: Stmt, bounds: Bounds, relaxed: Iterable[Var] = (), wanted: Set[Buffer] | None = None) -> Regions:
    """The regions that ``stmt`` may touch, over the variables that are neither bound inside it nor in ``relaxed``.

    ``bounds``: known facts about all variables around ``stmt``, with extents of those in ``relaxed``. Blocks inside
    count with their declared regions. Regions are not clipped: guarded accesses may lie outside. ``wanted``: only the
    regions of these buffers.
    """
    collector = _Collector(wanted)
    collector.visit(stmt, bounds, frozenset(relaxed))
    return Regions(collector.reads.merged(bounds), collector.writes.merged(bounds))


def region_over(region: Region, bounds: Bounds, relaxed: Iterable[Var]) -> Region:
    """The bounding region of ``regions`` when ``relaxed`` variables take all values of their ranges."""
    collected = _Spans()
    collected.add_region(region, bounds, frozenset(relaxed))
    return collected.merged(bounds)[0]


def whole(buffer: Buffer) -> Region:
    """The whole ``buffer``."""
    return Region(buffer, tuple((ZERO, extent) for extent in buffer.shape))


def point(buffer: Buffer, indices: Sequence[Expr]) -> Region:
    """One element of ``buffer``."""
    return Region(buffer, tuple((index, ONE) for index in indices))


class _Spans:
    """Spans of each buffer's dimensions, collected access by access; None: the whole dimension."""

    def __init__(self, wanted: Set[Buffer] | None = None) -> None:
        self._wanted = wanted
        self._found: dict[Buffer, list[tuple[Span | None, ...]]] = {}

    def wants(self, buffer: Buffer) -> bool:
        """Whether accesses to ``buffer`` are collected."""
        return self._wanted is None or buffer in self._wanted

    def add(self, buffer: Buffer, spans: tuple[Span | None, ...]) -> None:
        known = self._found.setdefault(buffer, [])
        if spans not in known:
            known.append(spans)

    def add_point(self, buffer: Buffer, indices: Sequence[Expr], bounds: Bounds, relaxed: frozenset[Var]) -> None:
        if self.wants(buffer):
            self.add(buffer, tuple(span(index, bounds, relaxed) for index in indices))

    def add_region(self, region: Region, bounds: Bounds, relaxed: frozenset[Var]) -> None:
        if not self.wants(region.buffer):
            return
        spans: list[Span | None] = []
        for start, extent in region.ranges:
            first = span(start, bounds, relaxed)
            last = first if extent == ONE else span(start + extent - 1, bounds, relaxed)
            spans.append(None if first is None or last is None else Span(first.lo, last.hi))
        self.add(region.buffer, tuple(spans))

    def discard(self, buffer: Buffer) -> None:
        self._found.pop(buffer, None)

    def merged(self, bounds: Bounds) -> tuple[Region, ...]:
        return tuple(
            Region(
                buffer,
                tuple(_union(column, buffer.shape[d], bounds) for d, column in enumerate(zip(*rows, strict=True))),
            )
            for buffer, rows in self._found.items()
        )


class _Collector:
    def __init__(self, wanted: Set[Buffer] | None) -> None:
        self.reads = _Spans(wanted)
        self.writes = _Spans(wanted)

    def visit(self, stmt: Stmt, bounds: Bounds, relaxed: frozenset[Var]) -> None:
        match stmt:
            case Store(buffer, indices, value):
                self._values((*indices, value), bounds, relaxed)
                self.writes.add_point(buffer, indices, bounds, relaxed)
            case Stores(stores) | Seq(stores):
                for inner in stores:
                    self.visit(inner, bounds, relaxed)
            case If(condition, then, otherwise):
                self._values((condition,), bounds, relaxed)
                self.visit(then, bounds, relaxed)
                if otherwise is not None:
                    self.visit(otherwise, bounds, relaxed)
            case Loop():
                self._nest(perfect_nest(stmt), bounds, relaxed)
            case Alloc():
                around, inner = allocations(stmt)
                self.visit(inner, bounds, relaxed)
                for alloc in around:
                    self.reads.discard(alloc.buffer)
                    self.writes.discard(alloc.buffer)
            case Block():
                self._block(stmt, bounds, relaxed)
            case Call(_, _, args, outputs):
                for position, region in enumerate(args):
                    self._values([e for pair in region.ranges for e in pair], bounds, relaxed)
                    self.reads.add_region(region, bounds, relaxed)
                    if position >= len(args) - outputs:
                        self.writes.add_region(region, bounds, relaxed)
            case Barrier():
                pass

    def _nest(self, loops: Sequence[Loop], bounds: Bounds, relaxed: frozenset[Var]) -> None:
        """Directly nested loops: facts about them are collected once, for extents with reads only."""
        extents: dict[Var, Expr] = {}
        for loop in loops:
            if loop.extent.has_reads:
                self._values((loop.extent,), bounds.extended(extents), relaxed.union(extents))
            extents[loop.var] = loop.extent
        self.visit(loops[-1].body, bounds.extended(extents), relaxed.union(extents))

    def _values(self, exprs: Iterable[Expr], bounds: Bounds, relaxed: frozenset[Var]) -> None:
        for expr in exprs:
            for node in reads_in(expr):
                if isinstance(node.source, Buffer):
                    self.reads.add_point(node.source, node.indices, bounds, relaxed)

    def _block(self, block: Block, bounds: Bounds, relaxed: frozenset[Var]) -> None:
        self._values((*block.bindings, block.predicate), bounds, relaxed)
        values = {axis.var: binding for axis, binding in zip(block.axes, block.bindings, strict=True)}
        for declared, spans in ((block.reads, self.reads), (block.writes, self.writes)):
            for region in declared:
                if spans.wants(region.buffer):
                    spans.add_region(_at(region, values), bounds, relaxed)


def _at(region: Region, values: Mapping[Var, Expr]) -> Region:
    return Region(region.buffer, tuple((substitute(s, values), substitute(e, values)) for s, e in region.ranges))


def _union(spans: Iterable[Span | None], extent: Expr, bounds: Bounds) -> tuple[Expr, Expr]:
    """The smallest range ``(start, extent)`` that contains all of ``spans``."""
    result: Span | None = None
    for part in spans:
        if part is None:
            return ZERO, extent
        result = part if result is None else Span(_least(result.lo, part.lo, bounds), _most(result.hi, part.hi, bounds))
    assert result is not None
    if result.lo == result.hi:
        return result.lo, ONE
    return result.lo, simplify(result.hi - result.lo + 1, bounds)


def _least(a: Expr, b: Expr, bounds: Bounds) -> Expr:
    if prove(a <= b, bounds):
        return a
    return b if prove(b <= a, bounds) else minimum(a, b)


def _most(a: Expr, b: Expr, bounds: Bounds) -> Expr:
    if prove(a >= b, bounds):
        return a
    return b if prove(b >= a, bounds) else maximum(a, b)


def span(index: Expr, bounds: Bounds, relaxed: frozenset[Var]) -> Span | None:
    """The range of ``index`` over the relaxed variables; None if unknown."""
    if relaxed.isdisjoint(free_vars(index)) and not index.has_reads:
        exact = simplify(index, bounds)
        return Span(exact, exact)
    canonical = simplify(index, bounds)
    box = _box_span(canonical, bounds, relaxed)
    if box is not None:
        return box
    found = _span(canonical, bounds, relaxed)
    if found is None or not relaxed.isdisjoint(free_vars(found.lo) | free_vars(found.hi)):
        return None
    return Span(simplify(found.lo, bounds), simplify(found.hi, bounds))


def _box_span(index: Expr, bounds: Bounds, relaxed: frozenset[Var]) -> Span | None:
    """The same for an ``index`` in canonical form that is a sum over variables with numeric ranges, the usual case."""
    form = linear_form(index, bounds)
    lo = hi = form.constant
    fixed: Polynomial = {}
    for atom, factor in form.terms:
        if not isinstance(atom, Var):
            return None
        if atom not in relaxed:
            fixed[atom,] = factor
            continue
        extent = bounds.extents[atom]
        if not isinstance(extent, Const) or extent.value < 1:
            return None
        last = factor * (int(extent.value) - 1)
        lo, hi = lo + min(last, 0), hi + max(last, 0)
    return Span(to_expr(shifted(fixed, lo)), to_expr(shifted(fixed, hi)))


def _span(expr: Expr, bounds: Bounds, relaxed: frozenset[Var]) -> Span | None:
    form = linear_form(expr, bounds)
    lo: Expr = ZERO + form.constant
    hi = lo
    for atom, factor in form.terms:
        part = _atom_span(atom, bounds, relaxed)
        if part is None:
            return None
        low, high = (part.lo, part.hi) if factor > 0 else (part.hi, part.lo)
        lo, hi = lo + low * factor, hi + high * factor
    return Span(lo, hi)


def _atom_span(atom: Expr, bounds: Bounds, relaxed: frozenset[Var]) -> Span | None:
    if atom.has_reads:
        return None
    if relaxed.isdisjoint(free_vars(atom)):
        return Span(atom, atom)
    match atom:
        case Var():
            return Span(ZERO, bounds.extents[atom] - 1)
        case Binary(BinaryOp.MUL, a, b):
            return _product_span(a, b, bounds, relaxed)
        case Binary(BinaryOp.FLOORDIV | BinaryOp.MOD as op, a, b) if _is_positive(b, bounds, relaxed):
            inner = _span(a, bounds, relaxed)
            if op is BinaryOp.FLOORDIV:
                return None if inner is None else Span(inner.lo // b, inner.hi // b)
            if inner is not None and prove((inner.lo // b).as_expr() >= inner.hi // b, bounds):
                return Span(inner.lo % b, inner.hi % b)
            return Span(ZERO, b - 1)
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
            left, right = _span(a, bounds, relaxed), _span(b, bounds, relaxed)
            combine = minimum if op is BinaryOp.MIN else maximum
            if left is None or right is None:
                return None
            return Span(combine(left.lo, right.lo), combine(left.hi, right.hi))
        case Select(_, a, b):
            left, right = _span(a, bounds, relaxed), _span(b, bounds, relaxed)
            if left is None or right is None:
                return None
            return Span(_least(left.lo, right.lo, bounds), _most(left.hi, right.hi, bounds))
        case _:
            return None


def _product_span(a: Expr, b: Expr, bounds: Bounds, relaxed: frozenset[Var]) -> Span | None:
    """The range of a product of two non-negative factors (``i * n`` with a run-time extent ``n``)."""
    if any((low := interval(factor, bounds).lo) is None or low < 0 for factor in (a, b)):
        return None
    left, right = _span(a, bounds, relaxed), _span(b, bounds, relaxed)
    if left is None or right is None:
        return None
    return Span(left.lo * right.lo, left.hi * right.hi)


def _is_positive(expr: Expr, bounds: Bounds, relaxed: frozenset[Var]) -> bool:
    if isinstance(expr, Const):
        return expr.value > 0
    low = interval(expr, bounds).lo
    return low is not None and low > 0 and relaxed.isdisjoint(free_vars(expr))
