"""A random model with its inputs, as data: it becomes an ONNX model, JSON, or a smaller case."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array: TypeAlias = NDArray[np.generic]
Attribute: TypeAlias = int | float | str | list[int] | list[float] | list[str] | Array
"""An array stands for a tensor."""

IR_VERSION = 10


@dataclass(frozen=True)
class Node:
    """One ONNX node; an empty name is an input or output that is left out."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])

    def __post_init__(self) -> None:
        """Floats are what ONNX can store: of 32 bits."""
        stored = {n: float(np.float32(v)) if isinstance(v, float) else v for n, v in self.attributes.items()}
        object.__setattr__(self, "attributes", stored)

    def proto(self) -> onnx.NodeProto:
        made = {
            name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            for name, value in self.attributes.items()
        }
        return helper.make_node(self.op_type, self.inputs, self.outputs, **made)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{', '.join(self.outputs)} = {self.op_type}({', '.join(self.inputs)}){f' {options}' if options else ''}"


@dataclass(frozen=True)
class Case:
    """A model, what it is fed, and how it is compiled.

    ``parameters``: constants that say what a node does (axes, shapes, scales), and are therefore known exactly.
    """

    name: str
    opset: int
    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array]
    parameters: Mapping[str, Array]
    outputs: tuple[str, ...]
    threads: int = 1
    checked: bool = False

    def model(self) -> onnx.ModelProto:
        """The ONNX model; types of outputs are left to inference."""
        infos = [_info(name, array) for name, array in self.inputs.items()]
        results = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        known = {**self.constants, **self.parameters}
        initializers = [numpy_helper.from_array(array, name) for name, array in known.items()]
        graph = helper.make_graph([node.proto() for node in self.nodes], "random", infos, results, initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def __str__(self) -> str:
        lines = [f"{self.name}: opset {self.opset}, {self.threads} threads{', checked' if self.checked else ''}"]
        for kind in ("inputs", "constants", "parameters"):
            for name, array in getattr(self, kind).items():
                few = f" {array.tolist()}" if array.size <= 8 else ""
                lines.append(f"  {kind[:-1]} {name}: {array.dtype}{list(array.shape)}{few}")
        return "\n".join([*lines, *(f"  {node}" for node in self.nodes), f"  -> {', '.join(self.outputs)}"])


def pruned(case: Case) -> Case:
    """The case without what no output needs."""
    needed = set(case.outputs)
    nodes: list[Node] = []
    for node in reversed(case.nodes):
        if needed & set(node.outputs):
            optional = _optional(node.op_type, case.opset)
            kept = tuple(
                ""
                if name not in needed and (position in optional or not needed & set(node.outputs[position:]))
                else name
                for position, name in enumerate(node.outputs)
            )
            nodes.append(replace(node, outputs=_without_tail(kept)))
            needed.update(node.inputs)
    kept_arrays = {
        kind: {name: array for name, array in getattr(case, kind).items() if name in needed}
        for kind in ("inputs", "constants", "parameters")
    }
    return replace(case, nodes=tuple(reversed(nodes)), **kept_arrays)


def _optional(op_type: str, opset: int) -> set[int]:
    """The outputs that may be left out while later ones are there."""
    outputs = onnx.defs.get_schema(op_type, opset, "").outputs
    return {p for p, formal in enumerate(outputs) if formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional}


def _without_tail(names: tuple[str, ...]) -> tuple[str, ...]:
    while not names[-1]:
        names = names[:-1]
    return names


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def single_node(node: Node, operands: Mapping[str, Array], opset: int) -> onnx.ModelProto:
    """A model of one node whose operands are inputs, but for those that say what it does."""
    infos = [_info(name, array) for name, array in operands.items()]
    results = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    graph = helper.make_graph([node.proto()], "one", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


# JSON: what failed once is kept as text.


def to_json(case: Case) -> str:
    """The case as text, with every element."""
    nodes = [
        {
            "op_type": node.op_type,
            "inputs": node.inputs,
            "outputs": node.outputs,
            "attributes": {
                name: _array_out(value) if isinstance(value, np.ndarray) else value
                for name, value in node.attributes.items()
            },
        }
        for node in case.nodes
    ]
    arrays = {
        kind: {name: _array_out(array) for name, array in getattr(case, kind).items()}
        for kind in ("inputs", "constants", "parameters")
    }
    plain = {name: getattr(case, name) for name in ("name", "opset", "outputs", "threads", "checked")}
    return json.dumps({**plain, "nodes": nodes, **arrays}, indent=1) + "\n"


def from_json(text: str) -> Case:
    """What ``to_json`` wrote."""
    read = json.loads(text)
    nodes = tuple(
        Node(
            node["op_type"],
            tuple(node["inputs"]),
            tuple(node["outputs"]),
            {name: _array_in(v) if isinstance(v, dict) else v for name, v in node["attributes"].items()},
        )
        for node in read["nodes"]
    )
    arrays = {
        kind: {name: _array_in(value) for name, value in read[kind].items()}
        for kind in ("inputs", "constants", "parameters")
    }
    return Case(
        read["name"], read["opset"], nodes, **arrays,
        outputs=tuple(read["outputs"]), threads=read["threads"], checked=read["checked"],
    )  # fmt: skip


def _array_out(array: Array) -> dict[str, object]:
    elements: Sequence[object] = array.reshape(-1).tolist()
    return {"dtype": str(array.dtype), "shape": array.shape, "elements": " ".join(map(repr, elements))}


def _array_in(read: Mapping[str, object]) -> Array:
    dtype = np.dtype(str(read["dtype"]))
    words = str(read["elements"]).split()
    elements = [word == "True" for word in words] if dtype.kind == "b" else words
    wide = np.array(elements, np.float64 if dtype.kind == "f" else dtype)
    return wide.astype(dtype).reshape(read["shape"])
