"""Convolutions without the taps that lie in the padding for every position of the result.

A 3x3 filter with a dilation of 18 on an image of 16x16 is a 1x1 filter: all other taps are outside everywhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.alternatives.dimensions import dimensions_of
from tilewright.symbolic.expr import const


class InsideTaps:
    """The smaller filter, in each way to compute that."""

    name = "inside taps"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _smaller(node, facts)
        if found is None:
            return
        for way in replace(facts, constants={**facts.constants, found.weight: found.taps}).ways(found.convolution):
            yield replace(way, algorithm=f"{way.algorithm} of {self.name}", make=partial(_make, found, way))


INSIDE_TAPS = InsideTaps()
_CONVOLUTION = require("Conv")


@dataclass(frozen=True, slots=True)
class _Smaller:
    """An equivalent convolution, and its weight."""

    convolution: Node
    weight: Value
    taps: Array


def _make(found: _Smaller, way: Way, _: Node, building: Building) -> None:
    building.constants[found.weight] = found.taps
    building.compute(found.convolution, way)


def _smaller(node: Node, facts: Facts) -> _Smaller | None:
    """The convolution with fewer taps, if there are such that are always outside."""
    if node.op != _CONVOLUTION or node.inputs[1] not in facts.constants:
        return None
    data, weight, *others = node.inputs
    assert data is not None and weight is not None, "a convolution has data and a weight"
    dimensions = dimensions_of(node)
    used = [dimension.used for dimension in dimensions]
    if not dimensions or not all(used) or all(len(u) == d.taps for u, d in zip(used, dimensions, strict=True)):
        return None
    fewer = [dimension.only(taps) for dimension, taps in zip(dimensions, used, strict=True)]
    if any(dimension.begin < 0 for dimension in fewer):  # ONNX has no pads that cut off
        return None
    kept = (slice(None), slice(None), *(slice(taps.start, taps.stop) for taps in used))
    array = np.ascontiguousarray(facts.constants[weight][kept])
    name = facts.names.fresh(f"{weight.name}.inside")
    smaller = Value(name, weight.dtype, tuple(map(const, array.shape)))
    attributes: Mapping[str, Attribute] = {
        **dict(node.attributes),
        "dilations": tuple(dimension.dilation for dimension in fewer),
        "pads": (*(dimension.begin for dimension in fewer), *(dimension.end for dimension in fewer)),
    }
    convolution = make_node(_CONVOLUTION, [data, smaller, *others], [node.outputs[0].name], attributes, node.source)
    return _Smaller(convolution, smaller, array)
