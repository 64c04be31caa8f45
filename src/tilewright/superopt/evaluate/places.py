"""Treats batch dimensions as samples: an operator needs one program for all extents of the dimensions along which its
elements are independent (``vmap`` of JAX, Bradbury et al., 2018). Operators declare these dimensions (``Batch``).

A *place* is a position along these dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tilewright.base.arrays import Array
from tilewright.ops import Attribute, Operator, Trait
from tilewright.ops.batches import aligned
from tilewright.ops.operator import Batch, BatchAxis

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """An array transposed to ``order``, then indexed by ``index``, which adds or removes dimensions."""

    order: tuple[int, ...]
    index: tuple[slice | int | None, ...]

    def of(self, array: Array) -> Array:
        return array.transpose(self.order)[self.index]


@dataclass(frozen=True, slots=True)
class Work:
    """The application of an operator at each place.

    ``attributes`` and ``shapes``: those of the operator at one place. ``inside``: views of each operand, from
    ``[*shape, samples]`` to ``[*shape at a place, *places, samples]``; ``outside``: the inverse for a result.
    """

    attributes: Mapping[str, Attribute]
    shapes: tuple[Shape, ...]
    inside: tuple[View, ...]
    outside: View


def work(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> Work | None:
    """The work of ``op`` per place; None without batch dimensions, or if operands do not fit."""
    if op.has(Trait.ELEMENTWISE):
        found = Batch(aligned(tuple(map(len, shapes))), attributes)
    else:
        found = None if op.batched is None else op.batched(attributes, shapes)
    if found is None or not found.axes or not _fit(found.axes, shapes):
        return None
    own = [tuple(axis.operands[operand] for axis in found.axes) for operand in range(len(shapes))]
    there = tuple(_there(shape, places, found.keeps) for shape, places in zip(shapes, own, strict=True))
    inside = tuple(_inside(len(shape), places, found.keeps) for shape, places in zip(shapes, own, strict=True))
    rank = max(map(len, there))
    return Work(found.attributes, there, inside, _outside(rank, tuple(a.result for a in found.axes), found.keeps))


def _there(shape: Shape, places: Sequence[int | None], keeps: bool) -> Shape:
    ones = (1,) if keeps else ()
    return tuple(extent for at, own in enumerate(shape) for extent in (ones if at in places else (own,)))


@lru_cache(maxsize=1024)
def _inside(rank: int, places: tuple[int | None, ...], keeps: bool) -> View:
    kept = [at for at in range(rank) if at not in places]
    order = (*kept, *(at for at in places if at is not None), rank)
    work = [slice(None) if at in kept else None for at in range(rank) if keeps or at in kept]
    return View(order, (*work, *(None if at is None else slice(None) for at in places), slice(None)))


@lru_cache(maxsize=1024)
def _outside(rank: int, places: tuple[int, ...], keeps: bool) -> View:
    """The view of a result whose rank at a place is ``rank``; its place dimensions, of extent 1, are removed."""
    ones = [at for at in range(rank) if keeps and at in places]
    others = iter([at for at in range(rank) if at not in ones])
    full = rank - len(ones) + len(places)
    order = [rank + places.index(at) if at in places else next(others) for at in range(full)]
    return View((*ones, *order, rank + len(places)), (0,) * len(ones) + (slice(None),) * (full + 1))


def _fit(axes: Sequence[BatchAxis], shapes: Sequence[Shape]) -> bool:
    """Whether all operands have the same number of places, or one that is broadcast."""
    for axis in axes:
        extents = {shape[at] for shape, at in zip(shapes, axis.operands, strict=True) if at is not None}
        if len(extents - {1}) > 1:
            return False
    return True
