"""What sketch rules ask of a block: the predicates of Zheng et al., "Ansor" (OSDI 2020), section 4.1, on loop programs.

All are about a naive program, or one whose blocks were tiled: they look at axes, not at loops.
"""

from collections.abc import Collection, Sequence
from itertools import combinations, starmap
from math import prod

from tilewright.loops.ir import Block, Buffer, Store
from tilewright.loops.program import Program
from tilewright.schedule.tree import all_blocks, buffers_read, buffers_written, consumers
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Const, Expr, Read, Select, Unary, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import free_vars, reads_in, walk

MOST_CONSTANTS = 64
"""Of a matrix that is written into code."""
POINTS_PER_CORE = 16
"""Parallel pieces of work that a core should have, so that all cores are done at about the same time."""


def extent(expr: Expr) -> int:
    """The number of iterations; 1 where it is known at run time only: sketches are of fixed extents."""
    return int(expr.value) if isinstance(expr, Const) else 1


def points(block: Block, kind: IterKind) -> int:
    """How many points the axes of one kind have."""
    return prod(extent(axis.extent) for axis in block.axes if axis.kind is kind)


def is_reduction(block: Block) -> bool:
    """Whether ``block`` combines several values into one."""
    return any(axis.kind is IterKind.REDUCE for axis in block.axes)


def is_ordered(block: Block) -> bool:
    """Whether ``block`` is a recurrence."""
    return any(axis.kind is IterKind.ORDERED for axis in block.axes)


def is_result(program: Program, block: Block) -> bool:
    """Whether ``block`` writes an output of ``program``."""
    return not buffers_written(block).isdisjoint(program.params)


def is_strictly_inlinable(block: Block) -> bool:
    """Whether the value is cheap, and each element comes from the same place of what is read, or from one shifted."""
    store = block.body
    if is_reduction(block) or is_ordered(block) or not isinstance(store, Store):
        return False
    costly = any(isinstance(node, Select) or _is_function(node) for node in walk(store.value))
    return not costly and all(_is_shift(read, block) for read in reads_in(store.value))


_CHEAP = frozenset({UnaryOp.NEG, UnaryOp.NOT, UnaryOp.ABS})


def _is_function(node: Expr) -> bool:
    is_power = isinstance(node, Binary) and node.op is BinaryOp.POW
    return is_power or (isinstance(node, Unary) and node.op not in _CHEAP)


def _is_shift(read: Read, block: Block) -> bool:
    """Whether each index is one axis and a constant, or a constant; axes in their order, and none twice."""
    order = [axis.var for axis in block.axes]
    found: list[int] = []
    for index in read.indices:
        used = free_vars(index)
        if not used:
            continue
        var = next(iter(used))
        if len(used) > 1 or var not in order or not _is_moved(index, var):
            return False
        found.append(order.index(var))
    return found == sorted(set(found))


def _is_moved(index: Expr, var: Var) -> bool:
    match index:
        case Var():
            return index == var
        case Binary(BinaryOp.ADD | BinaryOp.SUB, left, Const()):
            return left == var
        case _:
            return False


def overlaps(block: Block) -> frozenset[Buffer]:
    """The buffers that ``block`` reads at several places for each of its points, as a stencil does."""
    if not isinstance(block.body, Store):
        return frozenset()
    places: dict[Buffer, set[tuple[Expr, ...]]] = {}
    for read in reads_in(block.body.value):
        if isinstance(read.source, Buffer):
            places.setdefault(read.source, set()).add(read.indices)
    found = (buffer for buffer, own in places.items() if any(starmap(_is_beside, combinations(own, 2))))
    return frozenset(found) - buffers_written(block)


def is_stencil(block: Block) -> bool:
    """Whether each point of ``block`` is computed from neighbours, in any order."""
    return all(axis.kind is IterKind.SPATIAL for axis in block.axes) and bool(overlaps(block))


def _is_beside(one: tuple[Expr, ...], other: tuple[Expr, ...]) -> bool:
    """Whether two places are some steps of an axis apart."""
    moved = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return all(free_vars(a) and free_vars(a) == free_vars(b) for a, b in moved)


def operations(block: Block) -> int:
    """How many operations make one element, besides reading it."""
    nodes = walk(block.body.value) if isinstance(block.body, Store) else ()
    return sum(isinstance(node, Unary | Binary | Select) for node in nodes)


def has_reuse(block: Block) -> bool:
    """Whether tiling pays: a reduction of which an operand does not depend on some axis, or a product of two such."""
    spatial = {axis.var for axis in block.axes if axis.kind is IterKind.SPATIAL and extent(axis.extent) > 1}
    missing = [spatial - used for used in _used_by_reads(block)]
    without = sum(bool(axes) for axes in missing)
    return without >= 1 if is_reduction(block) else without >= 2


def _used_by_reads(block: Block) -> list[frozenset[Var]]:
    """The variables in the indices of each read of what ``block`` does not write; by buffer, if it is no statement."""
    written = buffers_written(block)
    if isinstance(block.body, Store):
        reads = dict.fromkeys(read for read in reads_in(block.body.value) if read.source not in written)
        return [frozenset[Var]().union(*map(free_vars, read.indices)) for read in reads]
    sources = [region for region in block.reads if region.buffer not in written]
    return [frozenset[Var]().union(*(free_vars(start) for start, _ in region.ranges)) for region in sources]


def fusible_consumer(program: Program, block: Block, placed: Collection[str] = ()) -> Block | None:
    """The one block that reads what ``block`` makes, if it computes as many elements, each from its own.

    ``placed``: blocks whose place is fixed.
    """
    readers = consumers(program, block)
    if len(readers) != 1 or readers[0].name in placed or is_result(program, block):
        return None
    reader, written = readers[0], buffers_written(block)
    spatial = [axis for axis in block.axes if axis.kind is IterKind.SPATIAL]
    if is_reduction(reader) or [a.extent for a in reader.axes] != [a.extent for a in spatial]:
        return None
    regions = [region for region in reader.reads if region.buffer in written]
    own = tuple(axis.var for axis in reader.axes if extent(axis.extent) > 1)
    kept = all(tuple(s for s, _ in region.ranges if not free_vars(s).isdisjoint(own)) == own for region in regions)
    return reader if kept else None


def is_constant(program: Program, block: Block) -> bool:
    """Whether ``block`` writes down a small matrix of constants: numbers that follow from the indices alone."""
    size = points(block, IterKind.SPATIAL)
    is_plain = not block.reads and isinstance(block.body, Store) and not is_result(program, block)
    return is_plain and all(axis.kind is IterKind.SPATIAL for axis in block.axes) and size <= MOST_CONSTANTS


def constants_of(program: Program, block: Block) -> tuple[Block, ...]:
    """The blocks that write down the matrices of constants that ``block`` adds up products with."""
    read = buffers_read(block)
    made = [b for b in all_blocks(program.body) if is_constant(program, b) and buffers_written(b) & read]
    return tuple(made) if is_reduction(block) and isinstance(block.body, Store) else ()


def constant_axes(block: Block, constants: Sequence[Block]) -> frozenset[Var]:
    """The axes of ``block`` that index one of the matrices ``constants``."""
    made = frozenset[Buffer]().union(*map(buffers_written, constants))
    starts = (start for region in block.reads if region.buffer in made for start, _ in region.ranges)
    return frozenset[Var]().union(*map(free_vars, starts)) & {axis.var for axis in block.axes}


def wants_rfactor(block: Block, cores: int) -> bool:
    """Whether a reduction has too few elements for all cores, or is long where nothing is used again."""
    if not is_reduction(block) or not isinstance(block.body, Store):
        return False
    space, steps = points(block, IterKind.SPATIAL), points(block, IterKind.REDUCE)
    if has_reuse(block):
        return space <= steps and space <= POINTS_PER_CORE * cores
    return steps > max(cores, 1)
