"""Scopes: bindings of names in a model, places of nodes, and errors for unbound names."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tilewright.base.errors import InvalidModel, ResourceLimit
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.listed import Bound
from tilewright.frontend.onnx.read.order import cycle_through, makers_of, topological_order

MAX_DEPTH = 64
"""Maximum nesting of functions and branches."""
_INSIDE = " / "


@dataclass(slots=True)
class Scope:
    """The names of one graph, branch or function body, and the versions of the operators that its nodes use.

    A branch also sees the names around it (``outer``); the body of a function does not.
    """

    nodes: Sequence[onnx.NodeProto]
    opsets: Mapping[str, int]
    place: str = ""
    """The place of this body in the model: a node and a separator. Empty at the top."""
    outer: "Scope | None" = None
    depth: int = 0
    is_own: bool = False
    """Whether this is the body of an ONNX function, which does not see the model's functions."""
    values: dict[str, Bound | None] = field(default_factory=dict[str, Bound | None])
    """The bindings; None: an omitted input of a function."""

    def inside(self, nodes: Sequence[onnx.NodeProto], place: str, *, is_branch: bool) -> "Scope":
        """The scope of a body in the node at ``place``. Raises ``ResourceLimit`` for too deep nesting."""
        if self.depth == MAX_DEPTH:
            raise ResourceLimit(f"{place}: more than {MAX_DEPTH} functions and branches are inside each other")
        return Scope(nodes, self.opsets, f"{place}{_INSIDE}", self if is_branch else None, self.depth + 1, self.is_own)

    def define(self, name: str, value: Bound, place: str) -> None:
        """Bind ``name`` to ``value``. Raises ``InvalidModel`` if it is bound already."""
        if name in self.values:
            raise InvalidModel(f"{place} makes `{readable(name)}`, which exists already; rename one of them")
        self.values[name] = value

    def find(self, name: str, place: str) -> Bound | None:
        """The value of ``name``. Raises ``InvalidModel`` if it is unbound."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise InvalidModel(f"{place} uses `{readable(name)}`, {_why_missing(name, self)}")

    def placed(self) -> Iterator[tuple[onnx.NodeProto, str]]:
        """The nodes in topological order, each with its place in the file. Sorting is logged."""
        order = topological_order(self.nodes)
        if not isinstance(order, range):
            moved = next(position for at, position in enumerate(order) if at != position)
            logging.getLogger("tilewright").warning(
                "%s: the nodes are not in topological order, as ONNX asks for; they are sorted (%s comes too late)",
                self.place.removesuffix(_INSIDE) or "the model",
                place_of(self.nodes[moved], moved),
            )
        for position in order:
            yield self.nodes[position], f"{self.place}{place_of(self.nodes[position], position)}"


def place_of(node: onnx.NodeProto, position: int) -> str:
    """The description of a node for errors."""
    return f"node {readable(node.name) if node.name else position} ({readable(node.op_type)})"


def _why_missing(name: str, scope: Scope) -> str:
    """Why ``name`` is unbound in ``scope``: it has no producer, or nodes form a cycle."""
    around: Scope | None = scope
    while around is not None:
        nodes = around.nodes
        maker = makers_of(nodes).get(name)
        if maker is not None:
            cycle = " -> ".join(place_of(nodes[p], p) for p in _shown(cycle_through(maker, nodes)))
            return f"which needs it in turn: {cycle} is a cycle; break it"
        around = around.outer
    return "which is no input, no constant, and no node's output; correct the name"


_SHOWN_OF_CYCLE = 8


def _shown(cycle: list[int]) -> list[int]:
    """The whole of a short cycle; both ends of a long one."""
    half = _SHOWN_OF_CYCLE // 2
    return cycle if len(cycle) <= _SHOWN_OF_CYCLE else [*cycle[:half], *cycle[-half:]]
