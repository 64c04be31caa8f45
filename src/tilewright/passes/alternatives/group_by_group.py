"""Convolutions in a few groups, transposed ones too, as one convolution for each group, whose results are joined.

A block of filters that several groups share reads other channels in each lane, and by rows, the filters of a group may
be too few for a register tile. Alone, each group is a convolution like any other, in the transformed domain or phase by
phase. Depthwise ones are computed directly. Weights of run time are cut, too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tilewright.cost.kernels import pass_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import points, register_of
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

MOST_GROUPS = 8
"""More groups would be more kernels than the time of each is worth."""
_SLICE, _CONCAT = require("Slice"), require("Concat")
_GROUPED = (require("Conv"), require("PhaseConv"))


class GroupByGroup:
    """Each group in the best way to compute it."""

    name = "group by group"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        parts = _parts(node, facts)
        if not parts:
            return
        target, result = facts.target, node.outputs[0]
        cut = [value for value in node.inputs if value is not None and value not in facts.constants]
        known = {value: array for part in parts for value, array in part.constants.items()}
        alone = replace(facts, constants={**facts.constants, **known}, may_be_blocked=set[Value]())
        if facts.outside.intersection((node.inputs[0], result)):
            plain = (value for part in parts for value in (part.convolution.inputs[0], *part.convolution.outputs))
            alone = replace(alone, outside=facts.outside.union(value for value in plain if value is not None))
        best = min(alone.ways(parts[0].convolution), key=lambda way: way.cycles)
        own = [_named(best.name, alone.ways(part.convolution)) for part in parts]
        copied = [*cut, result, *[result] * best.is_blocked]  # cut, joined, and brought to rows before
        cycles = len(parts) * best.cycles + sum(_copying(value, target) for value in copied)
        yield Way(self.name, cycles, make=partial(_make, parts, own), errors=best.errors)


GROUP_BY_GROUP = GroupByGroup()


def _copying(value: Value, target: Target) -> float:
    """Cycles of a copy: of its vectors, or of reading and writing what no cache holds."""
    size, machine = points(value.shape), target.machine
    moved = pass_cycles(Work(0, 0, 2 * value.dtype.itemsize * size), target)
    return max(machine.copy_cycles * size / register_of(value, target), moved)


@dataclass(frozen=True, slots=True)
class _Part:
    """The convolution of one group, its constants, and its slices of the other operands."""

    convolution: Node
    constants: dict[Value, Array]
    slices: tuple[Node, ...]


def _parts(node: Node, facts: Facts) -> list[_Part]:
    """The convolutions of the groups; none if there are too many, or they need no separation."""
    attributes = dict(node.attributes)
    groups = attributes.get("group", 1)
    if node.op not in _GROUPED or not isinstance(groups, int) or not 1 < groups <= MOST_GROUPS:
        return []
    shapes = [static(value.shape) for value in (*node.inputs, node.outputs[0]) if value is not None]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or 0 in known[-1]:
        return []
    shape, *_, result = known
    channels, filters = shape[1] // groups, result[1] // groups
    if channels == 1:
        return []
    return [_part(node, facts, group, channels, filters) for group in range(groups)]


def _part(node: Node, facts: Facts, group: int, channels: int, filters: int) -> _Part:
    data, *parameters = node.inputs
    assert data is not None, "a convolution has data"
    slices, constants = [_cut(node, data, facts, group, channels, 1)], dict[Value, Array]()
    own: list[Value | None] = []
    for parameter in parameters:
        if parameter is None:
            own.append(None)
        elif parameter in facts.constants:
            array = facts.constants[parameter][group * filters : (group + 1) * filters]
            name = facts.names.fresh(f"{parameter.name}.group{group}")
            value = Value(name, parameter.dtype, tuple(map(const, array.shape)))
            own.append(value)
            constants[value] = array
        else:
            slices.append(_cut(node, parameter, facts, group, filters, 0))
            own.append(slices[-1].outputs[0])
    attributes: dict[str, Attribute] = {**dict(node.attributes), "group": 1}
    made = facts.names.fresh(f"{node.outputs[0].name}.group{group}")
    convolution = make_node(node.op, [slices[0].outputs[0], *own], [made], attributes, node.source)
    return _Part(convolution, constants, tuple(slices))


def _cut(node: Node, value: Value, facts: Facts, group: int, size: int, axis: int) -> Node:
    """The part of ``value`` that ``group`` reads."""
    name = facts.names.fresh(f"{value.name}.group{group}")
    attributes: dict[str, Attribute] = {"starts": (group * size,), "ends": ((group + 1) * size,), "axes": (axis,)}
    return make_node(_SLICE, [value], [name], attributes, node.source)


def _named(name: str, ways: Iterable[Way]) -> Way:
    """The way ``name``: those of one group are those of all, but each may hold nodes of its own."""
    return next(way for way in ways if way.name == name)


def _make(parts: list[_Part], ways: list[Way], node: Node, building: Building) -> None:
    """Adds the convolutions, each with its slices, and joins their results."""
    results: list[Value] = []
    for part, way in zip(parts, ways, strict=True):
        building.constants.update(part.constants)
        for cut in part.slices:
            building.append(cut)
        building.compute(part.convolution, way)
        results.append(building.plain(part.convolution.outputs[0], way))
    building.append(make_node(_CONCAT, results, [node.outputs[0].name], {"axis": 1}, node.source))
