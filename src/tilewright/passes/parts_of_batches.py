"""Runs groups for a part of the batch at a time, so that the values between them stay in a near cache.

Consecutive groups that compute each image of a batch independently of the others are made again for fewer images; main
calls them in a loop over the parts (``main_program``). Each image has the same sums as without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import BadProgram
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.graph.ir import as_placeholder
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.passes.fuse import Group
from tilewright.passes.layout import LaidOut
from tilewright.symbolic.expr import TRUE, ZERO, Expr, Read, const
from tilewright.symbolic.traversal import transform_reads
from tilewright.tensor.ir import Compute, Placeholder, Tensor, inputs_of, reads_of, topological_order

_RESHAPE = require("Reshape")


@dataclass(frozen=True, slots=True)
class InParts:
    """The groups from ``start`` to before ``stop`` run ``count`` times, each time for a part of the batch."""

    start: int
    stop: int
    count: int


@dataclass(frozen=True, slots=True)
class Parted:
    """Groups, some of which are made for a part of the batch: those in ``loops``."""

    laid_out: LaidOut
    groups: tuple[Group, ...]
    loops: tuple[InParts, ...] = ()

    def times(self, at: int) -> int:
        """How often the group number ``at`` runs."""
        return next((loop.count for loop in self.loops if loop.start <= at < loop.stop), 1)


def images_of(group: Group, graph: Graph) -> int:
    """The number of images that ``group`` computes independently of each other, and could for other numbers; else 1."""
    moving = {value for value in group.inputs if value not in graph.constants}
    shapes = [static(value.shape) for value in (*moving, *group.outputs)]
    images = {shape[0] if shape else 1 for shape in shapes}
    if not moving or len(images) > 1 or images == {1}:
        return 1
    for node in group.nodes:
        if moving.intersection(node.inputs):
            if not _keeps_images(node, moving):
                return 1
            moving.update(node.outputs)
    could = moving.issuperset(group.outputs) and _made_for(group, 1, graph) is not None
    return images.pop() if could else 1


def _keeps_images(node: Node, moving: set[Value]) -> bool:
    """Whether each image of the results depends only on this image of those inputs that are ``moving``."""
    inputs = [None if value is None else as_placeholder(value) for value in node.inputs]
    pairs = zip(inputs, node.inputs, strict=True)
    known = {tensor for tensor, value in pairs if tensor is not None and value in moving}
    results = node.op.apply(inputs, dict(node.attributes))
    for op in topological_order(results):
        if isinstance(op, Placeholder) or (isinstance(op, Compute) and known.isdisjoint(inputs_of(op))):
            continue
        if not isinstance(op, Compute) or not _reads_in_place(op, known):
            return False
        known.update(tensor for tensor in _tensors(results) if tensor.op is op)
    return known.issuperset(results)


def _tensors(results: Sequence[Tensor]) -> set[Tensor]:
    """``results``, and all that they are computed from."""
    return {*results, *(tensor for op in topological_order(results) for tensor in inputs_of(op))}


def _reads_in_place(op: Compute, known: set[Tensor]) -> bool:
    """Whether the first axis of ``op`` is only the first index of reads of ``known`` tensors, which have no other."""
    image = op.axes[0].var

    def taken(read: Read) -> Expr | None:
        is_in_place = read.source in known and read.indices[0] == image
        return Read(read.source, (ZERO, *read.indices[1:])) if is_in_place else None

    reads = [indices for source, indices in reads_of(op) if source in known]
    condition = op.reduction.condition if op.reduction else TRUE
    left = [transform_reads(expr, taken) for expr in (*op.values, condition)]
    return all(indices[0] == image for indices in reads) and all(image not in expr.variables for expr in left)


def _made_for(group: Group, size: int, graph: Graph) -> Group | None:
    """``group`` for ``size`` images; None if its attributes are for another number."""
    part = {value: _part(value, size) for value in group.inputs if value not in graph.constants}
    nodes: list[Node] = []
    for node in group.nodes:
        if not part.keys() & set(node.inputs):
            nodes.append(node)
            continue
        inputs = [None if value is None else part.get(value, value) for value in node.inputs]
        names = [value.name for value in node.outputs]
        try:
            made = make_node(node.op, inputs, names, _attributes(node, size), node.source)
        except BadProgram:
            return None
        part.update((value, _part(value, size)) for value in node.outputs)
        if made.outputs != tuple(part[value] for value in node.outputs):
            return None
        nodes.append(made)
    inputs, outputs = (tuple(part.get(value, value) for value in values) for values in (group.inputs, group.outputs))
    return Group(tuple(nodes), inputs, outputs)


def _attributes(node: Node, size: int) -> dict[str, Attribute]:
    """The attributes of ``node`` for ``size`` images: of a reshape, the result's shape."""
    attributes = dict(node.attributes)
    shape = attributes.get("shape")
    if node.op == _RESHAPE and isinstance(shape, tuple):
        attributes["shape"] = (size, *(int(str(extent)) for extent in shape[1:]))
    return attributes


def _part(value: Value, size: int) -> Value:
    return replace(value, shape=(const(size), *value.shape[1:]))


def in_parts(laid_out: LaidOut, groups: Sequence[Group], loops: Sequence[InParts]) -> Parted:
    """``groups`` in ``loops``, made for a part of the batch each."""
    made, nodes, layouts = list(groups), list(laid_out.graph.nodes), dict(laid_out.layouts)
    for loop in loops:
        for at in range(loop.start, loop.stop):
            size = images_of(groups[at], laid_out.graph) // loop.count
            new = _made_for(groups[at], size, laid_out.graph)
            assert new is not None, "groups in loops were made before"
            made[at] = new
            nodes += new.nodes
            known = {*groups[at].inputs, *(value for node in groups[at].nodes for value in node.outputs)}
            layouts.update((_part(value, size), layouts[value]) for value in known if value in laid_out.layouts)
    graph = replace(laid_out.graph, nodes=tuple(nodes))
    return Parted(replace(laid_out, graph=graph, layouts=layouts), tuple(made), tuple(loops))
