"""A front end in one file: dense layers in JSON, as ``docs/extending.md`` shows it.

[{"weight": [[1, 2], [3, 4]], "bias": [0, 1], "then": "Relu"}, ...]
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.frontend.api import GivenShapes, Source
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import find
from tilewright.symbolic.expr import Extent, const


class LayersFile(Source):
    """A file of layers; its input ``x`` has a row for each sample."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self) -> tuple[Path, ...]:
        return (self._path,)

    def load(self, shapes: GivenShapes, bounds: Mapping[str, int], most_bytes: int | None = None) -> Graph:
        try:
            layers = json.loads(self._path.read_text())
            width = len(layers[0]["weight"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InvalidModel(f"{self._path} holds no layers: {error}") from error
        rows = next(iter(shapes.get("x", ("rows", width))))
        batch = const(rows) if isinstance(rows, int) else Extent("n0", label=rows)
        x = value = Value("x", dtypes.f32, (batch, const(width)))
        nodes: list[Node] = []
        constants: dict[Value, Array] = {}

        def add(op: str, name: str, *operands: Value) -> Value:
            operator = find(op)
            if operator is None:
                raise UnsupportedModel(f"{name}: there is no operator {op}")
            nodes.append(make_node(operator, operands, [name], {}, source=name))
            return nodes[-1].outputs[0]

        def constant(name: str, numbers: object) -> Value:
            array = np.array(numbers, np.float32)
            made = Value(name, dtypes.f32, tuple(map(const, array.shape)))
            constants[made] = array
            return made

        for number, layer in enumerate(layers):
            value = add("MatMul", f"product{number}", value, constant(f"weight{number}", layer["weight"]))
            value = add("Add", f"sum{number}", value, constant(f"bias{number}", layer["bias"]))
            if "then" in layer:
                value = add(layer["then"], f"then{number}", value)
        return Graph("layers", (x,), (value,), tuple(nodes), constants)


class Layers:
    """The front end."""

    accepted = "a file *.layers"

    def open(self, given: object) -> Source | None:
        return LayersFile(Path(given)) if isinstance(given, str | Path) and Path(given).suffix == ".layers" else None


LAYERS = Layers()
