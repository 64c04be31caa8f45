"""Convolutions of channels that do not fill rows of a matrix unit's tiles, with zeros beside them
(``ops.channel_blocks``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from tilewright.base.dtypes import bf16
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.work import Work
from tilewright.graph import Node
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, FirstStep, Way
from tilewright.passes.alternatives.places_in_rows import packed_in_pairs
from tilewright.passes.blocks import Blocks, Reads, can_be_blocked, filled_blocks, points, register_of, width_of

_CONVOLUTION, _CHANNELS, _PRODUCT = require("Conv"), require("WholeChannels"), require("PairConv")
_PAIR = 2


class WholeChannels:
    """The copy with zeros is one that nodes of the same data have in common."""

    name = "whole channels"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is None:
            return
        result, target = node.outputs[0], facts.target
        terms = found.channels * prod(found.kernel)
        sums = sum_cycles(points(result.shape) * terms, points(result.shape[1:2]) * terms, target)
        products = sums * filled_blocks(result, facts.blocks) / (_PAIR * target.machine.matrix_gain)
        copied = pass_cycles(Work(0, 0, 2 * bf16.itemsize * found.copied), target)
        first = FirstStep((self.name, found.before, found.after), copied)
        make = partial(_make, found, facts.blocks)
        yield Way(self.name, products + copied, is_blocked=True, reads=Reads.AS_THEY_ARE, make=make, first=first)


WHOLE_CHANNELS = WholeChannels()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution; an entry for each spatial dimension."""

    channels: int
    """With those that are 0."""
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    copied: int
    """Numbers of the copy."""


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if its products are pairs of bfloat16 for a matrix unit, and its channels do not fill rows."""
    if node.op != _CONVOLUTION or facts.narrow.products(node) == 1 or tile_unit(facts.target, bf16, bf16) is None:
        return None
    data, weight, attributes = node.inputs[0], node.inputs[1], dict(node.attributes)
    if data is None or weight is None or weight not in facts.constants or attributes.get("group", 1) != 1:
        return None
    extents, kernel = static(data.shape), facts.constants[weight].shape[2:]
    if extents is None or not can_be_blocked(data, facts.target) or not can_be_blocked(node.outputs[0], facts.target):
        return None
    rank, row = len(kernel), _PAIR * register_of(data, facts.target)
    names = ("strides", 1, 1), ("pads", 2, 0), ("dilations", 1, 1)
    strides, pads, dilations = (entries_of(attributes.get(n), c * rank, default) for n, c, default in names)
    if min((*strides, *dilations)) < 1 or min(pads) < 0 or extents[1] < row // _PAIR or extents[1] % row == 0:
        return None
    channels, before, after = -(-extents[1] // row) * row, pads[:rank], pads[rank:]
    around = zip(extents[2:], before, after, strict=True)
    copied = extents[0] * channels * prod(extent + b + a for extent, b, a in around)
    return _Problem(channels, kernel, strides, dilations, before, after, copied)


def _make(problem: _Problem, blocks: Blocks, node: Node, building: Building) -> None:
    data, weight, bias = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    step: dict[str, Attribute] = {"channels": problem.channels, "before": problem.before, "after": problem.after}
    whole = building.common(_CHANNELS, data, node, "whole", step, Reads.AS_THEY_ARE)
    building.in_blocks.add(whole)
    width, lanes = width_of(whole, blocks), width_of(node.outputs[0], blocks)
    packed = building.weight(weight, ("in pairs", width, lanes), partial(packed_in_pairs, width, lanes))
    attributes: dict[str, Attribute] = {
        "filters": len(building.constants[weight]),
        "strides": problem.strides,
        "dilations": problem.dilations,
    }
    inputs = [whole, packed, *([] if bias is None else [bias])]
    building.add(_PRODUCT, inputs, node, "", attributes, Reads.BLOCKED)
