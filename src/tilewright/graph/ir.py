"""Graphs: named, typed, shaped values and the operators between them.

Grammar
-------
::

    graph = Graph(name, inputs, outputs, nodes, constants)      nodes in topological order
    node  = Node(op, inputs, outputs, attributes, source)       an input may be missing (None)
    value = Value(name, dtype, shape)                           extents: integers or run-time extents

Meaning ------- A node's outputs are its operator's te function applied to its inputs. Values are immutable; each is
produced once: by a node, as an input, or as a constant. ``source`` is the place of a node in the user's model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadDTypes, BadProgram, InternalError, ResourceLimit
from tilewright.base.exact import Exact
from tilewright.base.names import Names, readable
from tilewright.ops import Attribute, Operator
from tilewright.ops.shapes import same_extent, show, static
from tilewright.symbolic.expr import Expr, Extent, Var, unique_text
from tilewright.tensor.build import placeholder
from tilewright.tensor.elements import Limit
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True, repr=False)
class Value:
    """A tensor in a graph; the name is unique."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]

    def __repr__(self) -> str:
        return f"{readable(self.name)}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an operator."""

    op: Operator
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    source: str = ""

    @property
    def dims(self) -> frozenset[Var]:
        """The run-time extents in its attributes."""
        listed = (part for _, value in self.attributes for part in (value if isinstance(value, tuple) else (value,)))
        return frozenset[Var]().union(*(part.variables for part in listed if isinstance(part, Expr)))

    def __str__(self) -> str:
        results = ", ".join(map(repr, self.outputs))
        operands = ["_" if v is None else readable(v.name) for v in self.inputs]
        options = [f"{name}={value}" for name, value in self.attributes]
        return f"{results} = {self.op}({', '.join([*operands, *options])})"


@dataclass(frozen=True, slots=True, repr=False)
class Graph:
    """A whole model, or a part of one."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array]
    bounds: Mapping[Var, int] = field(default_factory=dict[Var, int])
    """Upper bounds of run-time extents that the model itself implies."""
    limits: tuple[Limit, ...] = ()
    """Further conditions on inputs."""
    halves: Mapping[str, DType] = field(default_factory=dict[str, DType])
    """The 16-bit types that values in f32 have in the model, by their names here (``passes.widen``)."""

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(map(repr, self.inputs))}):"]
        lines += [f"  {value!r} = constant" for value in self.constants]
        lines += [f"  {node}" for node in self.nodes]
        lines.append(f"  return {', '.join(readable(v.name) for v in self.outputs)}")
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The run-time extents in the shapes of the inputs, in order."""
        return extents_of(self.inputs)

    def names(self) -> Names:
        """Names for values that a pass adds: a model may use any name, including ones like ours."""
        made = (value for node in self.nodes for value in node.outputs)
        return Names(value.name for value in (*self.inputs, *self.constants, *made))

    def producers(self) -> dict[Value, Node]:
        """The producer of each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    def consumers(self) -> dict[Value, list[Node]]:
        """The consumers of each value, each once."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(v for v in node.inputs if v is not None):
                found.setdefault(value, []).append(node)
        return found


def extents_of(values: Iterable[Value]) -> tuple[Extent, ...]:
    """The run-time extents in the shapes of ``values``, in order of first use."""
    variables = (v for value in values for extent in value.shape for v in sorted(extent.variables, key=unique_text))
    return tuple(dict.fromkeys(v for v in variables if isinstance(v, Extent)))


def apply(node_op: Operator, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> tuple[Tensor, ...]:
    """The te program of one node over placeholders for its inputs: its shape and dtype rules."""
    return node_op.apply([None if v is None else as_placeholder(v) for v in inputs], attributes)


def as_placeholder(value: Value) -> Tensor:
    """A placeholder for ``value``."""
    return placeholder(value.shape, value.dtype, readable(value.name))


def make_node(
    op: Operator,
    inputs: Sequence[Value | None],
    names: Sequence[str],
    attributes: Mapping[str, Attribute],
    source: str = "",
) -> Node:
    """A node whose outputs have the names ``names``, and dtypes and shapes by the operator's rules.

    Raises ``BadProgram`` if the inputs do not fit, ``ResourceLimit`` if a result is too large; both name ``source``.
    """
    options = tuple(attributes.items())
    try:
        results = _result_types(op, tuple(inputs), options)
    except BadDTypes as error:
        given = ", ".join(f"{readable(v.name)}: {v.dtype}" for v in inputs if v is not None)
        place = source or op.name
        raise BadDTypes(f"{place}: {op.name} is not defined for these types ({given}); add a Cast before it") from error
    except BadProgram as error:
        raise BadProgram(f"{source or op.name}: {error}") from error
    except ResourceLimit as error:
        raise ResourceLimit(f"{source or op.name}: {error}") from error
    if len(names) > len(results):
        raise BadProgram(f"{source or op.name}: {op} has {len(results)} outputs, not {len(names)}")
    outputs = tuple(Value(name, *kind) for name, kind in zip(names, results, strict=False))
    return Node(op, tuple(inputs), outputs, options, source)


_Type = tuple[DType, tuple[Expr, ...]]


def _result_types(
    op: Operator, inputs: tuple[Value | None, ...], attributes: tuple[tuple[str, Attribute], ...]
) -> tuple[_Type, ...]:
    """Dtype and shape of each result. Raises ``BadProgram`` naming the inputs."""
    try:
        return _types_of_types(op, tuple(None if v is None else (v.dtype, v.shape) for v in inputs), Exact(attributes))
    except BadProgram:
        apply(op, inputs, dict(attributes))  # repeats the error with the inputs' names
        raise


@lru_cache(maxsize=1 << 14)
def _types_of_types(
    op: Operator, inputs: tuple[_Type | None, ...], attributes: Exact[tuple[tuple[str, Attribute], ...]]
) -> tuple[_Type, ...]:
    """Cached: models contain many equal nodes."""
    operands = [None if kind is None else Value(f"x{i}", *kind) for i, kind in enumerate(inputs)]
    return tuple((t.dtype, t.shape) for t in apply(op, operands, dict(attributes.value)))


def verify(graph: Graph) -> None:
    """Check the rules of the grammar and semantics above. Raises ``InternalError`` for a violation."""
    known: set[str] = set()
    for value in (*graph.inputs, *graph.constants):
        _define(value, known)
    for value, array in graph.constants.items():
        if array.dtype != value.dtype.numpy or static(value.shape) != array.shape:
            raise InternalError(f"constant {value!r} holds {array.dtype}{list(array.shape)}")
    for node in graph.nodes:
        _verify_node(node, known)
    missing = [value.name for value in graph.outputs if value.name not in known]
    if missing:
        raise InternalError(f"outputs {', '.join(missing)} are never made")


def _define(value: Value, known: set[str]) -> None:
    if value.name in known:
        raise InternalError(f"{value.name} is made twice")
    known.add(value.name)


def _verify_node(node: Node, known: set[str]) -> None:
    for value in node.inputs:
        if value is not None and value.name not in known:
            raise InternalError(f"`{node}` uses {value.name} before it is made")
    for value, (dtype, shape) in zip(node.outputs, _result_types(node.op, node.inputs, node.attributes), strict=False):
        _define(value, known)
        same_shape = len(value.shape) == len(shape) and all(map(same_extent, value.shape, shape))
        if value.dtype != dtype or not same_shape:
            raise InternalError(f"`{node}`: {value!r} should be {dtype}{show(shape)}")


def walk_back(graph: Graph) -> Iterator[Node]:
    """The nodes on which the outputs depend, last first."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(v for v in node.inputs if v is not None)
            yield node
