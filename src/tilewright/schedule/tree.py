"""Finds and replaces statements of a program: the basis of all primitives.

A place is a ``Location``: a statement, its ancestors, and the path of child positions that leads to it. Handles
(``LoopRef``, ``BlockRef``) are names, which are unique within a program, so they survive every rewrite that keeps the
loop or block. All functions are pure.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from tilewright.base.names import fresh_name
from tilewright.loops import visit
from tilewright.loops.ir import NOTHING, Alloc, Block, Buffer, Loop, Seq, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import children, seq, walk, with_children, with_place
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.traversal import free_vars, substitute


@dataclass(frozen=True, slots=True)
class LoopRef:
    """The loop over the variable ``name``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BlockRef:
    """The block ``name``."""

    name: str

    def __str__(self) -> str:
        return self.name


Handle: TypeAlias = LoopRef | BlockRef


class Refusal(Exception):
    """A violated precondition, and its place; ``Schedule`` turns it into a ``ScheduleError``."""

    def __init__(self, reason: str, place: Handle | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


def refuse(reason: str, place: Handle | None = None) -> Refusal:
    """The exception of a refusing primitive: ``raise refuse("...", loop)``."""
    return Refusal(reason, place)


S = TypeVar("S", bound=Stmt, covariant=True)
Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Location(Generic[S]):
    """A statement in its program: ``ancestors`` from the program's body down to the parent, and child positions."""

    stmt: S
    ancestors: tuple[Stmt, ...]
    path: Path

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops around the statement, outermost first, up to its block (which hides those outside)."""
        return tuple(a for a in _visible(self.ancestors) if isinstance(a, Loop))


def _visible(ancestors: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The ancestors from the innermost block (included) down: those whose variables are visible."""
    for position in range(len(ancestors) - 1, -1, -1):
        if isinstance(ancestors[position], Block):
            return ancestors[position:]
    return ancestors


def places(
    stmt: Stmt,
    kind: type[S],
    wanted: Callable[[S], bool] = lambda _: True,
    ancestors: tuple[Stmt, ...] = (),
    path: Path = (),
) -> Iterator[Location[S]]:
    """The statements of a ``kind`` in ``stmt`` (itself counts) that are ``wanted``, in program order.

    ``ancestors`` and ``path`` are those of ``stmt``.
    """
    # Paths are linked lists from the inside out: most are never used.
    stack: list[tuple[Stmt, _Way | None]] = [(stmt, None)]
    while stack:
        node, way = stack.pop()
        while True:
            if isinstance(node, kind) and wanted(node):
                above, positions = _followed(way)
                yield Location(node, (*ancestors, *above), (*path, *positions))
            if not isinstance(node, (Loop, Alloc)):
                break
            way, node = (node, 0, way), node.body
        below = list(enumerate(children(node)))
        stack.extend([(child, (node, position, way)) for position, child in reversed(below)])


_Way: TypeAlias = "tuple[Stmt, int, _Way | None]"
"""The parent of a statement, the statement's position in it, and the path to the parent."""


def _followed(way: "_Way | None") -> tuple[list[Stmt], list[int]]:
    """The ancestors and positions of a path, from the outside in."""
    above: list[Stmt] = []
    positions: list[int] = []
    while way is not None:
        parent, position, way = way
        above.append(parent)
        positions.append(position)
    return above[::-1], positions[::-1]


# Finding -------------------------------------------------------------------------------------------------------------


def loop_at(program: Program, loop: LoopRef) -> Location[Loop]:
    """The location of ``loop``. Refuses if the program has no such loop."""
    found = next(places(program.body, Loop, lambda s: s.var.name == loop.name), None)
    if found is not None:
        return found
    known = ", ".join(s.var.name for s in walk(program.body) if isinstance(s, Loop))
    raise refuse(f"there is no loop `{loop}` (any more); the loops are: {known}")


def loops_at(program: Program, loops: Sequence[LoopRef]) -> list[Location[Loop]]:
    """The locations of ``loops``. Refuses if the program lacks one of them."""
    names = {loop.name for loop in loops}
    found = {place.stmt.var.name: place for place in places(program.body, Loop, lambda s: s.var.name in names)}
    return [found.get(loop.name) or loop_at(program, loop) for loop in loops]


def block_at(program: Program, block: BlockRef) -> Location[Block]:
    """The location of ``block``. Refuses if the program has no such block."""
    found = next(places(program.body, Block, lambda s: s.name == block.name), None)
    if found is not None:
        return found
    known = ", ".join(s.name for s in walk(program.body) if isinstance(s, Block))
    raise refuse(f"there is no block `{block}` (any more); the blocks are: {known}")


def blocks_in(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks in ``stmt`` that are in no other block of it, in program order."""
    while isinstance(stmt, (Loop, Alloc)):
        stmt = stmt.body
    if isinstance(stmt, Block):
        return (stmt,)
    return tuple([block for child in children(stmt) for block in blocks_in(child)])


def all_blocks(stmt: Stmt) -> tuple[Block, ...]:
    """All blocks in ``stmt``, also those inside blocks, in program order."""
    found: list[Block] = []
    _gather_blocks(stmt, found)
    return tuple(found)


def _gather_blocks(stmt: Stmt, found: list[Block]) -> None:
    while isinstance(stmt, (Loop, Alloc)):
        stmt = stmt.body
    if isinstance(stmt, Block):
        found.append(stmt)
    for child in children(stmt):
        _gather_blocks(child, found)


def loops_of(program: Program, block: BlockRef) -> tuple[Loop, ...]:
    """The loops around ``block``, outermost first."""
    return block_at(program, block).loops


def buffers_written(block: Block) -> frozenset[Buffer]:
    """The buffers in the block's write regions."""
    return frozenset(region.buffer for region in block.writes)


def buffers_read(block: Block) -> frozenset[Buffer]:
    """The buffers in the block's read regions."""
    return frozenset(region.buffer for region in block.reads)


def consumers(program: Program, block: Block) -> tuple[Block, ...]:
    """The other blocks that read a buffer that ``block`` writes, in program order."""
    written = buffers_written(block)
    return tuple(b for b in all_blocks(program.body) if b.name != block.name and written & buffers_read(b))


def buffers_of(program: Program) -> dict[str, Buffer]:
    """All buffers by name: parameters, then allocations."""
    allocated = (s.buffer for s in walk(program.body) if isinstance(s, Alloc))
    return {b.name: b for b in (*program.params, *allocated)}


# Facts at a place ----------------------------------------------------------------------------------------------------


def bounds_at(program: Program, place: Location[Stmt]) -> Bounds:
    """The ranges of all variables that are visible at ``place``: loops, axes, run-time extents."""
    return bounds_below(program, place.ancestors)


def bounds_inside(program: Program, place: Location[Stmt]) -> Bounds:
    """The ranges of all variables that are visible in the body of the loop or block at ``place``."""
    return bounds_below(program, (*place.ancestors, place.stmt))


def bounds_below(program: Program, ancestors: tuple[Stmt, ...]) -> Bounds:
    """The ranges of the variables that ``ancestors`` make visible to a statement below the last of them."""
    extents: dict[Var, Expr] = {}
    for stmt in _visible(ancestors):
        if isinstance(stmt, Loop):
            extents[stmt.var] = stmt.extent
        elif isinstance(stmt, Block):
            extents.update((axis.var, axis.extent) for axis in stmt.axes)
    return Bounds(extents, {dim.var: dim.bound for dim in program.dims})


# Rewriting -----------------------------------------------------------------------------------------------------------


def rebuilt(ancestors: Sequence[Stmt], path: Path, new: Stmt) -> Stmt:
    """The first of ``ancestors`` with the statement at ``path``, below the last of them, replaced by ``new``; tidied.

    Loops and allocations around are removed if they become empty.
    """
    new = normalize(new)
    for ancestor, position in zip(reversed(ancestors), reversed(path), strict=True):
        if isinstance(ancestor, (Loop, Alloc)):
            new = NOTHING if _is_nothing(new) else with_children(ancestor, (new,))
        else:
            parts = children(ancestor)
            new = with_children(ancestor, (*parts[:position], new, *parts[position + 1 :]))
    return new


def rewrite(program: Program, place: Location[Stmt], new: Stmt) -> Program:
    """``program`` with the statement at ``place`` replaced by ``new``, and tidied."""
    return dataclasses.replace(program, body=rebuilt(place.ancestors, place.path, new))


def substitute_loops(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """``stmt`` with variables of the loops around it replaced.

    The inside of a block sees only the block's axes, so it is not entered; unchanged statements stay the same objects.
    """
    match stmt:
        case Block():
            bindings = tuple([substitute(binding, values) for binding in stmt.bindings])
            return with_place(stmt, bindings, substitute(stmt.predicate, values))
        case Loop():
            extent, body = substitute(stmt.extent, values), substitute_loops(stmt.body, values)
            is_same = extent is stmt.extent and body is stmt.body
            return stmt if is_same else Loop(stmt.var, extent, body, stmt.kind)
        case Seq():
            return seq(*(substitute_loops(child, values) for child in stmt.statements))
        case _:
            return visit.substitute(stmt, values)


def change_blocks(stmt: Stmt, change: Callable[[Block], Stmt]) -> Stmt:
    """``stmt`` with ``change`` applied to its outermost blocks."""
    around, inner = visit.allocations(stmt)
    before = children(inner)
    if isinstance(inner, Block):
        result = change(inner)
    else:
        after = tuple([change_blocks(child, change) for child in before])
        result = inner if all(map(operator.is_, before, after)) else with_children(inner, after)
    for alloc in reversed(around):
        result = alloc if result is alloc.body else Alloc(alloc.buffer, result)
    return result


def normalize(stmt: Stmt) -> Stmt:
    """``stmt`` without empty loops and allocations, and with sequences in canonical form."""
    around, inner = visit.allocations(stmt)
    if around:
        body = normalize(inner)
        if _is_nothing(body):
            return NOTHING
        for alloc in reversed(around):
            body = alloc if body is alloc.body else Alloc(alloc.buffer, body)
        return body
    if isinstance(stmt, Loop):
        body = normalize(stmt.body)
        if _is_nothing(body):
            return NOTHING
        return stmt if body is stmt.body else with_children(stmt, (body,))
    before = children(stmt)
    after = tuple(map(normalize, before))
    return stmt if all(map(operator.is_, before, after)) else with_children(stmt, after)


def _is_nothing(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.statements


def nest(loops: Iterable[Loop], body: Stmt) -> Stmt:
    """``body`` inside copies of ``loops`` (outermost first), whose own bodies are ignored."""
    for loop in reversed(tuple(loops)):
        body = with_children(loop, (body,))
    return body


# Names ---------------------------------------------------------------------------------------------------------------


def variable_names(program: Program) -> set[str]:
    """The names of all loop variables, block axes and run-time extents."""
    names = {dim.var.name for dim in program.dims}
    for stmt in walk(program.body):
        if isinstance(stmt, Loop):
            names.add(stmt.var.name)
        elif isinstance(stmt, Block):
            names.update(axis.name for axis in stmt.axes)
    return names


def fresh_loop_vars(program: Program, wanted: Iterable[str]) -> tuple[Var, ...]:
    """New loop variables with the ``wanted`` names if these are free, else numbered ones."""
    taken = variable_names(program)
    fresh: list[Var] = []
    for name in wanted:
        fresh.append(Var(fresh_name(name, taken)))
        taken.add(fresh[-1].name)
    return tuple(fresh)


def fresh_block_name(program: Program, wanted: str) -> str:
    """A block name that is not taken."""
    return fresh_name(wanted, {block.name for block in all_blocks(program.body)})


def fresh_buffer_name(program: Program, wanted: str) -> str:
    """A buffer name that is not taken."""
    return fresh_name(wanted, buffers_of(program))


def depends_on(expr: Expr, variables: Iterable[Var]) -> bool:
    """Whether any of ``variables`` occurs in ``expr``."""
    return not free_vars(expr).isdisjoint(variables)
