"""Packed constants: weights stored at compile time in the order in which the kernel reads them.

The layout follows from the te program that reads them: the last dimension of the result becomes the last one of the
weight, in blocks as wide as the register tile, and a reduction along a blocked dimension is blocked likewise. So
consecutive steps of a kernel read consecutive memory.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.kernels.relayout import Layouts, block_factors
from tilewright.loops.program import Program
from tilewright.schedule.index_map import IndexMap, digit
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import ONE, ZERO, Binary, Cast, Const, Expr, Read, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars
from tilewright.tensor.ir import Compute, Tensor, reads_of, topological_order


@dataclass(frozen=True, slots=True)
class Matrix:
    """A constant operand of a sum of products: one matrix, or several that are used one after the other."""

    columns: int | None
    """None: known only at run time."""
    rows: int | None
    """Rows of the result: how often each element is used. None: known only at run time."""
    reduction: int
    dtype: DType
    sums: DType
    """The dtype of the sums."""
    size: int
    """Elements of all matrices together."""


Widths = Callable[[Matrix], int]
"""The number of columns in a panel: that of the register tile."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbours along a reduction axis whose products one instruction adds up."""

    axis: Var
    size: int


Groups = Callable[[Compute, Tensor, Layouts], Group | None]
"""The groups of a sum of products by a constant weight, for data in their layouts; None without an instruction."""


Empty = Callable[[tuple[int, ...], np.dtype[np.generic]], Array]
"""Allocates an uninitialized C-contiguous array of a shape and dtype."""


def pack(array: Array, index_map: IndexMap, empty: Empty = np.empty) -> Array:
    """``array`` stored by ``index_map`` in an array from ``empty``; padding is zero."""
    digits = _Digits.of(index_map, array.shape)
    padded = array
    if digits.padded != array.shape:
        padded = np.zeros(digits.padded, array.dtype)
        padded[tuple(map(slice, array.shape))] = array
    split = padded.reshape([digits.extents[position] for position in digits.order])
    result = empty(digits.stored, array.dtype)
    result.reshape(digits.extents)[...] = split.transpose(np.argsort(digits.order))
    return result


def stored_by(program: Program, arrays: Mapping[str, Array], empty: Empty = np.empty) -> dict[str, Array]:
    """``arrays``, by the names of inputs of the scheduled ``program``, each in the layout that it wants."""
    layouts = {name: program.layout(name) for name in arrays}
    return {
        name: pack(array, IndexMap.parse(layouts[name]), empty) if layouts[name] else array
        for name, array in arrays.items()
    }


def unpack(stored: Array, index_map: IndexMap, shape: tuple[int, ...]) -> Array:
    """The inverse of ``pack``: the array of ``shape`` from its stored form."""
    digits = _Digits.of(index_map, shape)
    padded = stored.reshape(digits.extents).transpose(digits.order).reshape(digits.padded)
    return padded[tuple(map(slice, shape))]


@dataclass(frozen=True, slots=True)
class _Digits:
    """An index map over a box as a transposition, with a dimension for each digit."""

    extents: tuple[int, ...]
    """The extents of the digits, in stored order."""
    order: tuple[int, ...]
    """The positions of the digits among ``extents``, in order of the variables, most significant first."""
    padded: tuple[int, ...]
    """The extents of the variables, rounded up to full digits."""
    stored: tuple[int, ...]

    @staticmethod
    def of(index_map: IndexMap, shape: tuple[int, ...]) -> "_Digits":
        """Raises ``BadInput`` if ``index_map`` is not injective on an array of ``shape``."""
        box = tuple(map(const, shape))
        results = index_map.shape(box)
        index_map.inverse(box, [ZERO] * len(results))  # only to raise the error
        places = [place for result in index_map.places(box) for place in reversed(result)]
        extents = tuple(_number(place.extent) for place in places)
        own = [
            sorted((p for p, place in enumerate(places) if place.digit.var == v), key=lambda p: -places[p].digit.scale)
            for v in index_map.variables
        ]
        order = tuple(position for positions in own for position in positions)
        padded = tuple(math.prod(extents[position] for position in positions) for positions in own)
        return _Digits(extents, order, padded, tuple(map(_number, results)))


def _number(extent: Expr) -> int:
    assert isinstance(extent, Const), "constants have static shapes"
    return int(extent.value)


def constant_layouts(
    outputs: Sequence[Tensor],
    constants: Collection[Tensor],
    layouts: Layouts,
    widths: Widths,
    groups: Groups,
    steps: int = 0,
) -> dict[Tensor, IndexMap]:
    """Layouts for the ``constants`` that a blocked tensor, or a matrix product, reads along its vector axis. ``steps``:
    a power of two, of which a divisor is the steps of a reduction that are written out; 0: none are."""
    found: dict[Tensor, IndexMap] = {}
    for op in topological_order(outputs):
        if isinstance(op, Compute):
            for source, indices in reads_of(op):
                index_map = _layout(op, source, indices, layouts, widths, steps) if source in constants else None
                if index_map is not None:
                    group = groups(op, source, layouts)
                    found.setdefault(source, index_map if group is None else _in_groups(index_map, indices, group))
    return found


def _layout(
    op: Compute, source: Tensor, indices: tuple[Expr, ...], layouts: Layouts, widths: Widths, steps: int
) -> IndexMap | None:
    blocks = _blocked_axes(op, layouts)
    if blocks:
        return _following(indices, blocks | _stepped(op, source, steps, blocks))
    return _panels(op, source, indices, widths)


def _in_groups(index_map: IndexMap, indices: tuple[Expr, ...], group: Group) -> IndexMap:
    """``index_map`` with the positions in groups along the group's axis last."""
    variable = next(v for v, i in zip(index_map.variables, indices, strict=True) if i == group.axis)
    places = [place for place, r in enumerate(index_map.results) if (d := digit(r)) is not None and d.var == variable]
    last = places[-1]
    results = [r // group.size if place == last else r for place, r in enumerate(index_map.results)]
    return IndexMap(index_map.variables, (*results, variable % group.size))


def _blocked_axes(op: Compute, layouts: Layouts) -> dict[Var, int]:
    """The axes of ``op`` that its own layout, or that of its inputs, blocks; those of its own come first."""
    own = next((index_map for tensor, index_map in layouts.items() if tensor.op is op), None)
    if own is None:
        return {}
    blocks = _blocks(own, [axis.var for axis in op.axes])
    return {axis: lanes for axis, lanes in blocks.items() if isinstance(axis, Var)} | block_factors(op, layouts)


def _stepped(op: Compute, source: Tensor, steps: int, blocks: Mapping[Var, int]) -> dict[Var, int]:
    """The axis before the taps of a window, and the steps of it that are written out: rows slide over taps, so that no
    steps of these are. In blocks, all taps of a block are read one after the other."""
    own = {index for read, indices in reads_of(op) if read == source for index in indices if isinstance(index, Var)}
    rows = {axis.var for axis in op.axes} - own
    others = [index for read, indices in reads_of(op) if read != source for index in indices]
    taps = {v for index in others if free_vars(index) & rows for v in free_vars(index)}
    loops = [axis for axis in op.reduce_axis if axis.extent != ONE]
    plain = [axis for axis in loops if axis.var not in taps]
    if not plain or plain[-1] == loops[-1] or plain[-1].var in blocks:
        return {}
    extent = _extent(plain[-1])
    count = 1 if extent is None else math.gcd(extent, steps)
    return {plain[-1].var: count} if 1 < count <= steps else {}


def _blocks(index_map: IndexMap, indices: Sequence[Expr]) -> dict[Expr, int]:
    """The indices that ``index_map`` blocks, and the block sizes."""
    digits = [d for d in map(digit, index_map.results) if d is not None and d.modulus is not None]
    at = dict(zip(index_map.variables, indices, strict=True))
    return {at[d.var]: d.modulus or 1 for d in digits}


def _following(indices: tuple[Expr, ...], blocks: Mapping[Var, int]) -> IndexMap | None:
    """Block the dimensions that are read at a blocked axis likewise; positions in blocks last, those of results at the
    very end."""
    variables = tuple(Var(f"d{position}") for position in range(len(indices)))
    at = {i: v for v, i in zip(variables, indices, strict=True) if isinstance(i, Var)}
    factors = {at[axis]: lanes for axis, lanes in blocks.items() if axis in at}
    if not factors:
        return None
    inner = reversed(factors)
    # Blocks of a matrix' columns come first, so that each is read from one end to the other.
    order = sorted(variables, key=lambda v: v not in factors) if len(variables) == 2 else variables
    outer = (v // factors[v] if v in factors else v for v in order)
    return IndexMap(variables, (*outer, *(v % factors[v] for v in inner)))


def _panels(op: Compute, source: Tensor, indices: tuple[Expr, ...], widths: Widths) -> IndexMap | None:
    """Constant matrices of a sum of products, in panels of columns as wide as the register tile.

    A panel holds the whole reduction, in the order of its axes.
    """
    if op.reduction is None or not op.axes or len(indices) < 2 or not _is_panel(op, source):
        return None
    reduced, column = [axis.var for axis in op.reduction.axes], op.axes[-1].var
    if indices[-2:] == (column, reduced[-1]) and _fills_word(op, source):
        return None  # who made it has packed it
    if not {column, *reduced} <= set(indices) or indices[-1] not in (column, reduced[-1]):
        return None
    variables = dict(zip(indices, (Var(f"d{position}") for position in range(len(indices))), strict=True))
    if len(variables) < len(indices):
        return None
    size = math.prod(_number(extent) for extent in source.shape)
    reduction = math.prod(_number(axis.extent) for axis in op.reduction.axes)
    sums = op.reduction.sources[0].dtype
    lanes = widths(Matrix(_extent(op.axes[-1]), _rows(op, indices), reduction, source.dtype, sums, size))
    outer = [variable for index, variable in variables.items() if index != column and index not in reduced]
    inner = [variables[index] for index in reduced]
    n = variables[column]
    return IndexMap(tuple(variables.values()), (*outer, n // lanes, *inner, n % lanes))


def _fills_word(op: Compute, source: Tensor) -> bool:
    """Whether elements of ``source`` along the last reduction axis are, together, as wide as a sum."""
    assert op.reduction is not None, "a sum of products"
    return source.shape[-1] == const(op.reduction.sources[0].dtype.bits // source.dtype.bits) != const(1)


def _rows(op: Compute, indices: tuple[Expr, ...]) -> int | None:
    """The extent of the last axis before the columns along which the constant is reused; 1 if there is none."""
    used = {variable for index in indices for variable in free_vars(index)}
    again = [axis for axis in op.axes[:-1] if axis.var not in used and _extent(axis) != 1]
    return _extent(again[-1]) if again else 1


def _is_panel(op: Compute, source: Tensor) -> bool:
    """Whether ``source`` is the second factor of the sum of products ``op``."""
    read = second_factor(op)
    return read is not None and read.source is source


def second_factor(op: Compute) -> Read | None:
    """The second factor of ``op``, if it is a sum of products of two elements."""
    match op.reduction.sources[0] if op.reduction else None:
        case Binary(BinaryOp.MUL, Read() | Cast(Read()), Read() as read) | Binary(
            BinaryOp.MUL, Read() | Cast(Read()), Cast(Read() as read)
        ):
            return read
        case _:
            return None


def _extent(axis: IterVar) -> int | None:
    """The extent of an axis; None if it is known only at run time."""
    return int(axis.extent.value) if isinstance(axis.extent, Const) else None
