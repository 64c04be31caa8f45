"""Coverage of a model: finds all nodes that can't be compiled, not only the first.

The importer stops at the first node that it refuses. Here such a node is removed, its results become inputs of the
model (with the types of ONNX's own inference), and the rest is imported again. Later refusals may be consequences, and
are marked so.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

import onnx

from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.names import readable
from tilewright.frontend.api import Coverage, GivenShapes, OperatorCount, Refusal
from tilewright.frontend.onnx.read import importer, protos
from tilewright.frontend.onnx.read.external_data import Outside
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.inference import inferred_types
from tilewright.frontend.onnx.read.order import sort_nodes
from tilewright.frontend.onnx.read.scopes import place_of
from tilewright.graph import Graph


def coverage(
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: GivenShapes | None = None,
    operators: Sequence[OnnxOperator] = (),
    outside: Outside | None = None,
) -> Coverage:
    """The coverage of the model; ``operators``: in addition to the known ones; ``outside``: see ``importer.load``.

    Raises ``BadInput`` if it can't be read, or is invalid outside of its nodes.
    """
    given = source if isinstance(source, onnx.ModelProto) else protos.read_model(Path(source))
    model = onnx.ModelProto()
    model.CopyFrom(given)
    for position, node in enumerate(model.graph.node):
        node.name = node.name or str(position)
    sort_nodes(model.graph)
    places = {_place(node): _operator(node) for node in model.graph.node}
    counts = Counter(_operator(node) for node in model.graph.node)
    examination = _Examination(model, partial(importer.load, model, shapes, operators=operators, outside=outside))
    refusals = examination.refusals()
    refused = Counter(refusal.operator for refusal in refusals)
    counted = (OperatorCount(name, counts[name], refused[name]) for name in sorted(counts))
    return Coverage(tuple(places), tuple(counted), tuple(refusals))


def _place(node: onnx.NodeProto) -> str:
    """The importer's text for a named node."""
    return place_of(node, 0)


def _operator(node: onnx.NodeProto) -> str:
    domain = protos.own_domain(node.domain)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _is_foreign(node: onnx.NodeProto, reason: str) -> bool:
    """Whether the operator is unknown, so that the reason holds for all nodes with it."""
    return reason.startswith(
        ("there is no definition of the operator ", f"operator {readable(node.op_type)} is not supported")
    )


class _Examination:
    """A model from which refused nodes are removed one by one."""

    def __init__(self, model: onnx.ModelProto, load: Callable[[], Graph]) -> None:
        """``load`` imports ``model`` in its present state."""
        self._model = model
        self._load = load
        self._cut: set[str] = set()
        """Results of refused nodes, and all values that depend on them."""

    @cached_property
    def _types(self) -> dict[str, onnx.ValueInfoProto]:
        """Types of inner values, as far as ONNX infers them: of the whole model, so before any cut."""
        return inferred_types(self._model)

    def refusals(self) -> list[Refusal]:
        """All refused nodes, in the order in which they were found."""
        found: list[Refusal] = []
        while self._model.graph.output or not found:
            try:
                self._load()
            except (Unsupported, BadInput) as error:
                node = self._named_in(str(error))
                if node is None:
                    if isinstance(error, BadInput) and not found:
                        raise
                    break
                reason = str(error).removeprefix(f"{_place(node)}: ")
                found += (
                    self._without_operator(node, reason) if _is_foreign(node, reason) else [self._without(node, reason)]
                )
            else:
                break
        return found

    def _named_in(self, message: str) -> onnx.NodeProto | None:
        return next((node for node in self._model.graph.node if message.startswith(_place(node))), None)

    def _without(self, node: onnx.NodeProto, reason: str) -> Refusal:
        refusal = Refusal(_place(node), _operator(node), reason, not self._cut.isdisjoint(node.input))
        self._replace(node)
        self._spread()
        return refusal

    def _without_operator(self, node: onnx.NodeProto, reason: str) -> list[Refusal]:
        """All nodes with the unknown operator of ``node``: each is refused independently."""
        alike = [other for other in self._model.graph.node if _operator(other) == _operator(node)]
        for other in alike:
            if other in self._model.graph.node:  # not removed together with its inputs
                self._replace(other)
        self._spread()
        return [Refusal(_place(other), _operator(other), reason, follows=False) for other in alike]

    def _replace(self, node: onnx.NodeProto) -> None:
        """Remove ``node``: its results become inputs, or, if their types are unknown, their readers are removed too."""
        graph, types = self._model.graph, self._types
        outputs = [name for name in node.output if name]
        self._cut.update(outputs)
        graph.node.remove(node)
        lost = [name for name in outputs if name not in types]
        graph.input.extend(types[name] for name in outputs if name in types)
        for reader in [other for other in graph.node if set(lost).intersection(other.input)]:
            self._replace(reader)
        for info in [info for info in graph.output if info.name in lost]:
            graph.output.remove(info)

    def _spread(self) -> None:
        """Record the dependents of removed nodes; nodes are in topological order."""
        for node in self._model.graph.node:
            if not self._cut.isdisjoint(node.input):
                self._cut.update(name for name in node.output if name)
