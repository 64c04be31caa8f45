"""Traverses and rewrites statements: the building blocks of passes over loop programs."""

import operator
from collections.abc import Callable, Iterator, Mapping

from tilewright.loops.ir import (
    NOTHING,
    Alloc,
    Barrier,
    Block,
    Buffer,
    Call,
    If,
    Loop,
    LoopKind,
    Region,
    Seq,
    Stmt,
    Store,
    Stores,
)
from tilewright.symbolic import traversal as symbolic
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import Const, Expr, Read, Var

ChangeExpr = Callable[[Expr], Expr]
ChangeBuffer = Callable[[Buffer], Buffer]


def seq(*statements: Stmt) -> Stmt:
    """``statements`` in order, in canonical form: no nested ``Seq``, and none around a single statement."""
    flat: list[Stmt] = []
    for statement in statements:
        flat.extend(seq_items(statement))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat)) if flat else NOTHING


def seq_items(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements of a ``Seq``; ``stmt`` itself otherwise."""
    if not isinstance(stmt, Seq):
        return (stmt,)
    return tuple(item for inner in stmt.statements for item in seq_items(inner))


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct children (of a block: its init, then its body)."""
    # No ``match``: every pass calls this for every statement.
    if isinstance(stmt, (Loop, Alloc)):
        return (stmt.body,)
    if isinstance(stmt, Store):
        return ()
    if isinstance(stmt, Block):
        return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)
    if isinstance(stmt, Seq):
        return stmt.statements
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def with_children(stmt: Stmt, parts: tuple[Stmt, ...]) -> Stmt:
    """``stmt`` with other children, in the order of ``children``."""
    # No ``match``, and loops first: every rewrite rebuilds all loops around its place.
    if isinstance(stmt, Loop):
        return Loop(stmt.var, stmt.extent, parts[0], stmt.kind)
    if isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, parts[0])
    if isinstance(stmt, Seq):
        return seq(*parts)
    if isinstance(stmt, If):
        return If(stmt.condition, parts[0], None if stmt.otherwise is None else parts[1])
    if isinstance(stmt, Block):
        init = None if stmt.init is None else parts[0]
        own = (stmt.name, stmt.axes, stmt.bindings, stmt.reads, stmt.writes)
        return Block(*own, parts[-1], init, stmt.predicate, stmt.annotations)
    return stmt


def with_place(block: Block, bindings: tuple[Expr, ...], predicate: Expr) -> Block:
    """``block`` in other loops: with other ``bindings`` and another ``predicate``."""
    if predicate is block.predicate and all(map(operator.is_, bindings, block.bindings)):
        return block
    return Block(
        block.name,
        block.axes,
        bindings,
        block.reads,
        block.writes,
        block.body,
        block.init,
        predicate,
        block.annotations,
    )


def perfect_nest(stmt: Stmt) -> tuple[Loop, ...]:
    """``stmt`` and the loops in it that are perfectly nested."""
    loops: list[Loop] = []
    while isinstance(stmt, Loop):
        loops.append(stmt)
        stmt = stmt.body
    return tuple(loops)


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """``stmt`` and all statements in it, parents first, in program order."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        yield node
        while isinstance(node, (Loop, Alloc)):
            node = node.body
            yield node
        stack.extend(reversed(children(node)))


MOST_COPIES = 1 << 14
"""Maximum statements in a kernel, with unrolled loops expanded. LLVM takes some seconds for as many."""


def copies(stmt: Stmt) -> int:
    """The number of leaf statements in ``stmt``, with unrolled loops expanded."""
    _, stmt = allocations(stmt)
    inside = sum(map(copies, children(stmt))) if not isinstance(stmt, Store | Stores | Call | Barrier) else 1
    if isinstance(stmt, Loop) and stmt.kind is LoopKind.UNROLLED and isinstance(stmt.extent, Const):
        return inside * max(int(stmt.extent.value), 0)
    return inside


def transform_stmts(stmt: Stmt, leave: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Rewrite bottom-up: ``leave`` gets each statement with rewritten children, and returns a replacement or None."""
    around, stmt = allocations(stmt)
    before = children(stmt)
    if before:
        after = tuple([transform_stmts(child, leave) for child in before])
        rebuilt = stmt if all(map(operator.is_, before, after)) else with_children(stmt, after)
    else:
        rebuilt = stmt
    final = leave(rebuilt) or rebuilt
    for alloc in reversed(around):
        rebuilt = alloc if final is alloc.body else Alloc(alloc.buffer, final)
        final = leave(rebuilt) or rebuilt
    return final


def allocations(stmt: Stmt) -> tuple[list[Alloc], Stmt]:
    """The directly nested allocations from ``stmt`` on, and the statement inside all of them.

    A program has one for each of its stages: handle them together to keep recursion shallow.
    """
    found: list[Alloc] = []
    while isinstance(stmt, Alloc):
        found.append(stmt)
        stmt = stmt.body
    return found, stmt


def own_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of ``stmt`` itself, not those of its children."""
    match stmt:
        case Store(_, indices, value):
            return (*indices, value)
        case Stores(stores):
            return tuple(expr for store in stores for expr in own_exprs(store))
        case If(condition=condition):
            return (condition,)
        case Loop(extent=extent):
            return (extent,)
        case Alloc(buffer, _):
            return buffer.shape
        case Block(_, axes, bindings, reads, writes, _, _, predicate, _):
            ranges = tuple(expr for region in (*reads, *writes) for expr in _range_exprs(region))
            return (*(axis.extent for axis in axes), *bindings, predicate, *ranges)
        case Call(_, _, args):
            return tuple(expr for region in args for expr in _range_exprs(region))
        case Seq() | Barrier():
            return ()


def _range_exprs(region: Region) -> Iterator[Expr]:
    for start, extent in region.ranges:
        yield start
        yield extent


def free_vars(stmt: Stmt) -> frozenset[Var]:
    """The free variables of ``stmt``: loops around it, axes of a block around it, run-time extents."""
    inner: frozenset[Var] = frozenset[Var]().union(*map(free_vars, children(stmt)))
    match stmt:
        case Loop(var, extent, _, _):
            return (inner - {var}) | symbolic.free_vars(extent)
        case Block(_, axes, bindings, reads, writes, _, _, predicate, _):
            ranges = (expr for region in (*reads, *writes) for expr in _range_exprs(region))
            inside = inner.union(*map(symbolic.free_vars, ranges)) - {axis.var for axis in axes}
            outside = (predicate, *bindings, *(axis.extent for axis in axes))
            return inside.union(*map(symbolic.free_vars, outside))
        case _:
            return inner.union(*map(symbolic.free_vars, own_exprs(stmt)))


def buffers(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that ``stmt`` mentions, each once, in program order."""
    found: dict[Buffer, None] = {}
    for node in walk(stmt):
        match node:
            case Store(buffer, _, _) | Alloc(buffer, _):
                found[buffer] = None
            case Stores(stores):
                found.update(dict.fromkeys(store.buffer for store in stores))
            case Block(reads=reads, writes=writes):
                found.update(dict.fromkeys(region.buffer for region in (*reads, *writes)))
            case Call(_, _, args):
                found.update(dict.fromkeys(region.buffer for region in args))
            case _:
                pass
        found.update(dict.fromkeys(read_buffers(*own_exprs(node))))
    return tuple(found)


def mentions(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether ``stmt`` uses or allocates ``buffer``; for blocks, by their regions."""
    around, stmt = allocations(stmt)
    if any(alloc.buffer == buffer or buffer in read_buffers(*own_exprs(alloc)) for alloc in around):
        return True
    match stmt:
        case Block(bindings=bindings, reads=reads, writes=writes, predicate=predicate):
            declared = any(region.buffer == buffer for region in (*reads, *writes))
            return declared or buffer in read_buffers(predicate, *bindings)
        case Store() | Stores() | Call():
            return buffer in buffers(stmt)
        case _:
            return buffer in read_buffers(*own_exprs(stmt)) or any(mentions(s, buffer) for s in children(stmt))


def read_buffers(*exprs: Expr) -> tuple[Buffer, ...]:
    """The buffers that expressions read, each once, in order of first use."""
    sources = [node.source for expr in exprs if expr.has_reads for node in symbolic.reads_in(expr)]
    return tuple(dict.fromkeys([source for source in sources if isinstance(source, Buffer)]))


def transform_exprs(stmt: Stmt, change: ChangeExpr, change_buffer: ChangeBuffer = lambda buffer: buffer) -> Stmt:
    """``stmt`` with ``change`` applied to every expression in it (whole indices, values, extents, bindings ...).

    ``change_buffer`` is applied to every buffer outside of expressions; reads inside them are up to ``change``. Loops
    and stores in which nothing changes stay the same objects.
    """

    def region(old: Region) -> Region:
        return Region(change_buffer(old.buffer), tuple((change(start), change(extent)) for start, extent in old.ranges))

    def store(old: Store) -> Store:
        buffer, indices, value = change_buffer(old.buffer), tuple([change(i) for i in old.indices]), change(old.value)
        is_same = buffer is old.buffer and value is old.value and all(map(operator.is_, indices, old.indices))
        return old if is_same else Store(buffer, indices, value)

    def go(old: Stmt) -> Stmt:
        around, inner = allocations(old)
        result = inside_of(inner)
        for alloc in reversed(around):
            result = Alloc(change_buffer(alloc.buffer), result)
        return result

    def inside_of(old: Stmt) -> Stmt:
        match old:
            case Store():
                return store(old)
            case Loop(var, extent, body, kind):
                new, inside = change(extent), go(body)
                return old if new is extent and inside is body else Loop(var, new, inside, kind)
            case Stores(stores):
                return Stores(tuple(map(store, stores)))
            case Seq(statements):
                parts = tuple([go(inner) for inner in statements])
                return old if all(map(operator.is_, parts, statements)) else seq(*parts)
            case If(condition, then, otherwise):
                return If(change(condition), go(then), None if otherwise is None else go(otherwise))
            case Alloc(buffer, body):
                return Alloc(change_buffer(buffer), go(body))
            case Call(kind, callee, args, outputs):
                return Call(kind, callee, tuple(map(region, args)), outputs)
            case Barrier():
                return old
            case Block(name, axes, bindings, reads, writes, body, init, predicate, annotations):
                return Block(
                    name,
                    tuple(IterVar(axis.var, change(axis.extent), axis.kind) for axis in axes),
                    tuple(map(change, bindings)),
                    tuple(map(region, reads)),
                    tuple(map(region, writes)),
                    go(body),
                    None if init is None else go(init),
                    change(predicate),
                    annotations,
                )

    return go(stmt)


def substitute(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """``stmt`` with variables replaced, also in the shapes of buffers. Loops and axes keep the variables they bind.

    No loop or axis in ``stmt`` may shadow one of the variables; the verifier checks that no name is shadowed.
    """
    if not values:
        return stmt
    changed: dict[Buffer, Buffer] = {}

    def buffer(old: Buffer) -> Buffer:
        if old not in changed:
            shape = tuple(symbolic.substitute(extent, values) for extent in old.shape)
            changed[old] = old if shape == old.shape else Buffer(old.name, old.dtype, shape, old.memory)
        return changed[old]

    def change(expr: Expr) -> Expr:
        moved = symbolic.substitute(expr, values)
        if values.keys().isdisjoint(expr.shape_variables):
            return moved
        return symbolic.transform_reads(moved, lambda node: _moved_read(node, buffer))

    return transform_exprs(stmt, change, buffer)


def replace_buffers(stmt: Stmt, replacements: Mapping[Buffer, Buffer]) -> Stmt:
    """``stmt`` with buffers replaced by others of the same rank."""

    def buffer(old: Buffer) -> Buffer:
        return replacements.get(old, old)

    def change(expr: Expr) -> Expr:
        return symbolic.transform_reads(expr, lambda node: _moved_read(node, buffer))

    return transform_exprs(stmt, change, buffer) if replacements else stmt


def _moved_read(node: Read, change: ChangeBuffer) -> Expr | None:
    if not isinstance(node.source, Buffer):
        return None
    source = change(node.source)
    return None if source is node.source else Read(source, node.indices)


def rename_loops(stmt: Stmt, fresh: Callable[[str], str]) -> Stmt:
    """``stmt`` with the loops in it renamed by ``fresh``."""

    def leave(node: Stmt) -> Stmt | None:
        if not isinstance(node, Loop):
            return None
        var = Var(fresh(node.var.name), node.var.dtype)
        return None if var == node.var else Loop(var, node.extent, substitute(node.body, {node.var: var}), node.kind)

    return transform_stmts(stmt, leave)


def rename_allocs(stmt: Stmt, fresh: Callable[[str], str]) -> Stmt:
    """``stmt`` with the buffers allocated in it renamed by ``fresh``."""

    def leave(node: Stmt) -> Stmt | None:
        if not isinstance(node, Alloc):
            return None
        old = node.buffer
        buffer = Buffer(fresh(old.name), old.dtype, old.shape, old.memory)
        return Alloc(buffer, replace_buffers(node.body, {old: buffer}))

    return transform_stmts(stmt, leave)
