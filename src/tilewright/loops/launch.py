"""Launches: loop nests that run as a grid of blocks of threads; their resources and rules.

A launch is an outermost loop over blocks or threads. It begins with its loops over blocks, directly in one another.
Each loop over threads inside is a phase, in which thread ``i`` of the block runs iteration ``i``; thread 0 of an axis
runs statements outside of all loops over that axis. A program has the semantics of serial loops if no thread reads an
element before it is stored: a ``Barrier``, outside of the loops over threads, makes all of them wait.

Buffers in a memory of blocks are allocated outside of the loops over threads. A buffer in a memory of threads that is
allocated there, too, is distributed: each thread has its own elements, and accesses no other ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.loops.ir import Alloc, Barrier, Buffer, If, Loop, LoopKind, Stmt
from tilewright.loops.memory import Memory, Sharing
from tilewright.loops.program import Program
from tilewright.loops.visit import allocations, buffers, children, read_buffers, walk
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, Const, Expr, Extent, const, maximum
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.traversal import free_vars

BLOCKS = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)
THREADS = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)
Sizes = tuple[Expr, Expr, Expr]
"""Extents along x, y, z."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The resources of one launch."""

    grid: Sizes
    threads: Sizes
    """Threads of each block. In a loop over fewer, the others wait."""
    memory: tuple[tuple[Memory, Expr], ...]
    """Bytes per block of each memory of blocks: the sum of all allocations, whatever their lifetimes."""
    nest: Loop


@dataclass(frozen=True, slots=True)
class Problem:
    """A violation of a rule of launches, and its place."""

    reason: str
    place: Loop | None = None


def launches(program: Program) -> tuple[Launch, ...]:
    """The launches of ``program``, in order. Requires a legal program (``problems`` finds none)."""
    return tuple(map(_launch, nests(program.body)))


def nests(stmt: Stmt) -> Iterator[Loop]:
    """The outermost loops over blocks or threads in ``stmt``."""
    _, stmt = allocations(stmt)
    if isinstance(stmt, Loop) and (stmt.kind.is_block or stmt.kind.is_thread):
        yield stmt
    else:
        for child in children(stmt):
            yield from nests(child)


def _launch(nest: Loop) -> Launch:
    sizes: dict[LoopKind, Expr] = {}
    memory: dict[Memory, Expr] = {}
    for node in walk(nest):
        if isinstance(node, Loop):
            known = sizes.get(node.kind, node.extent)
            sizes[node.kind] = known if known == node.extent else _larger(known, node.extent)
        elif isinstance(node, Alloc) and node.buffer.memory.sharing is Sharing.BLOCK:
            memory[node.buffer.memory] = memory.get(node.buffer.memory, const(0)) + bytes_of(node.buffer)
    x, y, z = (sizes.get(kind, ONE) for kind in BLOCKS)
    tx, ty, tz = (sizes.get(kind, ONE) for kind in THREADS)
    return Launch((x, y, z), (tx, ty, tz), tuple(memory.items()), nest)


def _larger(a: Expr, b: Expr) -> Expr:
    return const(max(int(a.value), int(b.value))) if isinstance(a, Const) and isinstance(b, Const) else maximum(a, b)


def bytes_of(buffer: Buffer) -> Expr:
    """The bytes of ``buffer`` in its memory."""
    size: Expr = const(buffer.dtype.itemsize)
    for extent in buffer.shape:
        size = size * extent
    unit = buffer.memory.alignment
    return simplify((size + (unit - 1)) // unit * unit, Bounds())


# Rules ---------------------------------------------------------------------------------------------------------------


def problems(program: Program) -> Iterator[Problem]:
    """Violations of the rules of launches in a finished program."""
    yield from structural_problems(program)
    yield from memory_problems(program)


def structural_problems(program: Program) -> Iterator[Problem]:
    """Violations by loops, barriers and allocations in them; these rules hold after every primitive."""
    yield from _structure(program.body, ())


def _structure(stmt: Stmt, around: tuple[Loop | If, ...]) -> Iterator[Problem]:
    allocated, stmt = allocations(stmt)
    for alloc in allocated:
        yield from _alloc(alloc, around)
    if isinstance(stmt, Barrier):
        yield from _barrier(around)
    if isinstance(stmt, Loop):
        if stmt.kind.is_of_device or stmt.kind is LoopKind.PARALLEL:
            yield from _loop(stmt, around)
        around = (*around, stmt)
    elif isinstance(stmt, If):
        around = (*around, stmt)
    for child in children(stmt):
        yield from _structure(child, around)


def _loop(loop: Loop, around: tuple[Loop | If, ...]) -> Iterator[Problem]:
    loops = [outer for outer in around if isinstance(outer, Loop)]
    launch = [outer for outer in loops if outer.kind.is_block or outer.kind.is_thread]
    if loop.kind is LoopKind.PARALLEL:
        if launch:
            yield Problem(f"`{loop.var}` is parallel inside of a launch, whose threads have no workers", loop)
        return
    odd = next((o for o in loops if o.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED)), None)
    if odd is not None:
        yield Problem(f"`{loop.var}` is {loop.kind.value} inside of the {odd.kind.value} loop `{odd.var}`", loop)
    if loop.kind is LoopKind.VIRTUAL_THREAD:
        return
    if any(outer.kind is loop.kind for outer in loops):
        reason = f"`{loop.var}` is inside of another loop over {loop.kind.value}: a thread has one place along it"
        yield Problem(f"{reason}; put the loops over threads further in", loop)
    if loop.kind.is_block and launch and not (launch[-1].kind.is_block and launch[-1].body is loop):
        yield Problem(f"`{loop.var}` is not directly inside of the other loops over blocks: a launch starts once", loop)
    if not all(isinstance(var, Extent) for var in free_vars(loop.extent)):
        yield Problem(f"`{loop.var}` has {loop.extent} iterations, which is not known when it is launched", loop)


def _barrier(around: tuple[Loop | If, ...]) -> Iterator[Problem]:
    loops = [outer for outer in around if isinstance(outer, Loop)]
    if not any(loop.kind.is_block or loop.kind.is_thread for loop in loops):
        yield Problem("a barrier is outside of all launches; there are no threads to wait for")
    for outer in around:
        if isinstance(outer, Loop) and outer.kind.is_thread:
            reason = f"a barrier is inside of `{outer.var}`: threads that have no iteration there would never reach it"
            yield Problem(f"{reason}; it stands outside of the loops over threads", outer)
        elif isinstance(outer, If) and any(b.memory.sharing is Sharing.THREAD for b in read_buffers(outer.condition)):
            yield Problem(f"a barrier depends on `{outer.condition}`, on which threads may differ")


def memory_problems(program: Program) -> Iterator[Problem]:
    """Memories or sizes that a block lacks; in an unfinished schedule, buffers may be outside of their launch."""
    found = list(nests(program.body))
    for stmt in walk(program.body):
        if not isinstance(stmt, Alloc) or stmt.buffer.memory.sharing is Sharing.ALL:
            continue
        user = next((nest for nest in found if stmt.buffer in buffers(nest)), None)
        is_outside = user is None or not any(stmt is node for node in walk(user))
        if is_outside and (user is not None or stmt.buffer.memory.sharing is Sharing.BLOCK):
            reason = f"{_what(stmt)} outside of all blocks; compute its producer inside of the loops over blocks"
            yield Problem(reason, user)
    for launch in map(_launch, found):
        for memory, size in launch.memory:
            if memory.capacity is not None and isinstance(size, Const) and int(size.value) > memory.capacity:
                reason = f"a block allocates {size} bytes in {memory.name}, which has {memory.capacity}"
                yield Problem(reason, launch.nest)


def _alloc(stmt: Alloc, around: tuple[Loop | If, ...]) -> Iterator[Problem]:
    loops = [outer for outer in around if isinstance(outer, Loop)]
    launch = next((loop for loop in loops if loop.kind.is_block or loop.kind.is_thread), None)
    thread = next((loop for loop in loops if loop.kind.is_thread), None)
    if launch is not None and stmt.buffer.memory.sharing is Sharing.ALL:
        reason = "in a launch, where nobody can; allocate it around, or set its scope to a memory of blocks"
        yield Problem(f"{_what(stmt)} {reason}", launch)
    if thread is not None and stmt.buffer.memory.sharing is Sharing.BLOCK:
        yield Problem(f"{_what(stmt)} inside of `{thread.var}`, and all threads of a block share it", thread)


def _what(stmt: Alloc) -> str:
    return f"{stmt.buffer.name}, in {stmt.buffer.memory.name}, is allocated"
