"""Pools over large windows one dimension after the other: 5 + 5 elements instead of 25.

The maximum of a window is that of the maxima of its rows, and its mean that of their means: how many of its elements
count is the product of how many count along each dimension.
"""

from collections.abc import Iterator
from functools import partial
from math import prod

from tilewright.graph import Node, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Reads, can_be_blocked

_POOLS = (require("MaxPool"), require("AveragePool"))
_NEUTRAL = {"kernel_shape": 1, "strides": 1, "dilations": 1}
"""What leaves a dimension as it is; pads are 0."""


class AxisByAxis:
    """For windows with over twice as many elements as along all dimensions: values between the pools are stored."""

    name = "axis by axis"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        kernel = _kernel(node)
        several = sum(taps > 1 for taps in kernel) > 1
        if not several or prod(kernel) <= 2 * sum(kernel):
            return
        yield Way(self.name, make=partial(_make, False))
        if can_be_blocked(node.outputs[0], facts.target) and node.inputs[0] in facts.may_be_blocked:
            yield Way(self.name, is_blocked=True, reads=Reads.RATHER_BLOCKED, make=partial(_make, True))


AXIS_BY_AXIS = AxisByAxis()


def _kernel(node: Node) -> tuple[int, ...]:
    """The extents of the window of a pool; none for other nodes, or if extents are known only at run time."""
    kernel = dict(node.attributes).get("kernel_shape")
    known = node.op in _POOLS and node.outputs[0].dtype.is_float and static(node.outputs[0].shape) is not None
    if not known or not isinstance(kernel, tuple):
        return ()
    return tuple(taps for taps in kernel if isinstance(taps, int)) if all(isinstance(t, int) for t in kernel) else ()


def _make(is_blocked: bool, node: Node, building: Building) -> None:
    """Adds a pool for each dimension of the window that has several elements."""
    dims = [dim for dim, taps in enumerate(_kernel(node)) if taps > 1 or _moves(node, dim)]
    data = node.inputs[0]
    assert data is not None, "a pool has an input"
    for dim in dims:
        name = node.outputs[0].name if dim == dims[-1] else building.names.fresh(f"{node.outputs[0].name}.axis{dim}")
        pool = make_node(node.op, [data], [name], _along(node, dim), node.source)
        building.append(pool, Reads.RATHER_BLOCKED if is_blocked else Reads.PLAIN)
        data = pool.outputs[0]
        if is_blocked:
            building.in_blocks.add(data)


def _moves(node: Node, dim: int) -> bool:
    """Whether the pool changes a dimension in which its window has one element."""
    attributes = dict(node.attributes)
    pads = attributes.get("pads")
    own = pads[dim :: len(_kernel(node))] if isinstance(pads, tuple) else ()
    return _entry(attributes, "strides", dim) != 1 or any(pad != 0 for pad in own)


def _entry(attributes: dict[str, Attribute], name: str, dim: int) -> int:
    values = attributes.get(name)
    return int(str(values[dim])) if isinstance(values, tuple) and values else 1


def _along(node: Node, dim: int) -> dict[str, Attribute]:
    """The attributes of the pool along ``dim`` alone."""
    attributes, rank = dict(node.attributes), len(_kernel(node))
    for name, neutral in _NEUTRAL.items():
        given = attributes.get(name)
        if isinstance(given, tuple) and given:
            attributes[name] = tuple(_entry(attributes, name, dim) if at == dim else neutral for at in range(rank))
    pads = attributes.get("pads")
    if isinstance(pads, tuple) and pads:
        attributes["pads"] = tuple(int(str(pad)) if at % rank == dim else 0 for at, pad in enumerate(pads))
    return attributes
