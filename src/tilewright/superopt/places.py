"""Dimensions that may as well be samples: an operator that works place by place along them needs no program for each
of their extents.

What is said here of operators is checked against their programs (``tests/superopt/test_places.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.base.arrays import Array
from tilewright.ops import Attribute, Operator

Shape: TypeAlias = tuple[int, ...]

ELEMENTWISE = frozenset({"Add", "Div", "Exp", "Max", "Min", "Mul", "Neg", "Relu", "Sqrt", "Sub", "Tanh"})


@dataclass(frozen=True, slots=True)
class Work:
    """An operator works along the dimensions ``start .. stop - 1`` of its operands.

    ``attributes``: of the operator where there are no others, or ``ones`` of extent 1 in front. ``before`` and
    ``behind``: the extents of the others, which all operands have but scalars.
    """

    start: int
    stop: int
    attributes: Mapping[str, Attribute]
    before: Shape
    behind: Shape
    ones: int = 0

    def inside(self, array: Array, samples: int) -> Array:
        """``array``, the other dimensions among the ``samples``: those that it has, or 1 that is to be repeated."""
        places = (*self.before, *self.behind) if array.ndim == 1 else array.shape[:-1]
        whole = np.broadcast_to(array, (*places, samples))
        moved = whole.transpose(*range(self.start, self.stop), *range(self.start), *range(self.stop, whole.ndim))
        return moved.reshape(*(1,) * self.ones, *moved.shape[: self.stop - self.start], -1)

    def outside(self, array: Array) -> Array:
        """A result with all its dimensions."""
        kept = array.shape[self.ones : -1]
        whole = array.reshape(*kept, *self.before, *self.behind, -1)
        first, last = len(kept), len(kept) + len(self.before)
        return whole.transpose(*range(first, last), *range(first), *range(last, whole.ndim))


def work(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> Work | None:
    """Where ``op`` works; None if that is along all dimensions, as far as is known, or if operands do not fit."""
    rank = max(map(len, shapes), default=0)
    ones = 0
    match op.name, attributes:
        case name, _ if name in ELEMENTWISE:
            start, stop, inner = 0, 0, attributes
        case "Concat", {"axis": int(axis)} if -rank <= axis < rank:
            start, stop, inner = axis % rank, axis % rank + 1, {"axis": 0}
        case "Slice", {"axes": (int(axis),)} if -rank <= axis < rank:
            start, stop, inner = axis % rank, axis % rank + 1, {**attributes, "axes": (0,)}
        case "AveragePool" | "MaxPool", {"kernel_shape": (_, _)} if rank == 4:
            start, stop, inner, ones = 2, 4, attributes, 2
        case _:
            return None
    others = {(shape[:start], shape[stop:]) for shape in shapes if shape or stop}  # scalars have none
    fits = len(others) == 1 and all(len(shape) in ((rank,) if stop else (0, rank)) for shape in shapes)
    return Work(start, stop, inner, *others.pop(), ones) if fits and stop - start < rank else None
