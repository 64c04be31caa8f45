"""Transposed convolutions as convolutions whose results are the phases, interleaved afterwards.

A ``PhaseConv`` works on blocks of filters, phase by phase. Three filters would leave most of a block empty; with the
phases of two strides of 2 they are twelve. And a convolution may use Winograd's transformed domain. If all phases have
equally many taps, they are channels of one convolution; else each has a convolution of its own, with its taps only.

It is not a rewrite rule, as it depends on the vector width.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.base.names import Names
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.ops.transposed_convolution import Phases, phases
from tilewright.ops.windows import number
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Reads, points, register_of, width_of
from tilewright.symbolic.expr import Expr, as_expr, const

Attributes: TypeAlias = Mapping[str, Attribute]


class InterleavedPhases:
    """All phases as channels of one convolution, in each way to compute that."""

    name = "interleaved phases"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _interleaved(node, facts.constants, facts.names)
        if found is None:
            return
        whole = int(str(node.outputs[0].shape[1])) % width_of(node.outputs[0], facts.blocks) == 0
        more = interleaving_cycles(node, facts)
        for way in replace(facts, constants=found.parameters, may_be_blocked=set()).ways(found.convolution):
            yield replace(
                way,
                algorithm=f"{way.algorithm} of {self.name}",
                cycles=way.cycles + more,
                is_blocked=way.is_blocked and whole,
                make=partial(_make, found, way),
            )


INTERLEAVED_PHASES = InterleavedPhases()


class SeparatePhases:
    """Each phase with the taps that it has, in the best way."""

    name = "separate phases"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        parts = _separate(node, facts)
        if not parts:
            return
        known = {value: array for part in parts for value, array in part.parameters.items()}
        alone = replace(facts, constants={**facts.constants, **known}, may_be_blocked=set[Value]())
        best = [min(alone.ways(part.convolution), key=lambda way: way.cycles) for part in parts]
        result, machine = node.outputs[0], facts.target.machine
        joined = machine.copy_cycles * points(result.shape) / register_of(result, facts.target)
        cycles = sum(way.cycles for way in best) + joined + interleaving_cycles(node, facts)
        errors = next((way.errors for way in best if not way.errors.has_own_terms), best[0].errors)
        yield Way(self.name, cycles, make=partial(_make_separate, parts, best), errors=errors)


SEPARATE_PHASES = SeparatePhases()


@dataclass(frozen=True, slots=True)
class _Interleaved:
    """Adds nodes equivalent to a ``PhaseConv``."""

    convolution: Node
    places: Node
    parameters: Mapping[Value, Array]


def _make(found: _Interleaved, way: Way, node: Node, building: Building) -> None:
    building.constants.update(found.parameters)
    building.compute(found.convolution, way)
    building.append(found.places, Reads.AS_THEY_ARE)


def interleaving_cycles(node: Node, facts: Facts) -> float:
    """Cycles to bring the phases of the result of ``node`` to their places."""
    result, target = node.outputs[0], facts.target
    return target.machine.transform_cycles * points(result.shape) / register_of(result, target)


def _is_possible(node: Node, constants: Mapping[Value, Array]) -> bool:
    """Whether all filters read all channels, parameters are known, and all phases begin at the same input."""
    if node.op != _PHASES or any(v is not None and v not in constants for v in node.inputs[1:]):
        return False
    if any(dim.dilation > 1 < dim.stride for dim in phases_of(node)):
        return False
    return dict(node.attributes).get("group", 1) == 1


def phases_of(node: Node) -> list[Phases]:
    """The phases of a ``PhaseConv`` along each spatial dimension."""
    attributes = dict(node.attributes)
    return phases(_extents(attributes, "kernel"), _strides(node), _integers(attributes, "dilations"))


def _interleaved(node: Node, constants: Mapping[Value, Array], names: Names) -> _Interleaved | None:
    """Nodes equivalent to the ``PhaseConv`` ``node``, if one convolution suffices.

    Filter ``p * CO + co`` computes phase ``p`` of output channel ``co``; phases are in row-major order.
    """
    if not _is_possible(node, constants) or not all(dim.are_even for dim in phases_of(node)):
        return None
    data, filters, bias = (*node.inputs, None)[:3]
    assert data is not None and filters is not None, "a convolution has data and filters"
    strides, result = _strides(node), node.outputs[0]
    rank = len(strides)
    by_phase = np.moveaxis(constants[filters], 0, rank)
    merged = np.ascontiguousarray(by_phase.reshape(-1, *by_phase.shape[rank + 1 :]))
    parameters = {_named(filters, merged, names): merged}
    if bias is not None:
        repeated = np.tile(constants[bias], prod(strides))
        parameters[_named(bias, repeated, names)] = repeated
    pads = (*_before(node, merged.shape[2:]), *_after(node))
    options: Attributes = {"pads": pads, "dilations": _dilations(node)}
    called = names.fresh(f"{result.name}.phases")
    convolution = make_node(_CONVOLUTION, [data, *parameters], [called], options, node.source)
    return _Interleaved(convolution, _places(node, convolution.outputs[0]), parameters)


def _places(node: Node, phases_as_channels: Value) -> Node:
    """The node that interleaves the phases to the result of ``node``."""
    attributes, strides = dict(node.attributes), _strides(node)
    begins = zip(_integers(attributes, "begins"), strides, strict=True)
    offsets = tuple(begin % stride for begin, stride in begins)
    places: Attributes = {"strides": strides, "offsets": offsets, "spatial": _extents(attributes, "spatial")}
    return make_node(_INTERLEAVE, [phases_as_channels], [node.outputs[0].name], places, node.source)


def _before(node: Node, taps: Sequence[int]) -> list[int]:
    """The padding before the data of a phase with so many taps."""
    attributes = dict(node.attributes)
    moves = zip(taps, _dilations(node), _integers(attributes, "begins"), _strides(node), strict=True)
    return [(count - 1) * dilation - begin // stride for count, dilation, begin, stride in moves]


def _after(node: Node) -> list[int | Expr]:
    """The padding after the data."""
    attributes, data = dict(node.attributes), node.inputs[0]
    assert data is not None, "a convolution has data"
    begins, spatial = _integers(attributes, "begins"), _extents(attributes, "spatial")
    ends = zip(begins, spatial, _strides(node), data.shape[2:], strict=True)
    return [number((y + (begin - 1)) // stride + 1 - own) for begin, y, stride, own in ends]


def _dilations(node: Node) -> tuple[int, ...]:
    """The dilations of the convolutions of phases."""
    dilations = _integers(dict(node.attributes), "dilations")
    return tuple(d if s == 1 else 1 for d, s in zip(dilations, _strides(node), strict=True))


@dataclass(frozen=True, slots=True)
class _Phase:
    """The convolution of one phase."""

    convolution: Node
    parameters: Mapping[Value, Array]


def _separate(node: Node, facts: Facts) -> list[_Phase]:
    """The convolutions of the phases, in row-major order; none if they are alike, too many, or have no taps."""
    if not _is_possible(node, facts.constants):
        return []
    dims, strides = phases_of(node), _strides(node)
    shapes = [None if value is None else static(value.shape) for value in (node.inputs[0], node.outputs[0])]
    kernel = static(_extents(dict(node.attributes), "kernel"))
    are_alike = all(dim.are_even for dim in dims)
    if None in shapes or kernel is None or are_alike or prod(strides) > MOST_PHASES:
        return []
    if any(dim.step != dim.stride for dim in dims):
        return []
    if any(extent < stride for extent, stride in zip(kernel, strides, strict=True)) or 0 in (shapes[1] or ()):
        return []
    found = [_phase(node, facts, phase, kernel) for phase in product(*map(range, strides))]
    return [phase for phase in found if phase is not None] if None not in found else []


def _phase(node: Node, facts: Facts, phase: tuple[int, ...], kernel: tuple[int, ...]) -> _Phase | None:
    """The convolution of ``phase``; none if it would leave out elements of the data."""
    data, filters, bias = (*node.inputs, None)[:3]
    assert data is not None and filters is not None, "a convolution has data and filters"
    array = facts.constants[filters]
    taps = [-(-(k - p) // s) for k, p, s in zip(kernel, phase, _strides(node), strict=True)]
    pads = (*_before(node, taps), *_after(node))
    if any(not isinstance(pad, int) or pad < 0 for pad in pads):
        return None
    last = (slice(extent - count, None) for extent, count in zip(array.shape[-len(taps) :], taps, strict=True))
    own = np.ascontiguousarray(array[(slice(None), *phase, slice(None), *last)])
    weight = _named(filters, own, facts.names)
    inputs = [data, weight] if bias is None else [data, weight, bias]
    parameters = {weight: own} if bias is None else {weight: own, bias: facts.constants[bias]}
    options: Attributes = {"pads": pads, "dilations": _dilations(node)}
    made = facts.names.fresh(f"{node.outputs[0].name}.phase")
    return _Phase(make_node(_CONVOLUTION, inputs, [made], options, node.source), parameters)


def _make_separate(parts: list[_Phase], ways: list[Way], node: Node, building: Building) -> None:
    """Adds the convolutions, joins their results as channels, and interleaves these."""
    results: list[Value] = []
    for part, way in zip(parts, ways, strict=True):
        building.constants.update(part.parameters)
        building.compute(part.convolution, way)
        results.append(building.plain(part.convolution.outputs[0], way))
    name = building.names.fresh(f"{node.outputs[0].name}.phases")
    building.append(make_node(_CONCAT, results, [name], {"axis": 1}, node.source))
    building.append(_places(node, building.nodes[-1].outputs[0]), Reads.AS_THEY_ARE)


MOST_PHASES = 9
"""More phases would be more kernels than the time of each is worth."""
_PHASES, _CONVOLUTION, _INTERLEAVE = require("PhaseConv"), require("Conv"), require("PhasesToSpace")
_CONCAT = require("Concat")


def _named(like: Value, array: Array, names: Names) -> Value:
    return Value(names.fresh(like.name), like.dtype, tuple(map(const, array.shape)))


def _strides(node: Node) -> tuple[int, ...]:
    """The strides, from filters ``[CO, strides..., CI, taps...]``."""
    filters = node.inputs[1]
    shape = static(filters.shape) or () if filters is not None else ()
    return shape[1 : len(shape) // 2]


def _integers(attributes: Attributes, name: str) -> tuple[int, ...]:
    return tuple(int(str(value)) for value in _extents(attributes, name))


def _extents(attributes: Attributes, name: str) -> tuple[Expr, ...]:
    values = attributes[name]
    assert isinstance(values, tuple), f"{name} has an entry for each dimension"
    return tuple(as_expr(value) for value in values if not isinstance(value, str))
