"""Graphs of ``torch.compile``: what their inputs and outputs are, and parts of them as modules that can be exported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from tilewright.base.errors import UnsupportedModel
from tilewright.frontend.onnx.read.user_lines import line_of


@dataclass(frozen=True, slots=True)
class Inputs:
    """Facts about the inputs of a graph, by their places."""

    names: tuple[str, ...]
    sizes: Mapping[int, tuple[int, int]]
    """Sizes: the place of a tensor, and the dimension of it that they are the extent of."""
    open_dimensions: Mapping[int, tuple[int, ...]]
    """The dimensions of tensors that may change from call to call."""
    numbers: frozenset[int]
    """Numbers that are handed over as tensors, of which the graph takes the item."""


def inputs_of(graph: torch.fx.GraphModule) -> Inputs:
    """The facts that PyTorch notes in a graph."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("example_value") for node in nodes]
    extents: dict[str, tuple[int, int]] = {}
    open_dimensions: dict[int, tuple[int, ...]] = {}
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            symbols = {dim: symbol for dim, extent in enumerate(value.shape) if (symbol := _symbol(extent))}
            open_dimensions[place] = tuple(symbols)
            for dim, symbol in symbols.items():
                extents.setdefault(symbol, (place, dim))
    named = {place: symbol for place, value in enumerate(values) if (symbol := _symbol(value))}
    sizes = {place: extents[symbol] for place, symbol in named.items() if symbol in extents}
    numbers = (place for place, node in enumerate(nodes) if node.users and all(map(_is_item, node.users)))
    return Inputs(tuple(node.name for node in nodes), sizes, open_dimensions, frozenset(numbers))


def _symbol(extent: object) -> str | None:
    """The text of an extent that may change; None for a number, also one that PyTorch found to be the only one."""
    text = str(extent)
    return text if isinstance(extent, torch.SymInt) and not text.isdecimal() else None


def _is_item(node: torch.fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"


def computed_by_torch(graph: torch.fx.GraphModule) -> list[bool]:
    """Which outputs share memory with an input, or are no tensors: PyTorch computes these, from shapes only.

    Raises ``UnsupportedModel`` if all are so, and the graph computes tensors nevertheless: it writes them to inputs.
    """
    nodes = list(graph.graph.nodes)
    held = {_memory(node) for node in nodes if node.op == "placeholder"}
    found = [_memory(output) in {None, *held} for output in _outputs(graph)]
    if all(found) and any(_memory(node) not in {None, *held} for node in nodes):
        lines = (line_of(str(node.meta.get("stack_trace") or "")) for node in reversed(nodes))
        raise UnsupportedModel(
            f"the program writes to its inputs, at {next(filter(None, lines), 'an unknown line')}; a compiled model "
            "keeps no state: return the new values as outputs"
        )
    return found


def _memory(node: object) -> int | None:
    """The identity of the memory of a node's tensor; None for no tensor."""
    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return None
    return value.untyped_storage()._cdata  # it has no data pointer


def _outputs(graph: torch.fx.GraphModule) -> tuple[object, ...]:
    """What the graph returns: nodes, and constants."""
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return tuple(cast("Sequence[object]", output.args[0]))


def with_outputs(graph: torch.fx.GraphModule, places: Sequence[int], *, is_pure: bool) -> torch.fx.GraphModule:
    """``graph`` with these of its outputs only; ``is_pure``: without what they do not need, also if it has effects."""
    part = torch.fx.Graph()
    returned = cast("Sequence[object]", part.graph_copy(graph.graph, {}))
    part.output(tuple(returned[place] for place in places))
    if is_pure:
        part.eliminate_dead_code()
    return torch.fx.GraphModule(graph, part)


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph in which some tensors of one number are numbers."""

    def call_method(self, target: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if target == "item" and not isinstance(args[0], torch.Tensor):
            return args[0]
        return super().call_method(target, args, kwargs)


class Bound(torch.nn.Module):
    """A graph as a module of its free tensors: some inputs are constants, and sizes are those of the tensors.

    Each node keeps the line of the user's program that it comes from.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        inputs: Inputs,
        weights: Mapping[int, torch.Tensor],
        fixed: Mapping[int, object],
    ) -> None:
        """``weights`` and ``fixed``: inputs that are constants, by place."""
        super().__init__()
        self._interpreter = _Interpreter(graph)
        self._inputs = inputs
        self._fixed = fixed
        self._weights = {place: inputs.names[place] for place in weights}
        for place, weight in weights.items():
            self.register_buffer(inputs.names[place], weight.detach())
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> object:
        given: dict[int, object] = dict(self._fixed)
        given |= {place: self.get_buffer(name) for place, name in self._weights.items()}
        places, sizes = range(len(self._inputs.names)), self._inputs.sizes
        free = (place for place in places if place not in given and place not in sizes)
        given |= dict(zip(free, tensors, strict=True))
        for place, (tensor, dim) in sizes.items():
            given[place] = cast(torch.Tensor, given[tensor]).shape[dim]
        with torch.fx.traceback.preserve_node_meta():
            return self._interpreter.run(*(given[place] for place in places))
