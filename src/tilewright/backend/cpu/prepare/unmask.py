"""Removes guards on lanes from sums in private buffers: masked updates take twice the registers.

``for j in vectorized(16): if j < 11: T[j] = T[j] + a * b[j]`` becomes ``T[j] = T[j] + a * select(j < 11, b[j], 0)``,
whose load alone is masked. Nothing reads the other elements of ``T``: none of its stores writes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.loops.ir import Alloc, Buffer, Call, If, Loop, LoopKind, Stmt, Store, Stores
from tilewright.loops.visit import children, mentions, transform_stmts, walk, with_children
from tilewright.symbolic.expr import Const, Expr, Read, Select, Var, const
from tilewright.symbolic.traversal import all_of, conjuncts, free_vars, substitute, transform_reads

_LANE = Var("lane")


def unmask(stmt: Stmt) -> Stmt:
    """``stmt``, without blocks, with fewer guards on stores to buffers that it allocates."""
    stmt = with_children(stmt, tuple(map(unmask, children(stmt))))
    if not isinstance(stmt, Alloc):
        return stmt
    kept = {loop.var for loop in walk(stmt.body) if isinstance(loop, Loop)}
    guards = set(_guards(stmt.body, stmt.buffer, kept))
    if len(guards) != 1 or None in guards:
        return stmt
    return with_children(stmt, (transform_stmts(stmt.body, lambda node: _unmasked(node, stmt.buffer)),))


@dataclass(frozen=True, slots=True)
class _Masked:
    """A vectorized loop around a guarded store to a buffer at the loop's lane; ``parts`` of the guard depend on it."""

    lane: Var
    store: Store
    parts: tuple[Expr, ...]
    others: tuple[Expr, ...]


def _masked(stmt: Stmt, buffer: Buffer) -> _Masked | None:
    match stmt:
        case Loop(lane, Const(int(lanes)), If(condition, Store() as store, None), LoopKind.VECTORIZED):
            *outer, last = store.indices or (const(0),)
            width = store.buffer.shape[-1] if store.indices else const(0)
            is_row = last == lane and isinstance(width, Const) and lanes <= width.value
            if store.buffer != buffer or not is_row or any(lane in free_vars(index) for index in outer):
                return None
            parts = tuple(part for part in conjuncts(condition) if lane in part.variables)
            return _Masked(lane, store, parts, tuple(part for part in conjuncts(condition) if part not in parts))
        case _:
            return None


def _guards(stmt: Stmt, buffer: Buffer, inside: set[Var]) -> Iterator[frozenset[Expr] | None]:
    """The guards on lanes of all stores to ``buffer``, over one variable for the lane; None for a store without, or one
    that depends on loops ``inside`` the allocation: then another store may write what it leaves out."""
    found = _masked(stmt, buffer)
    if found is not None and found.parts:
        free = frozenset[Var]().union(*map(free_vars, found.parts))
        is_fixed = free.isdisjoint(inside - {found.lane}) and not any(part.has_reads for part in found.parts)
        yield frozenset(substitute(part, {found.lane: _LANE}) for part in found.parts) if is_fixed else None
        return
    match stmt:
        case Store():
            if stmt.buffer == buffer:
                yield None
        case Stores() | Call():
            if mentions(stmt, buffer):
                yield None
        case _:
            for child in children(stmt):
                yield from _guards(child, buffer, inside)


def _unmasked(stmt: Stmt, buffer: Buffer) -> Stmt | None:
    found = _masked(stmt, buffer)
    if found is None or not found.parts or not isinstance(stmt, Loop):
        return None
    guard = all_of(*found.parts)

    def guarded(read: Read) -> Expr | None:
        is_other = read.source != buffer and found.lane in free_vars(read)
        return Select(guard, read, const(0, read.dtype)) if is_other else None

    store: Stmt = Store(buffer, found.store.indices, transform_reads(found.store.value, guarded))
    body = If(all_of(*found.others), store) if found.others else store
    return Loop(stmt.var, stmt.extent, body, stmt.kind)
