"""Transposed convolutions as one product of all filters and taps with the data, whose rows are added up afterwards.

A phase has some of the taps, and a convolution for each copies its data with padding, and reads them again. For few
filters, a product has enough rows only if taps are rows, too; its data are read as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.alternatives.phases import interleaving_cycles
from tilewright.passes.blocks import Reads, points, register_of
from tilewright.symbolic.expr import const


class TapProducts:
    """The product in the best way, one pass that adds its rows up by phase, and one that interleaves the phases."""

    name = "products of taps"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is None:
            return
        alone = replace(facts, constants={**facts.constants, found.weight: found.rows}, may_be_blocked=set[Value]())
        result = found.product.outputs[0]
        moving = facts.target.machine.copy_cycles * points(result.shape) / register_of(result, facts.target)
        plain = [replace(way, cycles=way.cycles + moving * way.is_blocked) for way in alone.ways(found.product)]
        best = min(plain, key=lambda way: way.cycles)
        cycles = best.cycles + moving + interleaving_cycles(node, facts)
        yield Way(self.name, cycles, make=partial(_make, found, best), errors=best.errors)


TAP_PRODUCTS = TapProducts()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution with a single tap, whose filters are ``rows``; the attributes of what adds up its results by phase,
    and of what interleaves these."""

    product: Node
    weight: Value
    rows: Array
    sums: dict[str, Attribute]
    places: dict[str, Attribute]


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The product; None if parameters or extents are not known, or if there are groups, or dilations."""
    if node.op != _PHASES or any(v is not None and v not in facts.constants for v in node.inputs[1:]):
        return None
    data, filters = node.inputs[:2]
    assert data is not None and filters is not None, "a convolution has data and filters"
    attributes, shape, outputs = dict(node.attributes), static(data.shape), static(node.outputs[0].shape)
    if shape is None or outputs is None or 0 in (*shape, *outputs) or attributes.get("group", 1) != 1:
        return None
    kernel, begins, dilations = (_integers(attributes[name]) for name in ("kernel", "begins", "dilations"))
    if set(dilations) != {1}:
        return None
    rank = len(kernel)
    strides = facts.constants[filters].shape[1 : rank + 1]
    rows = _by_tap(facts.constants[filters], kernel)
    weight = Value(facts.names.fresh(f"{filters.name}.taps"), filters.dtype, tuple(map(const, rows.shape)))
    made = facts.names.fresh(f"{node.outputs[0].name}.products")
    firsts = tuple(begin // stride for begin, stride in zip(begins, strides, strict=True))
    moves = zip(begins, outputs[2:], strides, firsts, strict=True)
    counts = tuple((begin + y - 1) // stride + 1 - first for begin, y, stride, first in moves)
    offsets = tuple(begin % stride for begin, stride in zip(begins, strides, strict=True))
    return _Problem(
        make_node(_CONVOLUTION, [data, weight], [made], {}, node.source),
        weight,
        rows,
        {"kernel": kernel, "strides": strides, "firsts": firsts, "places": counts},
        {"strides": strides, "offsets": offsets, "spatial": outputs[2:]},
    )


def _by_tap(filters: Array, kernel: Sequence[int]) -> Array:
    """Filters of phases ``[CO, strides..., CI, taps...]``, whose taps are reversed, as ``[CO * kernel, CI, 1...]``."""
    rank, (count, *_) = len(kernel), filters.shape
    channels = filters.shape[rank + 1]
    forward = np.flip(filters, tuple(range(rank + 2, 2 * rank + 2)))
    tap_and_phase = [axis for dim in range(rank) for axis in (rank + 2 + dim, 1 + dim)]
    whole = [filters.shape[rank + 2 + dim] * filters.shape[1 + dim] for dim in range(rank)]
    by_tap = forward.transpose(0, *tap_and_phase, rank + 1).reshape(count, *whole, channels)
    own = by_tap[(slice(None), *map(slice, kernel))]
    return np.ascontiguousarray(own).reshape(-1, channels, *[1] * rank)


def _make(found: _Problem, way: Way, node: Node, building: Building) -> None:
    """Adds the product, the sums of its rows, their places, and the bias."""
    building.constants[found.weight] = found.rows
    building.compute(found.product, way)
    rows = building.plain(found.product.outputs[0], way)
    sums = building.add(_SUMS, [rows], node, "phases", found.sums)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    added = building.add(_INTERLEAVE, [sums], node, "" if bias is None else "sums", found.places, Reads.AS_THEY_ARE)
    if bias is not None:
        along: dict[str, Attribute] = {"shape": (*bias.shape, *[1] * (len(node.outputs[0].shape) - 2))}
        building.add(_ADD, [added, building.add(_RESHAPE, [bias], node, "bias", along)], node)


_PHASES, _CONVOLUTION = require("PhaseConv"), require("Conv")
_SUMS, _INTERLEAVE = require("TapSums"), require("PhasesToSpace")
_RESHAPE, _ADD = require("Reshape"), require("Add")


def _integers(values: Attribute) -> tuple[int, ...]:
    assert isinstance(values, tuple), "there is an entry for each dimension"
    return tuple(int(str(value)) for value in values)
