"""Transposed convolutions as convolutions with all phases as channels, interleaved afterwards.

A ``PhaseConv`` works on blocks of filters, phase by phase. Three filters would leave most of a block empty; with the
phases of two strides of 2 they are twelve. And a convolution may use Winograd's transformed domain. All phases must
have equally many taps.

It is not a rewrite rule, as it depends on the vector width.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.base.names import Names
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.ops.transposed_convolution import phases
from tilewright.ops.windows import number
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Reads, points, width_of
from tilewright.symbolic.expr import Expr, as_expr, const

Attributes: TypeAlias = Mapping[str, Attribute]


class InterleavedPhases:
    """All phases as channels of one convolution, in each way to compute that."""

    name = "interleaved phases"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _interleaved(node, facts.constants, facts.names)
        if found is None:
            return
        result, target = node.outputs[0], facts.target
        whole = int(str(result.shape[1])) % width_of(result, target) == 0
        more = target.machine.transform_cycles * points(result.shape) / width_of(result, target)
        for way in replace(facts, constants=found.parameters, may_be_blocked=set()).ways(found.convolution):
            yield replace(
                way,
                algorithm=f"{way.algorithm} of {self.name}",
                cycles=way.cycles + more,
                is_blocked=way.is_blocked and whole,
                make=partial(_make, found, way),
            )


INTERLEAVED_PHASES = InterleavedPhases()


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


def _is_possible(node: Node, constants: Mapping[Value, Array]) -> bool:
    """Whether all phases have equally many taps, all filters read all channels, and parameters are known."""
    if node.op != _PHASES or any(v is not None and v not in constants for v in node.inputs[1:]):
        return False
    attributes = dict(node.attributes)
    strides = _strides(node)
    own = phases(_extents(attributes, "kernel"), strides, _integers(attributes, "dilations"))
    return attributes.get("group", 1) == 1 and all(dim.are_even for dim in own)


def _interleaved(node: Node, constants: Mapping[Value, Array], names: Names) -> _Interleaved | None:
    """Nodes equivalent to the ``PhaseConv`` ``node``, if one convolution suffices.

    Filter ``p * CO + co`` computes phase ``p`` of output channel ``co``; phases are in row-major order.
    """
    if not _is_possible(node, constants):
        return None
    data, filters, bias = (*node.inputs, None)[:3]
    assert data is not None and filters is not None, "a convolution has data and filters"
    attributes, strides, result = dict(node.attributes), _strides(node), node.outputs[0]
    begins, spatial = _integers(attributes, "begins"), _extents(attributes, "spatial")
    rank = len(strides)
    by_phase = np.moveaxis(constants[filters], 0, rank)
    merged = np.ascontiguousarray(by_phase.reshape(-1, *by_phase.shape[rank + 1 :]))
    parameters = {_named(filters, merged, names): merged}
    if bias is not None:
        repeated = np.tile(constants[bias], prod(strides))
        parameters[_named(bias, repeated, names)] = repeated
    dilations = tuple(d if s == 1 else 1 for d, s in zip(_integers(attributes, "dilations"), strides, strict=True))
    moves = zip(merged.shape[2:], dilations, begins, strides, strict=True)
    before = [(taps - 1) * dilation - begin // stride for taps, dilation, begin, stride in moves]
    ends = zip(begins, spatial, strides, data.shape[2:], strict=True)
    after = [number((y + (begin - 1)) // stride + 1 - own) for begin, y, stride, own in ends]
    options: Attributes = {"pads": (*before, *after), "dilations": dilations}
    called = names.fresh(f"{result.name}.phases")
    convolution = make_node(_CONVOLUTION, [data, *parameters], [called], options, node.source)
    offsets = tuple(begin % stride for begin, stride in zip(begins, strides, strict=True))
    places: Attributes = {"strides": strides, "offsets": offsets, "spatial": spatial}
    interleaving = make_node(_INTERLEAVE, convolution.outputs, [result.name], places, node.source)
    return _Interleaved(convolution, interleaving, parameters)


_PHASES, _CONVOLUTION, _INTERLEAVE = require("PhaseConv"), require("Conv"), require("PhasesToSpace")


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
