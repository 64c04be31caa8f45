"""Constant tables of positions as arithmetic: ``0, 0, 1, 1, 1, 2, 2, 2, 3`` is ``min((i + 1) // 3, 3)``.

Resizing by a factor, and gathers that take every second row, read positions that are an affine function of the index,
divided, and clamped to an interval. As arithmetic they need no loads, and the code generator sees which lanes read
side by side, so that it loads vectors and permutes them, where positions from a table take a gather.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType
from tilewright.graph import Array, Graph, Value
from tilewright.kernels.relayout import operations, output_of, rewired, with_values
from tilewright.symbolic.check import Check
from tilewright.symbolic.expr import Cast, Const, Expr, Read, as_expr, cast, maximum, minimum
from tilewright.symbolic.traversal import transform
from tilewright.tensor.ir import Compute, Tensor

MOST_DIVISOR = 16
"""Of positions that are tried: the denominators of most scales are much smaller."""
MOST_COLUMNS = 16
"""Elements in the rows of a table with two dimensions: taps of an interpolation."""
MOST_ELEMENTS = 1 << 14
"""Of a table that is tried."""


@dataclass(frozen=True, slots=True)
class IndexTable:
    """The element in row ``i`` and column ``t`` is ``(i * step + shift) // divisor + t * along``, clamped to
    ``least .. most``. Tables with one dimension have no columns."""

    step: int
    shift: int
    divisor: int
    along: int
    least: int
    most: int
    clamps: bool
    """Whether it differs without the limits."""

    def at(self, indices: Sequence[Expr]) -> Expr:
        """The element at ``indices``."""
        row, *columns = indices
        place = (row * self.step + self.shift) // self.divisor
        for column in columns:
            place += column * self.along
        return maximum(minimum(place, as_expr(self.most)), as_expr(self.least)) if self.clamps else place


def index_tables(values: Sequence[Value], graph: Graph) -> dict[Value, IndexTable]:
    """Those of ``values`` that are constants of such a form."""
    arrays = {value: graph.constants[value] for value in values if value in graph.constants and _may_index(value.dtype)}
    found = {value: index_table(array) for value, array in arrays.items()}
    return {value: table for value, table in found.items() if table is not None}


def _may_index(dtype: DType) -> bool:
    """Whether it is one of the types that operators take indices in."""
    return dtype.is_int and dtype.bits >= 32


def index_table(array: Array) -> IndexTable | None:
    """``array`` as arithmetic; None if it has no such form, or negative elements."""
    if array.ndim not in (1, 2) or array.shape[0] <= 1 or not 0 < array.size <= MOST_ELEMENTS:
        return None
    table = array.reshape(len(array), -1).astype(np.int64)
    if table.shape[1] > MOST_COLUMNS or table.min() < 0 or table.max() > np.iinfo(np.int32).max:
        return None
    least, most = int(table.min()), int(table.max())
    middle = table[len(table) // 2]
    along = int(middle[1] - middle[0]) if len(middle) > 1 else 0
    for divisor, step in _slopes(table, least, most):
        shift = _shift(table, divisor, step, along, (least, most))
        if shift is not None:
            made = _values(table.shape, step, shift, divisor, along)
            clamps = bool((made != table).any())
            return IndexTable(step, shift, divisor, along, least, most, clamps)
    return None


def _slopes(table: NDArray[np.int64], least: int, most: int) -> Iterator[tuple[int, int]]:
    """Divisors and steps that fit the rows between the first and the last one that are not at a limit."""
    inside = np.flatnonzero((table[:, 0] > least) & (table[:, 0] < most))
    first, last = (int(inside[0]), int(inside[-1])) if len(inside) > 1 else (0, len(table) - 1)
    rows, rise = last - first, int(table[last, 0] - table[first, 0])
    for divisor in range(1, MOST_DIVISOR + 1):
        # The positions of two rows are rounded down, so the quotient of rise and rows is less than 1 / rows off.
        lowest, highest = floor(divisor * (rise - 1) / rows), ceil(divisor * (rise + 1) / rows)
        yield from product((divisor,), range(lowest, min(highest, lowest + MOST_DIVISOR) + 1))


def _shift(table: NDArray[np.int64], divisor: int, step: int, along: int, limits: tuple[int, int]) -> int | None:
    """A shift with which positions are those of ``table``, without limits if there is one; None if there is none."""
    rows, columns = np.indices(table.shape)
    lowest = divisor * (table - columns * along) - rows * step
    beyond = lowest + divisor
    if lowest.max() < beyond.min():
        return int(lowest.max())
    if limits[0] == limits[1]:
        return None
    # At a limit, a position may be farther out.
    above, below = lowest[table > limits[0]].max(), beyond[table < limits[1]].min()
    return int(above) if above < below else None


def _values(shape: tuple[int, ...], step: int, shift: int, divisor: int, along: int) -> NDArray[np.int64]:
    rows, columns = np.indices(shape)
    return (rows * step + shift) // divisor + columns * along


def without_tables(outputs: Sequence[Tensor], tables: Mapping[Tensor, IndexTable]) -> list[Tensor]:
    """``outputs`` with arithmetic in place of elements of ``tables``, and without checks of what is in range."""
    if not tables:
        return list(outputs)
    made: dict[Tensor, Tensor] = {}
    for op, tensors in operations(outputs):
        changed = _changed(op, tables, made) if isinstance(op, Compute) else rewired(op, made)
        made.update((t, t if changed is op else output_of(changed, t)) for t in tensors)
    return [made[tensor] for tensor in outputs]


def _changed(op: Compute, tables: Mapping[Tensor, IndexTable], made: Mapping[Tensor, Tensor]) -> Compute:
    places: dict[Expr, IndexTable] = {}

    def leave(node: Expr) -> Expr | None:
        match node:
            case Read(Tensor() as source, indices) if source in tables:
                place = tables[source].at(indices)
                places[place] = tables[source]
                return cast(place, source.dtype)
            case Read(Tensor() as source, indices):
                return Read(made[source], indices)
            case Cast(Cast(place), dtype) if place in places and place.dtype == dtype:
                return place
            case Check(place, Const(int(extent))) if place in places and places[place].most < extent:
                return place
            case _:
                return None

    return with_values(op, lambda value: transform(value, leave))
