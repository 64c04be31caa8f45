"""Packed constants: weights laid out at compile time as the kernel will read them.

Which layout is good follows from the te program that reads them: the last dimension of what is computed becomes the
last one of the weight, in blocks as wide as the register tile, and what is reduced along a blocked dimension is blocked
likewise. So consecutive steps of a kernel read consecutive memory.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.kernels.relayout import Layouts, block_factors
from tilewright.schedule.index_map import IndexMap, digit
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import walk
from tilewright.tensor.ir import Compute, Operation, Tensor, topological_order

Widths = Callable[[int | None, int | None, int], int]
"""The register tile's width for the extents (None: unknown) of the vector axis and of the rows, and bytes of an
element."""


def pack(array: NDArray[np.generic], index_map: IndexMap) -> NDArray[np.generic]:
    """``array`` stored by ``index_map``; what is padded is zero."""
    shape = tuple(int(str(extent)) for extent in index_map.shape(tuple(map(const, array.shape))))
    result = np.zeros(shape, array.dtype)
    result[_places(index_map, array.shape)] = array
    return result


def unpack(stored: NDArray[np.generic], index_map: IndexMap, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """The array of ``shape`` that is stored by ``index_map``: undoes ``pack``."""
    return stored[_places(index_map, shape)]


def _places(index_map: IndexMap, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
    """Where each element of an array of ``shape`` is stored."""
    grids = np.ogrid[tuple(slice(0, extent) for extent in shape)]
    where = compile_exprs(index_map.results, index_map.variables)(*grids)
    return tuple(np.broadcast_arrays(*(place.astype(np.int64) for place in where)))


def constant_layouts(
    outputs: Sequence[Tensor], constants: Collection[Tensor], layouts: Layouts, widths: Widths
) -> dict[Tensor, IndexMap]:
    """Layouts for those ``constants`` that a blocked tensor, or a matrix product, reads along its vector axis."""
    found: dict[Tensor, IndexMap] = {}
    for op in topological_order(outputs):
        if isinstance(op, Compute):
            for source, indices in _reads(op, constants):
                index_map = _layout(op, source, indices, outputs, layouts, widths)
                if index_map is not None:
                    found.setdefault(source, index_map)
    return found


def _reads(op: Compute, constants: Collection[Tensor]) -> Iterator[tuple[Tensor, tuple[Expr, ...]]]:
    for node in (node for value in op.values for node in walk(value)):
        if isinstance(node, Read) and isinstance(node.source, Tensor) and node.source in constants:
            yield node.source, node.indices


def _layout(
    op: Compute,
    source: Tensor,
    indices: tuple[Expr, ...],
    outputs: Sequence[Tensor],
    layouts: Layouts,
    widths: Widths,
) -> IndexMap | None:
    blocks = _blocked_axes(op, layouts)
    if blocks:
        return _following(indices, blocks)
    return _panels(op, source, indices, widths)


def _blocked_axes(op: Compute, layouts: Layouts) -> dict[Var, int]:
    """The axes of ``op`` that its own layout, or that of what it reads, cuts in blocks; those of its own come first."""
    own = next((index_map for tensor, index_map in layouts.items() if tensor.op is op), None)
    if own is None:
        return {}
    blocks = _blocks(own, [axis.var for axis in op.axes])
    return {axis: lanes for axis, lanes in blocks.items() if isinstance(axis, Var)} | block_factors(op, layouts)


def _blocks(index_map: IndexMap, indices: Sequence[Expr]) -> dict[Expr, int]:
    """The indices that ``index_map`` cuts in blocks, and the blocks' sizes."""
    digits = [d for d in map(digit, index_map.results) if d is not None and d.modulus is not None]
    at = dict(zip(index_map.variables, indices, strict=True))
    return {at[d.var]: d.modulus or 1 for d in digits}


def _following(indices: tuple[Expr, ...], blocks: Mapping[Var, int]) -> IndexMap | None:
    """Dimensions that are read at a blocked axis are blocked alike; the places in blocks last, those of results at the
    very end."""
    variables = tuple(Var(f"d{position}") for position in range(len(indices)))
    at = {i: v for v, i in zip(variables, indices, strict=True) if isinstance(i, Var)}
    factors = {at[axis]: lanes for axis, lanes in blocks.items() if axis in at}
    if not factors:
        return None
    inner = reversed(factors)
    outer = (v // factors[v] if v in factors else v for v in variables)
    return IndexMap(variables, (*outer, *(v % factors[v] for v in inner)))


def _panels(op: Compute, source: Tensor, indices: tuple[Expr, ...], widths: Widths) -> IndexMap | None:
    """A constant matrix of a sum of products, in panels of columns as wide as the register tile, row after row."""
    if op.reduction is None or len(op.reduction.axes) != 1 or not op.axes or not _is_panel(op, source):
        return None
    k, n = op.reduction.axes[0].var, op.axes[-1].var
    lanes = widths(_extent(op, -1), _extent(op, -2), source.dtype.itemsize)
    row, column = Var("d0"), Var("d1")
    if indices == (k, n):
        return IndexMap((row, column), (column // lanes, row, column % lanes))
    if indices == (n, k):
        return IndexMap((row, column), (row // lanes, column, row % lanes))
    return None


def _is_panel(op: Compute, source: Tensor) -> bool:
    """Whether ``source`` is the second factor of the sum of products that ``op`` is."""
    match op.reduction.sources[0] if op.reduction else None:
        case Binary(BinaryOp.MUL, Read() | Cast(Read()), Read() as read) | Binary(
            BinaryOp.MUL, Read() | Cast(Read()), Cast(Read() as read)
        ):
            return read.source is source
        case _:
            return False


def _extent(op: Operation, position: int) -> int | None:
    """The extent of an axis; 1 if there is none, None if it is known at run time only."""
    if not isinstance(op, Compute) or len(op.axes) < -position:
        return 1
    extent = op.axes[position].extent
    return int(extent.value) if isinstance(extent, Const) else None
