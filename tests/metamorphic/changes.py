"""Other ways to write an ONNX model that say the same."""

from collections.abc import Iterable, Mapping, MutableSequence
from random import Random
from typing import Protocol, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

T = TypeVar("T")


class Change(Protocol):
    """A copy of the model that says the same."""

    __name__: str

    def __call__(self, model: onnx.ModelProto, random: Random) -> onnx.ModelProto: ...


def nodes_reordered(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """The nodes in any order in which each comes after what it reads."""
    changed = _copied(model)
    nodes = list(changed.graph.node)
    makers = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    waiting = {at: {makers[name] for name in _read(node) if name in makers} for at, node in enumerate(nodes)}
    order: list[onnx.NodeProto] = []
    while waiting:
        chosen = random.choice([position for position, makers_left in waiting.items() if not makers_left])
        order.append(nodes[chosen])
        del waiting[chosen]
        for left in waiting.values():
            left.discard(chosen)
    _put(changed.graph.node, order)
    return changed


def initializers_reordered(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """The initializers, and the types of inner values, in any order."""
    changed = _copied(model)
    _put(changed.graph.initializer, _shuffled(changed.graph.initializer, random))
    _put(changed.graph.value_info, _shuffled(changed.graph.value_info, random))
    return changed


def dead_code_added(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Nodes that nobody reads, chains of them, and initializers that nobody reads, anywhere among the others."""
    changed = _copied(model)
    graph = changed.graph
    fresh = _fresh_names(changed, "dead")
    values = _types(changed)
    for name, dtype in random.sample(sorted(values.items()), min(3, len(values))):
        ends = [next(fresh) for _ in range(3)]
        graph.node.append(helper.make_node("Identity", [name], ends[:1]))
        graph.node.append(helper.make_node("Identity", ends[:1], ends[1:2]))
        twice = dtype in (onnx.TensorProto.FLOAT, onnx.TensorProto.INT64)
        graph.node.append(helper.make_node("Add" if twice else "Shape", ends[1:2] * (2 if twice else 1), ends[2:]))
    for array in (np.zeros((3, 0), np.float32), np.arange(5), np.ones((), bool)):
        graph.initializer.append(numpy_helper.from_array(array, next(fresh)))
    return nodes_reordered(changed, random)


def copies_added(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Chains of Identity between a third of the nodes and what they read."""
    changed = _copied(model)
    fresh = _fresh_names(changed, "copy")
    nodes: list[onnx.NodeProto] = []
    for node in changed.graph.node:
        for position, name in enumerate(node.input):
            if name and random.random() < 1 / 3:
                first, second = next(fresh), next(fresh)
                nodes.append(helper.make_node("Identity", [name], [first]))
                nodes.append(helper.make_node("Identity", [first], [second]))
                node.input[position] = second
        nodes.append(node)
    _put(changed.graph.node, nodes)
    return changed


def notes_added(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Documentation, metadata and the producer's name."""
    changed = _copied(model)
    for place in (changed, changed.graph, *changed.graph.node, *changed.graph.input, *changed.graph.output):
        place.doc_string = f"a note {random.random()}"
    for place in (changed, changed.graph, *changed.graph.node):
        place.metadata_props.add(key="k0", value=f"{random.random()}")
    changed.producer_name, changed.model_version = "somebody else", 7
    return changed


def types_added(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """The types of all inner values that ONNX can infer, in any order."""
    changed = onnx.shape_inference.infer_shapes(_copied(model), data_prop=True)
    return initializers_reordered(changed, random)


def types_removed(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """No types of inner values."""
    del random
    changed = _copied(model)
    del changed.graph.value_info[:]
    return changed


CHANGES: tuple[Change, ...] = (
    nodes_reordered,
    initializers_reordered,
    dead_code_added,
    copies_added,
    notes_added,
    types_added,
    types_removed,
)


def all_changes(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """One change after the other, in any order."""
    for change in random.sample(CHANGES, len(CHANGES)):
        model = change(model, random)
    return model


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _put(field: MutableSequence[T], items: Iterable[T]) -> None:
    """In the place of what a repeated field holds."""
    items = list(items)
    del field[:]
    field.extend(items)


def _shuffled(items: Iterable[T], random: Random) -> list[T]:
    found = list(items)
    random.shuffle(found)
    return found


def _read(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, in its bodies as well."""
    bodies = [a.g for a in node.attribute if a.HasField("g")] + [g for a in node.attribute for g in a.graphs]
    return {*node.input, *(name for body in bodies for inner in body.node for name in _read(inner))}


def _names(model: onnx.ModelProto) -> set[str]:
    graph = model.graph
    declared = {info.name for field in (graph.input, graph.initializer, graph.output) for info in field}
    return declared | {name for node in graph.node for name in (*_read(node), *node.output)}


def _fresh_names(model: onnx.ModelProto, prefix: str) -> Iterable[str]:
    taken = _names(model)
    return (f"{prefix}{number}" for number in range(10**6) if f"{prefix}{number}" not in taken)


def _types(model: onnx.ModelProto) -> Mapping[str, int]:
    """The element types of inputs that are tensors, and of initializers."""
    inputs = {info.name: info.type.tensor_type.elem_type for info in model.graph.input if _is_tensor(info)}
    return inputs | {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def _is_tensor(info: onnx.ValueInfoProto) -> bool:
    return info.type.HasField("tensor_type")
