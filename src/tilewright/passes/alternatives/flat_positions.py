"""Convolutions with a single tap over all positions as one row of them.

A 1x1x1 convolution of 20x20x20 positions is one over a row of 8000: lanes along rows of 20 would be mostly a register
and a quarter of another one. Reshapes move nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.cost.kernels import pass_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Reads, points
from tilewright.symbolic.expr import const

_CONVOLUTION, _RESHAPE = require("Conv"), require("Reshape")
_ONLY = {"strides": 1, "pads": 0}
"""What an attribute's entries must be, so that a single tap reads each position once."""


class FlatPositions:
    """By rows of all positions; blocks of channels have one axis of positions anyway."""

    name = "flat positions"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _flat(node, facts)
        if found is None:
            return
        alone = replace(facts, constants={**facts.constants, found.weight: found.taps}, may_be_blocked=set[Value]())
        if facts.outside.intersection((node.inputs[0], node.outputs[0])):
            alone = replace(alone, outside=frozenset(found.convolution.outputs))
        result, machine, more = node.outputs[0], facts.target.machine, 0.0
        if result not in facts.outside:  # elementwise operators that follow have a kernel of their own
            moved = Work(0, 0, 2 * result.dtype.itemsize * points(result.shape))
            more = machine.kernel_start + pass_cycles(moved, facts.target)
        for way in alone.ways(found.convolution):
            if not way.is_blocked and way.make is None:
                cycles, make = way.cycles + more, partial(_make, found, way)
                yield replace(way, algorithm=self.name, cycles=cycles, reads=Reads.PLAIN, make=make)


FLAT_POSITIONS = FlatPositions()


@dataclass(frozen=True, slots=True)
class _Flat:
    """An equivalent convolution over rows, and its weight."""

    convolution: Node
    weight: Value
    taps: Array


def _flat(node: Node, facts: Facts) -> _Flat | None:
    """The convolution over one row; None if there are several taps, or they do not read each position once."""
    if node.op != _CONVOLUTION or node.inputs[1] not in facts.constants:
        return None
    data, weight, *others = node.inputs
    assert data is not None and weight is not None, "a convolution has data and a weight"
    shape, array, attributes = static(data.shape), facts.constants[weight], dict(node.attributes)
    if shape is None or len(shape) < 4 or prod(array.shape[2:]) != 1 or prod(shape) == 0:
        return None
    if any(int(str(entry)) != only for name, only in _ONLY.items() for entry in _entries(attributes.get(name))):
        return None
    taps = array.reshape(*array.shape[:2], 1)
    row = Value(facts.names.fresh(f"{data.name}.row"), data.dtype, (*data.shape[:2], const(prod(shape[2:]))))
    filters = Value(facts.names.fresh(f"{weight.name}.row"), weight.dtype, tuple(map(const, taps.shape)))
    options: dict[str, Attribute] = {"group": attributes.get("group", 1)}
    made = facts.names.fresh(f"{node.outputs[0].name}.row")
    convolution = make_node(_CONVOLUTION, [row, filters, *others], [made], options, node.source)
    return _Flat(convolution, filters, taps)


def _entries(value: Attribute | None) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _make(found: _Flat, way: Way, node: Node, building: Building) -> None:
    """Adds the convolution between reshapes."""
    row, result = found.convolution.inputs[0], node.outputs[0]
    extents = static(result.shape)
    assert row is not None and extents is not None, "the positions are known"
    building.constants[found.weight] = found.taps
    building.append(_reshaped(node.inputs[0], static(row.shape), row.name, node.source))
    building.compute(found.convolution, way)
    building.append(_reshaped(found.convolution.outputs[0], extents, result.name, node.source))


def _reshaped(value: Value | None, shape: tuple[int, ...] | None, name: str, source: str) -> Node:
    return make_node(_RESHAPE, [value], [name], {"shape": shape or (), "allow_zero": True}, source)
