"""Dimensions that can be treated as samples: an operator that works place by place along them needs no program for each
of their extents (Bradbury et al., JAX, 2018, call it ``vmap``). Which dimensions these are, operators say (``Batch``).
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
    """An array whose dimensions are in another ``order``, and then at ``index``: with more of them, or with fewer."""

    order: tuple[int, ...]
    index: tuple[slice | int | None, ...]

    def of(self, array: Array) -> Array:
        return array.transpose(self.order)[self.index]


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator does at each place.

    ``attributes`` and ``shapes``: of the operator there. ``inside``: from each operand, ``[*shape, samples]``, to
    ``[*shape there, *places, samples]``; ``outside``: from a result like that to one with all its dimensions.
    """

    attributes: Mapping[str, Attribute]
    shapes: tuple[Shape, ...]
    inside: tuple[View, ...]
    outside: View


def work(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> Work | None:
    """Where ``op`` works; None if that is along all dimensions, as far as is known, or if operands do not fit."""
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
    """``rank``: of the result there; its dimensions that are places, of extent 1, are left out."""
    ones = [at for at in range(rank) if keeps and at in places]
    others = iter([at for at in range(rank) if at not in ones])
    full = rank - len(ones) + len(places)
    order = [rank + places.index(at) if at in places else next(others) for at in range(full)]
    return View((*ones, *order, rank + len(places)), (0,) * len(ones) + (slice(None),) * (full + 1))


def _fit(axes: Sequence[BatchAxis], shapes: Sequence[Shape]) -> bool:
    """Whether operands have as many places, or one that is repeated."""
    for axis in axes:
        extents = {shape[at] for shape, at in zip(shapes, axis.operands, strict=True) if at is not None}
        if len(extents - {1}) > 1:
            return False
    return True
