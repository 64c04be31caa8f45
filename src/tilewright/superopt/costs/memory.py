"""Estimates the memory of a graph before it is planned.

An estimate for comparing graphs: nodes run one by one in the order of the graph, each value is kept from when it is
made until it was last read, views and what they see are one, and weights are kept all the time. Fusion makes it less.
"""

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from tilewright.graph import Graph, Node, Value
from tilewright.ops import FusionKind
from tilewright.passes.rules import index_of
from tilewright.symbolic.expr import Const
from tilewright.target.machine import GUESSED_EXTENT


def size_of(value: Value) -> int:
    """Bytes; extents that are known at run time only count as ``GUESSED_EXTENT``."""
    return value.dtype.itemsize * prod(int(e.value) if isinstance(e, Const) else GUESSED_EXTENT for e in value.shape)


def peak_memory(graph: Graph) -> int:
    """Bytes of weights, and of the values that are alive at once, at most. The caller's inputs are not counted."""
    index = index_of(graph)
    running = [node for node in graph.nodes if node.outputs[0].name not in index.weights]
    read = {value for node in running for value in node.inputs if value is not None and value.name in index.weights}
    return sum(map(size_of, read)) + _most_alive(running, index.leaving)


def _most_alive(nodes: Sequence[Node], leaving: Collection[str]) -> int:
    """Bytes of what ``nodes`` make. Those called ``leaving`` are alive to the end."""
    alive = np.zeros(len(nodes), np.int64)
    for buffer, (first, last) in _lifetimes(nodes, leaving).items():
        alive[first : last + 1] += size_of(buffer)
    return int(alive.max(initial=0))


def _lifetimes(nodes: Sequence[Node], leaving: Collection[str]) -> Mapping[Value, tuple[int, int]]:
    """The positions at which each value is made, and last read, by way of a view or directly."""
    buffers: dict[str, Value] = {}
    lives: dict[Value, tuple[int, int]] = {}
    for position, node in enumerate(nodes):
        for value in node.inputs:
            if value is not None and value.name in buffers:
                buffer = buffers[value.name]
                lives[buffer] = (lives[buffer][0], max(lives[buffer][1], position))
        for value in node.outputs:
            buffer = _buffer(node, value, buffers)
            if buffer is not None:
                last = len(nodes) if value.name in leaving else position
                first, before = lives.get(buffer, (position, position))
                buffers[value.name], lives[buffer] = buffer, (first, max(before, last))
    return lives


def _buffer(node: Node, value: Value, buffers: Mapping[str, Value]) -> Value | None:
    """Where ``value`` is, which ``node`` makes: a view is where it sees; None if that is the caller's."""
    if node.op.kind is not FusionKind.VIEW:
        return value
    seen = node.inputs[0]
    return None if seen is None else buffers.get(seen.name)
