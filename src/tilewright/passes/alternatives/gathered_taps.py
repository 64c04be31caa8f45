"""Convolutions as ones with a single tap over a copy of what their windows read (im2col).

Channels and taps are then the channels of one product, and all positions its rows or columns: they fill registers also
where rows of the image are short, where strides or groups would make lanes read elements that lie apart, and where few
places would read many weights again for each row. The copy is as much larger than the data as there are taps, so this
pays for few channels and many filters, or for few positions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.base.dtypes import f32
from tilewright.cost.kernels import pass_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, FirstStep, Way
from tilewright.passes.alternatives.dimensions import dimensions_of
from tilewright.passes.blocks import Reads, points, register_of
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

_CONVOLUTION, _TAPS, _RESHAPE = require("Conv"), require("WindowTaps"), require("Reshape")
_FEWEST = 8
"""Filters of a group that multiply each element of the copy: for fewer, copying takes as long as multiplying."""
_LEAST_INSIDE = 0.5
"""The share of terms that read no padding, up to which it is better to leave out the others."""


class GatheredTaps:
    """Each way to compute the convolution with a single tap."""

    name = "gathered taps"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is None:
            return
        known = {**facts.constants, found.weight: found.array}
        outside = facts.outside.union(v for v in found.convolution.inputs[:1] if v is not None)
        alone = replace(facts, constants=known, may_be_blocked=set[Value](), outside=outside)
        first = FirstStep((self.name, *found.options.items()), found.copying(facts.target))
        for way in alone.ways(found.convolution):
            make, cycles = partial(_make, found, way), way.cycles + first.cycles
            yield replace(
                way,
                algorithm=f"{way.algorithm} of {self.name}",
                cycles=cycles,
                reads=Reads.PLAIN,
                make=make,
                first=first,
            )


GATHERED_TAPS = GatheredTaps()


@dataclass(frozen=True, slots=True)
class _Problem:
    """An equivalent convolution of ``taps``, what the copy has, and its weight; ``options``: of the copy."""

    convolution: Node
    taps: tuple[int, ...]
    weight: Value
    array: Array
    options: Mapping[str, Attribute]

    def copying(self, target: Target) -> float:
        """Cycles of the copy: of its vectors, the last of a row with idle lanes, or of its memory."""
        copy, machine = self.convolution.inputs[0], target.machine
        assert copy is not None, "a convolution has data"
        lanes, rows = register_of(copy, target), prod(self.taps[:-1])
        moved = pass_cycles(Work(0, 0, 2 * copy.dtype.itemsize * points(copy.shape)), target)
        return machine.shared_kernel_start + max(machine.copy_cycles * rows * -(-self.taps[-1] // lanes), moved)


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if the taps of enough known filters read no more than the second cache holds, or than there are
    results. A single tap is gathered if it has a stride: its places are then neighbours."""
    if node.op != _CONVOLUTION or node.inputs[1] not in facts.constants or facts.narrow.products(node) > 1:
        return None
    data, weight, *others = node.inputs
    assert data is not None and weight is not None, "a convolution has data and a weight"
    shape, outputs, array = static(data.shape), static(node.outputs[0].shape), facts.constants[weight]
    kernel, rank = array.shape[2:], array.ndim - 2
    if shape is None or outputs is None or 0 in (*shape, *outputs) or data.dtype != f32:
        return None
    attributes = dict(node.attributes)
    names = ("strides", 1, 1), ("dilations", 1, 1), ("pads", 2, 0)
    options: dict[str, Attribute] = {"kernel": kernel}
    options |= {n: entries_of(attributes.get(n), times * rank, default) for n, times, default in names}
    taps = (shape[0], shape[1] * prod(kernel), *outputs[2:])
    group = attributes.get("group", 1)
    is_small = prod(taps) <= max(prod(outputs), facts.target.l2_bytes // f32.itemsize)
    if not isinstance(group, int) or len(array) // group < _FEWEST or not is_small:
        return None
    is_row_anyway = options["strides"] == (1,) * rank and (rank == 1 or prod(kernel) == 1)
    if is_row_anyway or prod(dimension.share() for dimension in dimensions_of(node)) <= _LEAST_INSIDE:
        return None
    if _has_many_pages(prod(array.shape[1:]), prod(outputs[2:]) * f32.itemsize, facts.target):
        return None
    rows = array.reshape(len(array), -1, *[1] * rank)
    filters = Value(facts.names.fresh(f"{weight.name}.gathered"), weight.dtype, tuple(map(const, rows.shape)))
    copy = Value(facts.names.fresh(f"{data.name}.gathered"), data.dtype, tuple(map(const, taps)))
    single: dict[str, Attribute] = {"group": group}
    convolution = make_node(_CONVOLUTION, [copy, filters, *others], [node.outputs[0].name], single, node.source)
    return _Problem(convolution, taps, filters, rows, options)


def _has_many_pages(terms: int, row_bytes: int, target: Target) -> bool:
    """Whether the terms of a sum, each in a row of the copy, lie in more pages than the TLB holds."""
    return row_bytes > target.machine.page_bytes and terms > target.machine.pages_at_hand


def _make(found: _Problem, way: Way, node: Node, building: Building) -> None:
    """Adds the copy, a view of its taps as channels, and the convolution."""
    data, copy = node.inputs[0], found.convolution.inputs[0]
    assert data is not None and copy is not None, "a convolution has data"
    building.constants[found.weight] = found.array
    taps = building.common(_TAPS, data, node, "taps", found.options, Reads.PLAIN)
    shape: dict[str, Attribute] = {"shape": found.taps}
    building.append(make_node(_RESHAPE, [taps], [copy.name], shape, node.source))
    building.compute(found.convolution, way)
