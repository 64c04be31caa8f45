"""Estimates the peak memory of a graph before memory is planned.

An estimate for comparing graphs: nodes run in the order of the graph, each value is live from its definition to its
last read, a view shares the buffer of its operand, and weights are always live. Fusion reduces the actual peak.
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
    """The bytes of a value; run-time extents count as ``GUESSED_EXTENT``."""
    return value.dtype.itemsize * prod(int(e.value) if isinstance(e, Const) else GUESSED_EXTENT for e in value.shape)


def peak_memory(graph: Graph) -> int:
    """Bytes of the weights, plus the maximum bytes of live values. Inputs of the graph are not counted."""
    index = index_of(graph)
    running = [node for node in graph.nodes if node.outputs[0].name not in index.weights]
    read = {value for node in running for value in node.inputs if value is not None and value.name in index.weights}
    return sum(map(size_of, read)) + _most_alive(running, index.leaving)


def _most_alive(nodes: Sequence[Node], leaving: Collection[str]) -> int:
    """The maximum bytes of live values; those named in ``leaving`` are live to the end."""
    alive = np.zeros(len(nodes), np.int64)
    for buffer, (first, last) in _lifetimes(nodes, leaving).items():
        alive[first : last + 1] += size_of(buffer)
    return int(alive.max(initial=0))


def _lifetimes(nodes: Sequence[Node], leaving: Collection[str]) -> Mapping[Value, tuple[int, int]]:
    """The positions of the definition and of the last read of each value; reads of its views count."""
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
    """The value whose buffer contains ``value``, a result of ``node``; None for views of the graph's inputs."""
    if node.op.kind is not FusionKind.VIEW:
        return value
    seen = node.inputs[0]
    return None if seen is None else buffers.get(seen.name)
