"""Transposed convolutions of bytes as one convolution, whose filters are those of all phases, and their places.

Padding is by the zero point, as for any convolution of bytes, so that sums are exact. Along a dimension in which the
data have one place, each output has one tap: strides as long as the kernel say the same, without products of padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.graph import Array, Node, Value
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static

_PHASES, _CONVOLUTION, _FILTERS, _RESHAPE = map(require, ("PhaseConv", "Conv", "PhaseFilters", "Reshape"))


@dataclass(frozen=True, slots=True)
class Transposed:
    """A transposed convolution of one group; an entry for each spatial dimension."""

    weight: Value
    """``[CI, CO, kernel...]``."""
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    """Outputs of whole strides that the result leaves out before its first one."""
    data: tuple[int, ...]
    spatial: tuple[int, ...]

    @property
    def taps(self) -> tuple[int, ...]:
        """Those of each phase."""
        return tuple(k // stride for k, stride in zip(self.kernel, self.strides, strict=True))

    @property
    def pads(self) -> tuple[int, ...]:
        """Those of the convolution; negative ones would leave out data."""
        moves = list(zip(self.taps, self.dilations, self.begins, self.strides, strict=True))
        before = ((count - 1) * dilation - begin // stride for count, dilation, begin, stride in moves)
        ends = zip(self.begins, self.spatial, self.strides, self.data, strict=True)
        return (*before, *((y + begin - 1) // stride + 1 - own for begin, y, stride, own in ends))

    @property
    def convolution(self) -> dict[str, Attribute]:
        """The attributes of the convolution."""
        ones = (1,) * len(self.kernel)
        return {"strides": ones, "pads": self.pads, "dilations": self.dilations, "group": 1}

    @property
    def places(self) -> dict[str, Attribute] | None:
        """The attributes of what brings phases to their places; None if there is only one."""
        if prod(self.strides) == 1:
            return None
        offsets = tuple(begin % stride for begin, stride in zip(self.begins, self.strides, strict=True))
        return {"strides": self.strides, "offsets": offsets, "spatial": self.spatial}

    def filters(self, weight: Array) -> Array:
        """``[CI, CO, kernel...]`` as ``[phases * CO, CI, taps...]``, in the order of ``PhasesToSpace``."""
        rank = len(self.kernel)
        shape = [extent for pair in zip(self.taps, self.strides, strict=True) for extent in pair]
        split = np.flip(weight.reshape(*weight.shape[:2], *shape), axis=tuple(range(2, 2 + 2 * rank, 2)))
        by_phase = split.transpose(*range(3, 3 + 2 * rank, 2), 1, 0, *range(2, 2 + 2 * rank, 2))
        return np.ascontiguousarray(by_phase.reshape(-1, *by_phase.shape[rank + 1 :]))

    def repeated(self, parameter: Array) -> Array:
        """One number for each filter of each phase, of one for each filter, or for all."""
        return np.tile(parameter, prod(self.strides)) if parameter.size > 1 else parameter


def transposed(node: Node, producers: Mapping[Value, Node]) -> Transposed | None:
    """``node`` as a transposed convolution; None if it is none, has groups or unknown extents, or its phases differ."""
    data, factor = (*node.inputs, None, None)[:2]
    if node.op not in (_PHASES, _CONVOLUTION) or data is None or factor is None:
        return None
    filters = producers.get(factor)
    if filters is not None and node.op == _CONVOLUTION and filters.op == _RESHAPE and filters.inputs[0] is not None:
        filters = producers.get(filters.inputs[0])
    weight = filters.inputs[0] if filters is not None and filters.op == _FILTERS else None
    if filters is None or weight is None:
        return None
    extents, kernel, spatial = (static(value.shape[2:]) for value in (data, weight, node.outputs[0]))
    if extents is None or kernel is None or spatial is None or 0 in (*extents, *kernel, *spatial):
        return None
    given, own = dict(node.attributes), dict(filters.attributes)
    strides, dilations = (entries_of(own[name], len(kernel), 1) for name in ("strides", "dilations"))
    is_strided = node.op == _PHASES
    begins = entries_of(given["begins"], len(kernel), 0) if is_strided else _begins(given["pads"], kernel, dilations)
    are_single = [extent == dilation == 1 for extent, dilation in zip(extents, dilations, strict=True)]
    strides = tuple(k if one else s for k, s, one in zip(kernel, strides, are_single, strict=True))
    found = Transposed(weight, kernel, strides, dilations, begins, extents, spatial)
    are_alike = all(k % s == 0 and 1 in (s, d) for k, s, d in zip(kernel, strides, dilations, strict=True))
    return found if are_alike and given.get("group", 1) == 1 and min(found.pads) >= 0 else None


def _begins(pads: Attribute, kernel: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """Those of a transposed convolution without strides, which is a convolution with ``pads``."""
    moves = zip(kernel, dilations, entries_of(pads, 2 * len(kernel), 0), strict=False)
    return tuple((k - 1) * dilation - before for k, dilation, before in moves)
