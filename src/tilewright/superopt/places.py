"""Dimensions that may as well be samples: an operator that works place by place along them needs no program for each
of their extents (Bradbury et al., JAX, 2018, call it ``vmap``).

What is said here of operators is checked against their programs (``tests/superopt/test_places.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tilewright.base.arrays import Array
from tilewright.ops import Attribute, Operator, Trait

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


@dataclass(frozen=True, slots=True)
class _Axis:
    """Which dimension of each operand, and of the result, has the places; None of what all places share."""

    operands: tuple[int | None, ...]
    result: int


@dataclass(frozen=True, slots=True)
class _Places:
    """An operator works place by place along ``axes``.

    ``attributes``: of the operator where these dimensions are not there, or of extent 1 if it ``keeps`` them.
    """

    axes: tuple[_Axis, ...]
    attributes: Mapping[str, Attribute]
    keeps: bool = False


def work(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> Work | None:
    """Where ``op`` works; None if that is along all dimensions, as far as is known, or if operands do not fit."""
    found = _places(op, attributes, shapes)
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


def _places(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> _Places | None:
    ranks = tuple(map(len, shapes))
    if op.has(Trait.ELEMENTWISE):
        return _Places(_aligned(ranks), attributes)
    match op.name, attributes, ranks:
        case "Slice", {"axes": (int(axis),), **bounds}, (rank,) if -rank <= axis < rank:
            return _Places(_but((axis % rank,), rank), {**bounds, "axes": (0,)})
        case "Concat", {"axis": int(axis)}, (rank, *_) if -rank <= axis < rank and _differ_only(shapes, axis % rank):
            return _Places(_but((axis % rank,), rank, len(shapes)), {"axis": 0})
        case "Transpose", {"perm": (*perm,)}, (rank,) if sorted(map(str, perm)) == sorted(map(str, range(rank))):
            return _Places(tuple(_Axis((at,), to) for to, at in enumerate(perm) if isinstance(at, int)), {"perm": ()})
        case "AveragePool" | "MaxPool", {"kernel_shape": (_, _)}, (4,):
            return _Places(_but((2, 3), 4), attributes, keeps=True)
        case "Pad", {"before": (*before,), "after": (*after,)}, (rank,) if len(before) == len(after) == rank:
            padded = (at for at in range(rank) if (before[at], after[at]) != (0, 0))
            return _Places(_but(tuple(padded), rank), attributes, keeps=True)
        case "ReduceSum" | "ReduceMean", {"axes": (-1,), **others}, (rank,) if rank and not others:
            return _Places(_but((rank - 1,), rank), attributes, keeps=True)
        case "MatMul", _, (rank, other) if rank > 1 and other > 1:
            return _Places(_product(rank, other), attributes, keeps=True)
        case "Conv", _, (_, _):
            return _convolution(attributes, *shapes)
        case _:
            return None


def _differ_only(shapes: Sequence[Shape], axis: int) -> bool:
    return len({(shape[:axis], shape[axis + 1 :]) for shape in shapes}) == 1


@lru_cache(maxsize=1024)
def _but(work: tuple[int, ...], rank: int, operands: int = 1) -> tuple[_Axis, ...]:
    """All dimensions but those of the work."""
    return tuple(_Axis((at,) * operands, at) for at in range(rank) if at not in work)


@lru_cache(maxsize=1024)
def _aligned(ranks: tuple[int, ...]) -> tuple[_Axis, ...]:
    """All dimensions, the last ones of operands being in one place."""
    rank = max(ranks)
    places = [[at - rank + own for own in ranks] for at in range(rank)]
    return tuple(_Axis(tuple(at if at >= 0 else None for at in each), to) for to, each in enumerate(places))


@lru_cache(maxsize=1024)
def _product(left: int, right: int) -> tuple[_Axis, ...]:
    """Matrices of a batch, rows and columns."""
    rank = max(left, right)
    batch = _aligned((left - 2, right - 2))
    return (*batch, _Axis((left - 2, None), rank - 2), _Axis((None, right - 1), rank - 1))


def _convolution(attributes: Mapping[str, Attribute], data: Shape, weight: Shape) -> _Places | None:
    """Images, and filters if each reads all channels; or channels if each has a filter of its own."""
    images = _Axis((0, None), 0)
    match attributes, data, weight:
        case {"group": int(group), **others}, (_, channels, *_), (filters, 1, *_) if channels == filters == group:
            return _Places((images, _Axis((1, 0), 1)), others, keeps=True)
        case _, (_, _, *_), (_, _, *_) if attributes.get("group", 1) == 1:
            return _Places((images, _Axis((None, 0), 1)), attributes, keeps=True)
        case _:
            return None


def _fit(axes: Sequence[_Axis], shapes: Sequence[Shape]) -> bool:
    """Whether operands have as many places, or one that is repeated."""
    for axis in axes:
        extents = {shape[at] for shape, at in zip(shapes, axis.operands, strict=True) if at is not None}
        if len(extents - {1}) > 1:
            return False
    return True
