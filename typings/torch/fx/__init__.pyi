from collections.abc import Iterable

from torch import nn
from torch.fx import traceback as traceback

class Node:
    name: str
    op: str
    target: object
    args: tuple[object, ...]
    meta: dict[str, object]
    users: dict[Node, None]

class Graph:
    @property
    def nodes(self) -> Iterable[Node]: ...
    def graph_copy(self, g: Graph, val_map: dict[Node, Node]) -> object: ...
    def output(self, result: object) -> Node: ...
    def eliminate_dead_code(self) -> bool: ...

class GraphModule(nn.Module):
    graph: Graph
    def __init__(self, root: nn.Module, graph: Graph) -> None: ...
    def __call__(self, *inputs: object) -> tuple[object, ...]: ...  # pyright: ignore[reportIncompatibleMethodOverride]

class Interpreter:
    def __init__(self, module: nn.Module) -> None: ...
    def run(self, *args: object) -> object: ...
    def call_method(self, target: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object: ...
