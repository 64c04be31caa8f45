"""Shrinks buffers: allocates an intermediate in the innermost loop around its accesses, with only the needed size.

Inside a block only the block's own axes are visible, so "index minus start of the window" is written over the axes:
with the binding ``vi = io * 12 + ii``, a window that starts at ``io * 12`` turns ``T[vi]`` into ``T[vi % 12]``; codegen
substitutes the bindings and simplifies it to ``T[ii]``.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.loops.access import span
from tilewright.loops.ir import Alloc, Block, Buffer, Call, Loop, LoopKind, Stmt, Store, Stores
from tilewright.loops.memory import Memory, Sharing
from tilewright.loops.program import Program
from tilewright.loops.visit import buffers, children, own_exprs, read_buffers, transform_stmts
from tilewright.schedule.blocks import Indices, bounds_within, moved_accesses, parts, redirected
from tilewright.schedule.region import Touched, Window, Windows, tightened, touched, unit_index, unit_of
from tilewright.schedule.steps import selects_a_row
from tilewright.schedule.tree import (
    Location,
    Path,
    all_blocks,
    blocks_in,
    bounds_at,
    buffers_read,
    buffers_written,
    depends_on,
    places,
    rebuilt,
    rewrite,
)
from tilewright.symbolic import traversal as symbolic
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, ZERO, Binary, Expr, Var, const, unique_text
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import LinearForm, linear_form, prove, simplify
from tilewright.symbolic.traversal import free_vars, walk


def compact(program: Program, name: str, known: Bounds | None = None) -> Program:
    """``program`` with the allocation of the buffer ``name`` as deep and as small as its accesses allow.

    ``known``: the bounds of some place; if they equal those of the new one, their cached results are reused.
    Parameters, and buffers with accesses outside of blocks, are unchanged.
    """
    outer = next(places(program.body, Alloc, lambda s: s.buffer.name == name), None)
    if outer is None:
        return program
    buffer = outer.stmt.buffer
    users = list(places(outer.stmt, Block, lambda s: _is_user(s, buffer), outer.ancestors, outer.path))
    if not users or _is_used_outside_of_blocks(outer.stmt.body, buffer):
        return program
    for place in _places(outer, users, buffer.memory):
        bounds = bounds_at(program, place)
        if known is not None and bounds == known:
            bounds = known
        found = touched(place.stmt, bounds, {buffer})
        windows = found.of(buffer, bounds)
        if windows is not None and _starts_afresh(place, outer, buffer, found, bounds):
            return _Shrinking(program, buffer, windows, bounds).moved(outer, place)
    return program


def _is_user(block: Block, buffer: Buffer) -> bool:
    return buffer in buffers_read(block) or buffer in buffers_written(block)


def _is_used_outside_of_blocks(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether some access is not declared by a block (in a binding, a condition, a statement outside of blocks)."""
    if isinstance(stmt, Block):
        bindings = (expr for block in all_blocks(stmt) for expr in (block.predicate, *block.bindings))
        return buffer in read_buffers(*bindings)
    if isinstance(stmt, (Store, Stores, Call)):
        return buffer in buffers(stmt)
    if buffer in read_buffers(*own_exprs(stmt)):
        return True
    return any(_is_used_outside_of_blocks(child, buffer) for child in children(stmt))


def _places(outer: Location[Alloc], users: Sequence[Location[Block]], memory: Memory) -> Iterator[Location[Stmt]]:
    """The statements around all ``users``, innermost first, up to the present ``Alloc``."""
    common = _common_path([user.path for user in users])
    ancestors = (*users[0].ancestors, users[0].stmt)
    for depth in range(len(common), len(outer.path), -1):
        loops = [a for a in ancestors[len(outer.path) : depth] if isinstance(a, Loop)]
        inside_block = any(isinstance(a, Block) for a in ancestors[len(outer.path) : depth])
        if not inside_block and all(_may_hold(loop.kind, memory) for loop in loops):
            yield Location(ancestors[depth], ancestors[:depth], common[:depth])


def _common_path(paths: Sequence[Path]) -> Path:
    common = paths[0]
    for path in paths[1:]:
        same = 0
        while same < min(len(common), len(path)) and common[same] == path[same]:
            same += 1
        common = common[:same]
    return common


def _may_hold(kind: LoopKind, memory: Memory) -> bool:
    """Whether a buffer in ``memory`` may be allocated inside a loop of ``kind``: lanes and threads share some."""
    if kind.is_thread:
        return memory.sharing is Sharing.THREAD
    if kind.is_block:
        return memory.sharing is not Sharing.ALL
    return kind is not LoopKind.VECTORIZED


def _starts_afresh(
    place: Location[Stmt], outer: Location[Stmt], buffer: Buffer, found: Touched, bounds: Bounds
) -> bool:
    """Whether each run of ``place`` writes all that it reads, so that no value is carried from run to run."""
    crossed = [a.var for a in place.ancestors[len(outer.path) :] if isinstance(a, Loop)]
    for block in blocks_in(place.stmt):
        if buffer in buffers_written(block) and _carries(block, buffer, crossed):
            return False
    written, read = found.writes.get(buffer), found.reads.get(buffer)
    first = next(block for block in blocks_in(place.stmt) if _is_user(block, buffer))
    if written is None or buffer not in buffers_written(first):
        return not crossed
    if read is None or not crossed:
        return True
    return all(_holds(w, r, bounds) for w, r in zip(written, read, strict=True))


def _carries(block: Block, buffer: Buffer, loops: Sequence[Var]) -> bool:
    """Whether an element of ``buffer`` is completed over several iterations of ``loops``."""
    axes = zip(block.axes, block.bindings, strict=True)
    driven = [axis for axis, binding in axes if axis.kind is not IterKind.SPATIAL and depends_on(binding, loops)]
    return any(axis.kind is IterKind.REDUCE or not selects_a_row(block, axis, {buffer}) for axis in driven)


def _holds(written: Window, read: Window, bounds: Bounds) -> bool:
    begins = prove(written.start <= read.start, bounds)
    return begins and prove(read.start + read.extent <= written.start + written.extent, bounds)


@dataclass(frozen=True, slots=True)
class _Split:
    """A linear term of an index, split into a part determined by the loops outside and a part of those inside."""

    kept: Expr
    """The outer part, over the block's axes."""
    value: Expr
    """The outer part, over the loops outside."""


@dataclass(frozen=True, slots=True)
class _User:
    """A block that uses the buffer."""

    block: Block
    values: Mapping[Var, Expr]
    """The bindings of its axes."""
    bounds: Bounds
    """Facts about the loops around it."""
    inside: Bounds
    """Facts about its axes."""


class _Shrinking:
    """Replaces ``buffer`` by its ``windows``, at a place with the facts ``bounds``."""

    def __init__(self, program: Program, buffer: Buffer, windows: Windows, bounds: Bounds) -> None:
        self._program = program
        self._buffer = buffer
        self._windows = windows
        self._bounds = bounds
        self._offsets: dict[tuple[str, int, Expr], Expr | None] = {}

    def moved(self, outer: Location[Alloc], place: Location[Stmt]) -> Program:
        """The program with the buffer allocated around ``place`` instead of at ``outer``."""
        users = {user.block.name: user for user in self._users(place.stmt)}
        small = self._small_buffer([users[block.name] for block in blocks_in(place.stmt) if block.name in users])
        body = place.stmt if small == self._buffer else self._rebased(place.stmt, small, users)
        below = len(outer.path) + 1
        inside = rebuilt(place.ancestors[below:], place.path[below:], Alloc(small, body))
        return rewrite(self._program, outer, inside)

    def _users(self, stmt: Stmt) -> Iterator[_User]:
        for at in places(tightened(stmt, self._bounds), Block, lambda s: _is_user(s, self._buffer)):
            inner = {a.var: a.extent for a in at.ancestors if isinstance(a, Loop)}
            values = {axis.var: b for axis, b in zip(at.stmt.axes, at.stmt.bindings, strict=True)}
            inside = bounds_within(self._program, at.stmt.axes)
            yield _User(at.stmt, values, self._bounds.extended(inner), inside)

    def _small_buffer(self, users: Sequence[_User]) -> Buffer:
        """The buffer with those dimensions shrunk for which all accesses can be rebased."""
        shape = list(self._buffer.shape)
        accesses = [(user, indices) for user in users for indices in _accesses(user.block, self._buffer)]
        for dimension, window in enumerate(self._windows):
            if not window.is_whole(shape[dimension]) and all(
                self._offset(user, indices[dimension], dimension) is not None for user, indices in accesses
            ):
                shape[dimension] = window.extent
        return dataclasses.replace(self._buffer, shape=tuple(shape))

    def _rebased(self, stmt: Stmt, small: Buffer, users: Mapping[str, _User]) -> Stmt:
        def leave(node: Stmt) -> Stmt:
            if not isinstance(node, Block) or node.name not in users:
                return node

            @cache
            def change(indices: Indices) -> Indices:
                return self._indices(users[node.name], indices, small)

            return moved_accesses(self._program, node, self._buffer, small, change)

        return transform_stmts(stmt, leave)

    def _indices(self, user: _User, indices: Indices, small: Buffer) -> Indices:
        result: list[Expr] = []
        for dimension, (index, old, new) in enumerate(zip(indices, self._buffer.shape, small.shape, strict=True)):
            offset = ZERO if old == new else self._offset(user, index, dimension)
            assert offset is not None
            result.append(index if offset == ZERO else simplify(index - offset, _dividing(offset, user.inside)))
        return tuple(result)

    def _offset(self, user: _User, index: Expr, dimension: int) -> Expr | None:
        """The start of a dimension's window over the axes of the block, found in ``index``; None if it is not there."""
        key = (user.block.name, dimension, index)
        if key not in self._offsets:
            self._offsets[key] = self._found_offset(user, index, self._windows[dimension])
        return self._offsets[key]

    def _found_offset(self, user: _User, index: Expr, window: Window) -> Expr | None:
        kept: Expr = ZERO
        value: Expr = ZERO
        for atom, factor in linear_form(index, user.inside).terms:
            split = self._split(atom, user)
            if split is None:
                return None
            kept, value = kept + split.kept * factor, value + split.value * factor
        rest = simplify(window.start - value, self._bounds)
        return kept + rest if self._bounds.extents.keys().isdisjoint(free_vars(rest)) else None

    def _split(self, atom: Expr, user: _User) -> _Split | None:
        """``atom == outer + inner``, with ``outer`` a multiple of ``unit`` and ``inner`` within one unit."""
        bounds = user.bounds
        form = linear_form(symbolic.substitute(atom, user.values), bounds)
        outer, inner = _parted(form, self._bounds)
        if outer == ZERO:
            return _Split(ZERO, ZERO)
        unit = unit_of(outer, self._bounds)
        reach = span(inner, bounds, frozenset(bounds.extents) - self._bounds.extents.keys())
        number = None if reach is None else unit_index(reach.lo, reach.hi, unit, bounds)
        return None if number is None else _Split(atom // unit * unit, outer + number * unit)


def _dividing(expr: Expr, bounds: Bounds) -> Bounds:
    """``bounds`` with all divisors in ``expr`` nonzero: symbolic factors are the extents of loops around."""
    divisors = (node.b for node in walk(expr) if isinstance(node, Binary) and node.op is BinaryOp.FLOORDIV)
    return bounds.assuming(*(v >= ONE for divisor in divisors for v in sorted(free_vars(divisor), key=unique_text)))


def _parted(form: LinearForm, outside: Bounds) -> tuple[Expr, Expr]:
    """The terms over loops outside (those in ``outside``), and the other terms with the constant."""
    outer: Expr = ZERO
    inner: Expr = const(form.constant)
    for atom, factor in form.terms:
        used = free_vars(atom)
        if not outside.extents.keys().isdisjoint(used) and outside.dims.keys() >= used.difference(outside.extents):
            outer = outer + atom * factor
        else:
            inner = inner + atom * factor
    return outer, inner


def _accesses(block: Block, buffer: Buffer) -> tuple[Indices, ...]:
    """The indices of all accesses (of calls: the starts of the regions)."""
    found: dict[Indices, None] = {}

    def note(indices: Indices) -> Indices:
        found[indices] = None
        return indices

    redirected(parts(block), buffer, buffer, note)
    return tuple(found)
