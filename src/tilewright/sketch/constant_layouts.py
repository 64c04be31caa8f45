"""Layouts of constants: a constant is stored once, in the order in which the loops of a tile read it.

In ``C[i, j] += A[i, k] * W[j, k]``, tiled with 16 lanes along ``j`` around 4 steps of ``k``, the weights ``W`` become
``W'[j // 16, k // 4, k % 4, j % 16]``: lanes read a vector, and one after the other is read from one end of the memory
to the other. The index of each dimension is taken apart into what each loop adds to it. (Zheng et al., OSDI 2020: the
layout rewrite of constant tensors.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.loops.ir import Block, Buffer, Store
from tilewright.loops.program import Program
from tilewright.schedule.index_map import Digit, IndexMap, digit
from tilewright.schedule.tree import BlockRef, Location, block_at, bounds_at
from tilewright.symbolic.expr import Const, Expr, Var
from tilewright.symbolic.simplify import linear_form
from tilewright.symbolic.traversal import free_vars, reads_in


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a loop along an axis: ``first`` points apart, up to ``end``."""

    axis: Var
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a loop adds to the index of a dimension: ``dimension // first % (end // first)``."""

    dimension: int
    first: int
    end: int

    def of(self, variable: Var, size: int) -> Expr:
        """The digit of ``variable``, which runs to ``size``."""
        shifted = variable if self.first == 1 else variable // self.first
        return shifted if self.end == size else shifted % (self.end // self.first)


def order_of_loops(program: Program, block: BlockRef, buffer: str) -> IndexMap | None:
    """The map that stores ``buffer`` in the order in which the loops around ``block`` read it.

    Dimensions whose index is no part of one axis are kept whole, outside of the others. None if it is stored so
    already, or if tiles of an axis end where the buffer's own parts do not.
    """
    place = block_at(program, block)
    indices = _indices(place.stmt, buffer)
    source = next(param for param in program.params if param.name == buffer)
    sizes = [int(extent.value) for extent in source.shape if isinstance(extent, Const)]
    pieces = _merged([piece for steps in _steps(program, place) for piece in _pieces(steps, indices, sizes)])
    whole = [d for d, size in enumerate(sizes) if size > 1 and _part(indices[d], place.stmt) is None]
    pieces = [*(_Piece(d, 1, sizes[d]) for d in whole), *pieces]
    covered = [prod(piece.end // piece.first for piece in pieces if piece.dimension == d) for d in range(len(sizes))]
    if covered != sizes or pieces == [_Piece(d, 1, size) for d, size in enumerate(sizes) if size > 1]:
        return None
    variables = tuple(Var(f"d{d}") for d in range(len(sizes)))
    return IndexMap(variables, tuple(piece.of(variables[piece.dimension], sizes[piece.dimension]) for piece in pieces))


def _indices(block: Block, buffer: str) -> tuple[Expr, ...]:
    assert isinstance(block.body, Store), "a tile is of one statement"
    reads = reads_in(block.body.value)
    return next(read.indices for read in reads if isinstance(read.source, Buffer) and read.source.name == buffer)


def _steps(program: Program, place: Location[Block]) -> Iterator[_Steps]:
    """The loops around a block that run more than once, outermost first, and the axis that each drives."""
    bounds = bounds_at(program, place)
    for loop in place.loops:
        for axis, binding in zip(place.stmt.axes, place.stmt.bindings, strict=True):
            if loop.var in free_vars(binding) and isinstance(loop.extent, Const) and int(loop.extent.value) > 1:
                first = linear_form(binding, bounds).coefficient(loop.var)
                yield _Steps(axis.var, first, first * int(loop.extent.value))


def _part(index: Expr, block: Block) -> Digit | None:
    """``index`` as a part of an axis of ``block``."""
    found = digit(index)
    return found if found is not None and found.var in {axis.var for axis in block.axes} else None


def _pieces(steps: _Steps, indices: Sequence[Expr], sizes: Sequence[int]) -> list[_Piece]:
    """What a loop adds to the indices, those with the larger steps along its axis first."""
    found: list[tuple[int, _Piece]] = []
    for dimension, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        part = digit(index)
        if part is None or part.var != steps.axis:
            continue
        first = max(steps.first, part.scale)
        end = min(steps.end, part.scale * size)
        if first < end and first % part.scale == 0 and end % first == 0:
            found.append((first, _Piece(dimension, first // part.scale, end // part.scale)))
    return [piece for _, piece in sorted(found, key=lambda pair: -pair[0])]


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Neighbours that are parts of one dimension, one inside of the other, become one."""
    merged: list[_Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last is not None and last.dimension == piece.dimension and last.first == piece.end:
            merged[-1] = _Piece(piece.dimension, piece.first, last.end)
        else:
            merged.append(piece)
    return merged
