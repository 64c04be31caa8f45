"""Copies of boxes of tiles as LOADs and STOREs: rectangles, with zeros around those that are loaded.

On the chip the tiles of a rectangle lie one after another; in device memory, rows have a stride. A box with more
dimensions is several rectangles. Iterations that are not valid become padding.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilewright.backend.vta.compiler.forms import Steps
from tilewright.backend.vta.compiler.nests import Box
from tilewright.backend.vta.config import Scratchpad
from tilewright.backend.vta.instructions import Load, Store
from tilewright.base.errors import Unsupported

_MOST_PADDING = 15
_MOST = (1 << 16) - 1
"""Of rows, columns and strides."""


@dataclass(frozen=True, slots=True)
class _Dimension:
    """Iterations along one dimension, with what each adds on the chip and in device memory, in tiles.

    Those from ``first`` to ``last - 1`` are copied, the others are zeros.
    """

    count: int
    near: int
    far: int
    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Whether all are copied."""
        return (self.first, self.last) == (0, self.count)


_SINGLE = _Dimension(1, 0, 0, 0, 1)


@dataclass(frozen=True, slots=True)
class Place:
    """The first tile of a box, and the steps of its loops."""

    base: int
    steps: Steps


@dataclass(frozen=True, slots=True)
class _Rectangle:
    near: int
    far: int
    rows: _Dimension
    columns: _Dimension
    is_zero: bool = False


def loads(pad: Scratchpad, box: Box, near: Place, far: Place) -> Iterator[Load]:
    """The LOADs of a box; ``near`` on the chip, ``far`` in device memory."""
    for item in _rectangles(box, near, far):
        if item.is_zero:
            yield _zeros(pad, item.near, item.rows.count * item.columns.count)
        elif max(_padding(item.rows) + _padding(item.columns)) > _MOST_PADDING:
            yield from _row_by_row(pad, item)
        else:
            yield _load(pad, item)


def stores(box: Box, near: Place, far: Place) -> Iterator[Store]:
    """The STOREs of a box."""
    for item in _rectangles(box, near, far):
        yield Store(
            sram=item.near, dram=item.far, rows=item.rows.count, columns=item.columns.count, stride=item.rows.far
        )


def _padding(dimension: _Dimension) -> tuple[int, int]:
    return dimension.first, dimension.count - dimension.last


def _load(pad: Scratchpad, item: _Rectangle) -> Load:
    (top, bottom), (left, right) = _padding(item.rows), _padding(item.columns)
    rows = item.rows.last - item.rows.first
    return Load(
        memory=pad,
        sram=item.near,
        dram=item.far + item.rows.first * item.rows.far + item.columns.first,
        rows=rows,
        columns=item.columns.last - item.columns.first,
        stride=item.rows.far if rows > 1 else 0,
        pad_top=top,
        pad_bottom=bottom,
        pad_left=left,
        pad_right=right,
    )


def _row_by_row(pad: Scratchpad, item: _Rectangle) -> Iterator[Load]:
    """With more zeros around than a LOAD has room for."""
    width, (left, right) = item.columns.count, _padding(item.columns)
    for row in range(item.rows.count):
        near = item.near + row * width
        if not item.rows.first <= row < item.rows.last:
            yield _zeros(pad, near, width)
            continue
        inside = width - left - right
        far = item.far + row * item.rows.far + left
        if left:
            yield _zeros(pad, near, left)
        yield Load(memory=pad, sram=near + left, dram=far, columns=inside)
        if right:
            yield _zeros(pad, near + left + inside, right)


def _zeros(pad: Scratchpad, near: int, count: int) -> Load:
    return Load(memory=pad, sram=near, rows=0, columns=count, pad_top=1)


def _rectangles(box: Box, near: Place, far: Place) -> Iterator[_Rectangle]:
    dimensions = _merged(_dimensions(box, near.steps, far.steps))
    columns = dimensions.pop() if dimensions and _is_line(dimensions[-1]) else _SINGLE
    is_dense = bool(dimensions) and dimensions[-1].near == columns.count and 0 <= dimensions[-1].far <= _MOST
    rows = dimensions.pop() if is_dense else _SINGLE
    if max(rows.count, columns.count) > _MOST:
        raise Unsupported(f"it copies {rows.count} rows of {columns.count} tiles; a transfer has up to {_MOST}")
    for point in product(*(range(dimension.count) for dimension in dimensions)):
        moved = list(zip(point, dimensions, strict=True))
        yield _Rectangle(
            near.base + sum(at * dimension.near for at, dimension in moved),
            far.base + sum(at * dimension.far for at, dimension in moved),
            rows,
            columns,
            not box.is_valid or any(not dimension.first <= at < dimension.last for at, dimension in moved),
        )


def _is_line(dimension: _Dimension) -> bool:
    return dimension.near == dimension.far == 1


def _dimensions(box: Box, near: Mapping[str, int], far: Mapping[str, int]) -> list[_Dimension]:
    """The loops that copy several tiles, that with the largest step on the chip first."""
    found: list[_Dimension] = []
    for name in {**near, **far}:
        span, step = box.spans[name], near.get(name, 0)
        if step <= 0:
            raise Unsupported(f"iterations of `{name}` copy to or from the same tiles on the chip, or backwards")
        first, last = (span.first - span.start, span.last - span.start) if box.is_valid else (0, span.count)
        found.append(_Dimension(span.count, step, far.get(name, 0), first, last))
    return sorted(found, key=lambda dimension: -dimension.near)


def _merged(dimensions: Sequence[_Dimension]) -> list[_Dimension]:
    """The same tiles with fewer dimensions: rows without padding that follow each other in both memories are one."""
    found: list[_Dimension] = []
    for inner in reversed(dimensions):
        before = found[-1] if found else None
        if before is not None and before.is_whole and _follow(inner, before):
            found[-1] = _Dimension(
                inner.count * before.count,
                before.near,
                before.far,
                inner.first * before.count,
                inner.last * before.count,
            )
        else:
            found.append(inner)
    return found[::-1]


def _follow(outer: _Dimension, inner: _Dimension) -> bool:
    return outer.near == inner.near * inner.count and outer.far == inner.far * inner.count
