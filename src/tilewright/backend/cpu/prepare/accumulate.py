"""Keeps what a loop accumulates in registers: it is read before the loop, and stored after it.

``for k: for i in unrolled: for j in vectorized: C[i, j] = C[i, j] + ...`` reads and writes memory in each iteration of
``k``, as LLVM does not promote what loops with run-time indices use elsewhere. With a private tile ``T`` it becomes
``T[i, j] = C[i, j]; for k: ... T[i, j] = T[i, j] + ...; C[i, j] = T[i, j]``, and LLVM makes registers of ``T``.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewright.base.names import Names
from tilewright.loops.ir import Alloc, Buffer, If, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.memory import LOCAL, Sharing
from tilewright.loops.visit import (
    allocations,
    buffers,
    children,
    mentions,
    own_exprs,
    seq,
    transform_stmts,
    walk,
    with_children,
)
from tilewright.loops.visit import free_vars as free_vars_of
from tilewright.symbolic.expr import ONE, Const, Expr, Read, Var
from tilewright.symbolic.linear import polynomial
from tilewright.symbolic.traversal import free_vars, reads_in, substitute, transform_reads

MOST_BYTES = 1 << 12
"""Of a tile: those of 64 registers of 64 bytes. What is larger stays in memory anyway."""
_WRITTEN_OUT = (LoopKind.UNROLLED, LoopKind.VECTORIZED)


def accumulate(stmt: Stmt) -> Stmt:
    """``stmt``, without blocks, in which loops accumulate in private tiles."""
    literal = {alloc.buffer for alloc in _on_stack(stmt) if _is_literal(alloc)}
    loops = {node.var.name for node in walk(stmt) if isinstance(node, Loop)}
    outside = {variable.name for variable in free_vars_of(stmt)}
    return _rewritten(stmt, literal, Names({*loops, *outside, *(buffer.name for buffer in buffers(stmt))}))


def _rewritten(stmt: Stmt, literal: set[Buffer], names: Names) -> Stmt:
    around, stmt = allocations(stmt)
    if not isinstance(stmt, Loop):
        stmt = _inside(stmt, literal, names)
    elif stmt.kind is not LoopKind.VECTORIZED:  # a buffer of a lane is another matter
        tiles: list[_Tile] = []
        for update in _updates(stmt):
            if update.store.buffer not in literal and _can_stay(update, stmt):
                tiles.append(_Tile.of(update, names))
                literal.add(tiles[-1].buffer)
                stmt = tiles[-1].used_in(stmt)
        stmt = _inside(stmt, literal, names)
        for tile in tiles:
            stmt = Alloc(tile.buffer, seq(tile.before, stmt, tile.after))
    for alloc in reversed(around):
        stmt = Alloc(alloc.buffer, stmt)
    return stmt


def _inside(stmt: Stmt, literal: set[Buffer], names: Names) -> Stmt:
    parts = tuple([_rewritten(part, literal, names) for part in children(stmt)])
    return stmt if all(map(operator.is_, parts, children(stmt))) else with_children(stmt, parts)


@dataclass(frozen=True, slots=True)
class _Update:
    """The one statement of a loop that uses a buffer, and the loops around it in that loop, outermost first."""

    store: Store
    around: tuple[Loop, ...]

    @property
    def of_tile(self) -> tuple[Loop, ...]:
        """Those that go through what is accumulated; the others are steps of a reduction, and may be serial."""
        used = _vars_of(self.store)
        return tuple(loop for loop in self.around if loop.var in used)


def _updates(loop: Loop) -> tuple[_Update, ...]:
    """The stores in ``loop`` that run as often in each of its iterations."""
    if loop.kind is not LoopKind.SERIAL or not isinstance(loop.extent, Const) or loop.extent.value < 1:
        return ()
    return tuple(_stores(loop.body, ()))


def _stores(stmt: Stmt, around: tuple[Loop, ...]) -> Iterator[_Update]:
    match stmt:
        case Store():
            yield _Update(stmt, around)
        case Seq(statements):
            for inner in statements:
                yield from _stores(inner, around)
        case Alloc(own, body):
            yield from (update for update in _stores(body, around) if update.store.buffer != own)
        case Loop(_, Const(), body, kind) if kind in (LoopKind.SERIAL, *_WRITTEN_OUT):
            yield from _stores(body, (*around, stmt))
        case _:
            pass


def _can_stay(update: _Update, loop: Loop) -> bool:
    """Whether nothing else in ``loop`` uses what ``update`` accumulates, which is the same in each iteration."""
    store = update.store
    reads = [node for node in reads_in(store.value) if node.source == store.buffer]
    if not reads or any(node.indices != store.indices for node in reads) or loop.var in _vars_of(store):
        return False
    if any(inner.has_reads for inner in store.indices) or not _are_apart(store, update.of_tile):
        return False
    if any(inner.kind not in _WRITTEN_OUT for inner in update.of_tile):
        return False
    size = prod(map(_extent, update.of_tile)) * store.buffer.dtype.itemsize
    return 0 < size <= MOST_BYTES and sum(_uses(loop.body, store.buffer)) == 1


def _vars_of(store: Store) -> frozenset[Var]:
    return frozenset[Var]().union(*map(free_vars, store.indices))


def _are_apart(store: Store, loops: tuple[Loop, ...]) -> bool:
    """Whether different iterations of ``loops`` store different elements: each has digits of its own in one index."""
    left: dict[Expr, int] = {loop.var: _extent(loop) for loop in loops}
    for index in store.indices:
        moved = [(m, factor) for m, factor in polynomial(index).items() if any(_moves(atom, loops) for atom in m)]
        reached = 0
        for monomial, factor in sorted(moved, key=operator.itemgetter(1)):
            extent = left.pop(monomial[0], None) if len(monomial) == 1 else None
            if extent is None or factor <= reached:
                return False
            reached += factor * (extent - 1)
    return not left


def _moves(atom: Expr, loops: tuple[Loop, ...]) -> bool:
    return not free_vars(atom).isdisjoint(loop.var for loop in loops)


def _uses(stmt: Stmt, buffer: Buffer) -> Iterator[bool]:
    """For each statement in ``stmt`` without others inside, whether it uses ``buffer``; so for each condition."""
    for node in walk(stmt):
        if isinstance(node, If | Loop | Alloc):
            yield any(read.source == buffer for expr in own_exprs(node) for read in reads_in(expr))
        elif not children(node):
            yield mentions(node, buffer)


@dataclass(frozen=True, slots=True)
class _Tile:
    """A private buffer for what is accumulated in a loop, read ``before`` the loop and stored ``after`` it."""

    buffer: Buffer
    store: Store
    """What accumulates, as it was."""
    variables: tuple[Var, ...]
    before: Stmt
    after: Stmt

    @staticmethod
    def of(update: _Update, names: Names) -> "_Tile":
        """A tile of its own for what ``update`` accumulates."""
        store, name = update.store, names.fresh(f"{update.store.buffer.name}_tile")
        variables = tuple(loop.var for loop in update.of_tile)
        tile = Buffer(name, store.buffer.dtype, tuple(loop.extent for loop in update.of_tile), LOCAL)
        before = _over(update.of_tile, Store(tile, variables, Read(store.buffer, store.indices)), names)
        after = _over(update.of_tile, Store(store.buffer, store.indices, Read(tile, variables)), names)
        return _Tile(tile, store, variables, before, after)

    def used_in(self, loop: Loop) -> Loop:
        """``loop``, which accumulates in the tile."""

        def moved(node: Stmt) -> Stmt | None:
            return _on_tile(node, self.buffer, self.variables) if node == self.store else None

        return replace(loop, body=transform_stmts(loop.body, moved))


def _on_tile(store: Stmt, tile: Buffer, variables: tuple[Var, ...]) -> Store:
    assert isinstance(store, Store)
    value = transform_reads(store.value, lambda read: Read(tile, variables) if read.source == store.buffer else None)
    return Store(tile, variables, value)


def _over(loops: tuple[Loop, ...], store: Store, names: Names) -> Stmt:
    """``store`` in copies of ``loops``, over variables of their own."""
    renamed: dict[Var, Expr] = {loop.var: Var(names.fresh(loop.var.name), loop.var.dtype) for loop in loops}
    indices = tuple(substitute(index, renamed) for index in store.indices)
    result: Stmt = Store(store.buffer, indices, substitute(store.value, renamed))
    for loop in reversed(loops):
        var = renamed[loop.var]
        assert isinstance(var, Var)
        result = Loop(var, loop.extent, result, loop.kind)
    return result


def _extent(loop: Loop) -> int:
    return int(loop.extent.value) if isinstance(loop.extent, Const) else 0


def _on_stack(stmt: Stmt) -> Iterator[Alloc]:
    """What each thread has for itself; the rest is in the workspace."""
    for node in walk(stmt):
        if isinstance(node, Alloc) and node.buffer.memory.sharing is Sharing.THREAD:
            yield node
        elif isinstance(node, Loop) and node.kind is LoopKind.PARALLEL and node.extent != ONE:
            yield from (inner for inner in walk(node.body) if isinstance(inner, Alloc))


def _is_literal(alloc: Alloc) -> bool:
    """Whether all accesses have literal offsets once loops are written out: LLVM makes registers of such a buffer."""
    serial = {n.var for n in walk(alloc.body) if isinstance(n, Loop) and n.kind not in _WRITTEN_OUT}
    for node in walk(alloc.body):
        indices = [node.indices] if isinstance(node, Store) and node.buffer == alloc.buffer else []
        reads = (read for expr in own_exprs(node) for read in reads_in(expr))
        indices.extend(read.indices for read in reads if read.source == alloc.buffer)
        if any(not serial.isdisjoint(free_vars(index)) for index in (i for each in indices for i in each)):
            return False
    return True
