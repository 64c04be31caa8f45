"""3x3 convolutions by Winograd's minimal filtering, where it is estimated to be faster.

One node becomes three: the transform of the input, 36 matrix products, and the transform back, which takes over the
bias and is what an epilogue joins. Filters are transformed here, in float64.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.base.numerics import Math
from tilewright.base.target import Target
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.ops.winograd import POINTS, TILE, transformed_filter
from tilewright.symbolic.expr import const

ADVANTAGE = 1.25
"""By how much the estimate must be lower: it knows nothing of caches, and errors grow about tenfold."""
FAST_ADVANTAGE = 1.0
"""The same under ``math="fast"``."""
TRANSFORM_CYCLES = 6.0
"""Cycles for each vector of a transformed input or product."""
WEIGHT_BYTES_PER_CYCLE = 8.0
"""What is read of weights that fit in no cache of a core's own."""


def use_winograd(graph: Graph, target: Target, math: Math = Math.DEFAULT, spare: int | None = None) -> Graph:
    """``graph`` with the convolutions for which it pays in the transformed domain, if ``math`` has such algorithms.

    ``spare``: the most bytes by which weights may grow; what saves most for a byte comes first. None: no limit.
    """
    if math is Math.STRICT:
        return graph
    candidates = {node: problem for node in graph.nodes if (problem := _problem(node, graph)) is not None}
    advantage = FAST_ADVANTAGE if math is Math.FAST else ADVANTAGE
    paying = {node: problem for node, problem in candidates.items() if problem.pays(target, advantage)}
    chosen = paying if spare is None else dict(_affordable(paying, target, spare))
    rewriting = _Rewriting(dict(graph.constants))
    nodes = (rewriting.nodes(node, chosen[node]) if node in chosen else (node,) for node in graph.nodes)
    return replace(graph, nodes=tuple(chain.from_iterable(nodes)), constants=rewriting.constants)


def _affordable(problems: Mapping[Node, "_Problem"], target: Target, spare: int) -> Iterator[tuple[Node, "_Problem"]]:
    """Those that save most for each byte of weights, as long as there are ``spare`` bytes left.

    Filters that several nodes share are counted for each.
    """
    for node, problem in sorted(problems.items(), key=lambda item: -item[1].saved(target) / item[1].more_bytes):
        if problem.more_bytes <= spare:
            spare -= problem.more_bytes
            yield node, problem


@dataclass(frozen=True, slots=True)
class _Problem:
    """Extents of a convolution."""

    data: tuple[int, ...]
    result: tuple[int, ...]

    @property
    def tiles(self) -> int:
        """Tiles of the result of all images."""
        return self.result[0] * prod(-(-extent // TILE) for extent in self.result[2:])

    @property
    def more_bytes(self) -> int:
        """By how much transformed filters are larger."""
        return (POINTS * POINTS - 9) * max(1, self.data[1]) * self.result[1] * f32.itemsize

    def pays(self, target: Target, advantage: float) -> bool:
        """Whether the transformed domain is estimated to take clearly fewer cycles: fewer by that factor."""
        direct, transformed = self._cycles(target)
        return advantage * transformed < direct

    def saved(self, target: Target) -> float:
        """The cycles that are estimated to be saved."""
        direct, transformed = self._cycles(target)
        return direct - transformed

    def _cycles(self, target: Target) -> tuple[float, float]:
        """Of the plain convolution, and in the transformed domain."""
        lanes = target.vector_bits // (8 * f32.itemsize)
        channels, filters = self.data[1], self.result[1]
        rate = lanes * target.fma_per_cycle
        direct = self.result[0] * prod(self.result[2:]) * 9 * channels * filters / rate
        points = POINTS * POINTS
        products = points * self.tiles * channels * filters / rate
        transforms = points * self.tiles * (channels + filters) / lanes * TRANSFORM_CYCLES
        weights = points * channels * filters * f32.itemsize
        streamed = weights / WEIGHT_BYTES_PER_CYCLE if weights > target.l2_bytes else 0.0
        return direct, products + transforms + streamed


@dataclass(slots=True)
class _Rewriting:
    """One pass over a graph; transformed filters are added to the constants."""

    constants: dict[Value, Array]

    def nodes(self, node: Node, problem: _Problem) -> Iterator[Node]:
        """What does the same as ``node`` in the transformed domain."""
        data, weight, bias = (*node.inputs, None)[:3]
        result = node.outputs[0]
        assert data is not None and weight is not None, "a convolution has data and a weight"
        top, left, *_ = _pads(node)
        outputs = problem.result[2:]
        entering = make_node(
            require("WinogradInput"),
            [data],
            [f"{result.name}.tiles"],
            {"pads": (top, left), "outputs": outputs},
            node.source,
        )
        tiles = entering.outputs[0]
        rows = (POINTS * POINTS, problem.tiles, problem.data[1])
        matrices = make_node(_RESHAPE, [tiles], [f"{result.name}.rows"], {"shape": rows}, node.source)
        products = make_node(
            require("MatMul"),
            [matrices.outputs[0], self._filter(weight)],
            [f"{result.name}.products"],
            {},
            node.source,
        )
        shape = (*(int(str(e)) for e in tiles.shape[:-1]), problem.result[1])
        places = make_node(_RESHAPE, products.outputs, [f"{result.name}.places"], {"shape": shape}, node.source)
        inputs = [places.outputs[0], *([] if bias is None else [bias])]
        leaving = make_node(require("WinogradOutput"), inputs, [result.name], {"outputs": outputs}, node.source)
        yield from (entering, matrices, products, places, leaving)

    def _filter(self, weight: Value) -> Value:
        """The transformed filters, once for each weight."""
        array = self.constants[weight]
        shape = (POINTS * POINTS, array.shape[1], array.shape[0])
        value = Value(f"{weight.name}.winograd", weight.dtype, tuple(map(const, shape)))
        if value not in self.constants:
            self.constants[value] = transformed_filter(array).astype(np.float32)
        return value


def _problem(node: Node, graph: Graph) -> _Problem | None:
    """The extents, if ``node`` is a convolution of the one kind for which this is."""
    attributes: Mapping[str, object] = dict(node.attributes)
    if node.op.name != "Conv" or len(node.outputs) != 1:
        return None
    data, weight, result = node.inputs[0], node.inputs[1], node.outputs[0]
    if data is None or weight is None or weight not in graph.constants or result.dtype != f32:
        return None
    shapes = [static(value.shape) for value in (data, weight, result)]
    plain = attributes.get("group", 1) == 1 and all(_ones(attributes.get(name)) for name in ("strides", "dilations"))
    if not plain or shapes[0] is None or shapes[1] is None or shapes[2] is None:
        return None
    return _Problem(shapes[0], shapes[2]) if shapes[1][2:] == (3, 3) and prod(shapes[2]) > 0 else None


_RESHAPE = require("Reshape")


def _pads(node: Node) -> tuple[int, ...]:
    pads = dict(node.attributes).get("pads")
    return tuple(int(str(pad)) for pad in pads) if isinstance(pads, tuple) and pads else (0, 0, 0, 0)


def _ones(values: object) -> bool:
    return values in (None, (1,), (1, 1), (1, 1, 1))
