"""Convolutions as one product of all filters and taps with the data, whose rows are added up afterwards.

Few filters leave most of a block empty; with their taps, they fill several, and data are read as they are, without
padding. Positions of the data that no output reads are computed, too: strides of a convolution waste most products,
those of a transposed one none, and its phases need no convolutions of their own, each with a padded copy of the data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from tilewright.cost.kernels import pass_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.alternatives.phases import interleaving_cycles
from tilewright.passes.blocks import Reads, points, register_of
from tilewright.symbolic.expr import const
from tilewright.target.target import Target


class TapProducts:
    """The product in the best way, and one pass that adds up its rows; another one interleaves phases."""

    name = "products of taps"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is None:
            return
        alone = replace(facts, constants={**facts.constants, found.weight: found.rows}, may_be_blocked=set[Value]())
        if node.inputs[0] in facts.outside:
            alone = replace(alone, outside=facts.outside.union(found.product.outputs))
        moving = _moving(found.product.outputs[0], facts.target)
        plain = [replace(way, cycles=way.cycles + moving * way.is_blocked) for way in alone.ways(found.product)]
        best = min(plain, key=lambda way: way.cycles)
        cycles = best.cycles + moving + (interleaving_cycles(node, facts) if found.places else 0.0)
        yield Way(self.name, cycles, make=partial(_make, found, best), errors=best.errors)


TAP_PRODUCTS = TapProducts()


def _moving(rows: Value, target: Target) -> float:
    """Cycles of a pass over ``rows``: for its vectors, or for writing and reading what no cache holds."""
    size = points(rows.shape)
    moved = pass_cycles(Work(0, 0, 2 * rows.dtype.itemsize * size), target)
    return max(target.machine.copy_cycles * size / register_of(rows, target), moved)


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution with a single tap, whose filters are ``rows``; the attributes of what adds up its results by phase,
    and of what interleaves these, if there are several."""

    product: Node
    weight: Value
    rows: Array
    sums: dict[str, Attribute]
    places: dict[str, Attribute]


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The product; None if there are groups, or weights or extents are not known, or it would waste products."""
    if node.op not in (_CONVOLUTION, _PHASES) or dict(node.attributes).get("group", 1) != 1:
        return None
    data, weight = node.inputs[:2]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    shape, outputs = static(data.shape), static(node.outputs[0].shape)
    if weight not in facts.constants or shape is None or outputs is None or 0 in (*shape, *outputs):
        return None
    array = facts.constants[weight]
    taps = _taps(node, array) if node.op == _CONVOLUTION else _taps_of_phases(node, array, outputs[2:])
    if taps is None:
        return None
    rows = np.ascontiguousarray(taps.rows).reshape(-1, shape[1], *[1] * len(taps.kernel))
    value = Value(facts.names.fresh(f"{weight.name}.taps"), weight.dtype, tuple(map(const, rows.shape)))
    made = facts.names.fresh(f"{node.outputs[0].name}.products")
    product = make_node(_CONVOLUTION, [data, value], [made], {}, node.source)
    moves = zip(taps.begins, outputs[2:], taps.strides, strict=True)
    sums: dict[str, Attribute] = {
        "kernel": taps.kernel,
        "strides": taps.strides,
        "dilations": taps.dilations,
        "firsts": taps.firsts,
        "places": tuple((begin + y - 1) // stride + 1 - begin // stride for begin, y, stride in moves),
    }
    return _Problem(product, value, rows, sums, taps.places(outputs[2:]))


@dataclass(frozen=True, slots=True)
class _Taps:
    """``rows``: ``[CO, kernel..., CI]``; an entry of the others for each spatial dimension. The first output is
    ``begins`` after what the first element of the data adds through the first tap."""

    rows: Array
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first places in the result, in whole strides."""
        return tuple(begin // stride for begin, stride in zip(self.begins, self.strides, strict=True))

    def places(self, outputs: tuple[int, ...]) -> dict[str, Attribute]:
        """What interleaves phases; empty if there is one."""
        if prod(self.strides) == 1:
            return {}
        offsets = tuple(begin % stride for begin, stride in zip(self.begins, self.strides, strict=True))
        return {"strides": self.strides, "offsets": offsets, "spatial": outputs}


def _taps(node: Node, weight: Array) -> _Taps | None:
    """Those of a convolution of stride 1, backwards: tap ``k`` adds to the output ``k * dilation`` before."""
    attributes, kernel = dict(node.attributes), weight.shape[2:]
    rank = len(kernel)
    strides, dilations = (entries_of(attributes.get(name), rank, 1) for name in ("strides", "dilations"))
    pads = entries_of(attributes.get("pads"), 2 * rank, 0)
    if set(strides) != {1} or prod(kernel) == 1:
        return None
    rows = np.moveaxis(np.flip(weight, tuple(range(2, rank + 2))), 1, -1)
    begins = tuple((k - 1) * d - pad for k, d, pad in zip(kernel, dilations, pads[:rank], strict=True))
    return _Taps(rows, kernel, strides, dilations, begins)


def _taps_of_phases(node: Node, filters: Array, outputs: Sequence[int]) -> _Taps | None:
    """Those of a transposed convolution, from filters ``[CO, strides..., CI, taps...]`` whose taps are reversed."""
    attributes, rank = dict(node.attributes), len(outputs)
    kernel, begins, dilations = (entries_of(attributes[name], rank, 0) for name in ("kernel", "begins", "dilations"))
    if set(dilations) != {1}:
        return None
    strides = filters.shape[1 : rank + 1]
    forward = np.flip(filters, tuple(range(rank + 2, 2 * rank + 2)))
    tap_and_phase = [axis for dim in range(rank) for axis in (rank + 2 + dim, 1 + dim)]
    whole = [filters.shape[rank + 2 + dim] * strides[dim] for dim in range(rank)]
    by_tap = forward.transpose(0, *tap_and_phase, rank + 1).reshape(len(filters), *whole, filters.shape[rank + 1])
    return _Taps(by_tap[(slice(None), *map(slice, kernel))], kernel, strides, dilations, begins)


def _make(found: _Problem, way: Way, node: Node, building: Building) -> None:
    """Adds the product, the sums of its rows, their places, and the bias."""
    building.constants[found.weight] = found.rows
    building.compute(found.product, way)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    last = "" if bias is None else "sums"
    rows = building.plain(found.product.outputs[0], way)
    added = building.add(_SUMS, [rows], node, "phases" if found.places else last, found.sums)
    if found.places:
        added = building.add(_INTERLEAVE, [added], node, last, found.places, Reads.AS_THEY_ARE)
    if bias is not None:
        along: dict[str, Attribute] = {"shape": (*bias.shape, *[1] * (len(node.outputs[0].shape) - 2))}
        building.add(_ADD, [added, building.add(_RESHAPE, [bias], node, "bias", along)], node)


_PHASES, _CONVOLUTION = require("PhaseConv"), require("Conv")
_SUMS, _INTERLEAVE = require("TapSums"), require("PhasesToSpace")
_RESHAPE, _ADD = require("Reshape"), require("Add")
