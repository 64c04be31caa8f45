"""Nodes with operators that nobody defined, kept as they are while the rest of a model is optimized.

    rest, kept = cut(model, operators)          # what the nodes make is an input of the rest, what they read an output
    whole = kept.restored(optimized_rest)       # with the nodes, and the model's own inputs and outputs

Nothing is known of such an operator but the types of its results, which the model must have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.foreign import OnnxOperator, chosen
from tilewright.frontend.onnx.read.functions import key_of
from tilewright.frontend.onnx.read.inference import inferred_types
from tilewright.frontend.onnx.read.order import makers_of, reads_of, sort_nodes
from tilewright.frontend.onnx.read.protos import own_domain
from tilewright.frontend.onnx.read.scopes import place_of


@dataclass(frozen=True, slots=True)
class Kept:
    """The nodes, the versions of their domains, and the model's own inputs and outputs."""

    nodes: Sequence[onnx.NodeProto]
    versions: Mapping[str, int]
    inputs: Sequence[str]
    outputs: Sequence[onnx.ValueInfoProto]

    @property
    def operators(self) -> list[str]:
        """The operators, as ``my.domain::Name``."""
        return sorted({f"{node.domain}::{node.op_type}" for node in self.nodes})

    def restored(self, rest: onnx.ModelProto) -> onnx.ModelProto:
        """``rest`` with the nodes in it. Raises ``UnsupportedModel`` if it needs what follows from its own results."""
        model = onnx.ModelProto()
        model.CopyFrom(rest)
        graph = model.graph
        own = [info for info in graph.input if info.name in self.inputs]
        known = {info.name: info for info in graph.output}
        results = [known.get(info.name, info) for info in self.outputs]
        del graph.input[:], graph.output[:]
        graph.input.extend(own)
        graph.output.extend(results)
        graph.node.extend(self.nodes)
        sort_nodes(graph)
        makers = makers_of(graph.node)
        if any(makers.get(name, -1) >= at for at, node in enumerate(graph.node) for name in reads_of(node)):
            names = ", ".join(self.operators)
            raise UnsupportedModel(f"what was found computes values before and after {names} at once; define these")
        there = {own_domain(entry.domain) for entry in model.opset_import}
        missing = ((domain, version) for domain, version in self.versions.items() if domain not in there)
        model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in missing)
        return model


def cut(model: onnx.ModelProto, operators: Iterable[OnnxOperator]) -> tuple[onnx.ModelProto, Kept | None]:
    """The model without the nodes of unknown operators, and these; the model itself if there are none.

    Raises ``UnsupportedModel`` if the model does not say which types their results have.
    """
    versions = {own_domain(entry.domain): entry.version for entry in model.opset_import}
    functions = {(own_domain(f.domain), f.name, f.overload) for f in model.functions}
    known = (*operators,)
    unknown = [
        (position, node)
        for position, node in enumerate(model.graph.node)
        if own_domain(node.domain)
        and key_of(node) not in functions
        and not onnx.defs.has(node.op_type, node.domain)
        and chosen(known, node.domain, node.op_type, versions.get(node.domain, 1)) is None
    ]
    if not unknown:
        return model, None
    return _without(model, dict(unknown), versions)


def _without(
    model: onnx.ModelProto, unknown: Mapping[int, onnx.NodeProto], versions: Mapping[str, int]
) -> tuple[onnx.ModelProto, Kept]:
    types = inferred_types(model)
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    graph = rest.graph
    made = {name: place_of(node, at) for at, node in unknown.items() for name in node.output if name}
    for name, place in made.items():
        if name not in types:
            raise UnsupportedModel(
                f"{place}: the model does not say of which type its result `{readable(name)}` is; define the operator "
                "(docs/own-operators.md), or add the type to value_info"
            )
    outputs = [*graph.output]
    given = {info.name for info in (*graph.input, *outputs)} | made.keys()
    read = [name for node in unknown.values() for name in sorted(reads_of(node)) if name not in given]
    nodes = [node for at, node in enumerate(model.graph.node) if at not in unknown]
    remaining = [info for info in outputs if info.name not in made]
    del graph.node[:], graph.output[:]
    graph.node.extend(nodes)
    graph.input.extend(types[name] for name in made)
    graph.output.extend((*remaining, *(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(read))))
    if not graph.output:
        raise InvalidModel("all outputs come from operators without a definition: there is nothing to optimize")
    own = [info.name for info in model.graph.input]
    kept = [*unknown.values()]
    domains = {own_domain(node.domain) for node in kept}
    return rest, Kept(kept, {domain: versions.get(domain, 1) for domain in domains}, own, outputs)
