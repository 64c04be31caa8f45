"""Convolutions in many small groups as convolutions in fewer groups, which fill blocks of channels.

Groups that share a block become one: filters read all of its channels, those of other groups by weights that are 0.
With groups of 4 channels and blocks of 32, these are 8 times as many products. A matrix unit computes them in less time
than vectors take whose lanes read different channels; dot products do for groups of half a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.base.dtypes import bf16
from tilewright.graph import Array, Node, Value, make_node
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives.api import OTHER_TERMS, Building, Facts, Way
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.blocks import can_be_blocked, width_of
from tilewright.passes.precision import has_products, is_faster_by_pairs
from tilewright.symbolic.expr import const

_CONVOLUTION = require("Conv")


class JoinedGroups:
    """Where products may be those of bfloat16, and the target is faster at these than at those of float32."""

    name = "joined groups"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found, weight = _problem(node, facts), node.inputs[1] if len(node.inputs) > 1 else None
        if found is None or weight is None:
            return
        joined = found.joined(facts.constants[weight])
        value = Value(facts.names.fresh(f"{weight.name}.joined"), weight.dtype, tuple(map(const, joined)))
        narrow = facts.narrow.multiplying({node.outputs[0].name: frozenset({value.name})})
        known = {**facts.constants, value: found.weight(facts.constants[weight])}
        own = replace(facts, narrow=narrow, constants=known, alternatives=(DIRECT,))
        machine, has_unit = facts.target.machine, tile_unit(facts.target, bf16, bf16) is not None
        slowdown = machine.shared_blocks if has_unit else machine.shared_by_dots
        for way in own.ways(found.convolution(node, value)):
            if way.is_blocked:
                # Estimates of what is computed directly leave out that lanes read different channels.
                cycles, make = way.cycles / slowdown, partial(_make, found, way)
                more = found.more_bytes(facts.constants[weight])
                yield replace(way, algorithm=self.name, cycles=cycles, make=make, more_bytes=more, errors=OTHER_TERMS)


JOINED_GROUPS = JoinedGroups()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution in ``groups``, ``count`` of which share a block."""

    groups: int
    count: int

    def joined(self, weight: Array) -> tuple[int, ...]:
        """The shape of the weight for joined groups."""
        filters, channels, *kernel = weight.shape
        return (filters, channels * self.count, *kernel)

    def more_bytes(self, own: Array) -> int:
        """The growth of the weight ``own``, which is stored in float32 unless its groups are joined."""
        return max(0, own.size * (self.count * bf16.itemsize - own.itemsize))

    def convolution(self, node: Node, weight: Value) -> Node:
        """``node`` in joined groups."""
        data, _, *others = node.inputs
        attributes: dict[str, Attribute] = {**dict(node.attributes), "group": self.groups // self.count}
        return make_node(node.op, [data, weight, *others], [node.outputs[0].name], attributes, node.source)

    def weight(self, own: Array) -> Array:
        """The weight ``own`` for joined groups."""
        filters, channels, *kernel = own.shape
        apart = own.reshape(self.groups // self.count, self.count, filters // self.groups, channels, *kernel)
        made = np.zeros((*apart.shape[:3], self.count, *apart.shape[3:]), own.dtype)
        for group in range(self.count):
            made[:, group, :, group] = apart[:, group]
        return made.reshape(self.joined(own))


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if its known filters are in groups of several channels that share blocks."""
    weight = facts.constants.get(node.inputs[1]) if node.op == _CONVOLUTION and node.inputs[1] is not None else None
    data, result, groups = node.inputs[0] if node.inputs else None, node.outputs[0], dict(node.attributes).get("group")
    if weight is None or data is None or not isinstance(groups, int) or groups == 1 or weight.shape[1] == 1:
        return None
    narrow, has_pairs = facts.narrow, has_products(bf16, facts.target) and is_faster_by_pairs(facts.target)
    is_asked = narrow.dtype == bf16 and (narrow.is_everywhere or narrow.stored(result.name) == bf16)
    if not has_pairs or not is_asked or not all(can_be_blocked(value, facts.target) for value in (data, result)):
        return None
    own = (weight.shape[1], width_of(data, facts.blocks)), (weight.shape[0] // groups, width_of(result, facts.blocks))
    counts = (n for n in range(1, groups + 1) if groups % n == 0)
    count = next((n for n in counts if all(channels * n % width == 0 for channels, width in own)), 1)
    return _Problem(groups, count) if count > 1 else None


def _make(problem: _Problem, way: Way, node: Node, building: Building) -> None:
    weight = node.inputs[1]
    assert weight is not None, "a convolution has a weight"
    joined = building.weight(weight, ("joined", problem.groups, problem.count), problem.weight)
    building.narrow[node.outputs[0].name] = frozenset({joined.name})
    building.append(problem.convolution(node, joined), way.reads)
