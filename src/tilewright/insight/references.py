"""Reference values of a model, computed in float64 by the te evaluator."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import DType, f64
from tilewright.base.errors import BadProgram, Unsupported
from tilewright.graph import Array, Graph, Node, Value, evaluate_node, make_node
from tilewright.ops import Attribute
from tilewright.symbolic.expr import Var


@dataclass(frozen=True, slots=True)
class Reference:
    """Values by name, and notes on nodes that were computed otherwise, with the reasons."""

    values: Mapping[str, Array]
    notes: tuple[str, ...] = ()


def in_float64(graph: Graph, feeds: Mapping[str, Array], wanted: Iterable[str], dims: Mapping[str, int]) -> Reference:
    """The ``wanted`` values of ``graph``, with float64 in place of all floating-point types.

    A node that has no meaning in float64 is computed in its own type, and noted. ``dims``: run-time extents by name.
    """
    kept = frozenset(wanted)
    extents: dict[Var, int] = {extent: dims[extent.given] for extent in graph.extents if extent.given in dims}
    arrays = {_widened(v): _wide(feeds[v.name]) for v in graph.inputs}
    last = {value: node for node in graph.nodes for value in node.inputs if value is not None}
    narrow: list[str] = []
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value in graph.constants and _widened(value) not in arrays:
                arrays[_widened(value)] = _wide(graph.constants[value])
        wide = _wide_node(node)
        if wide is not None:
            results = evaluate_node(wide, arrays, extents)
        else:
            own = {v: arrays[_widened(v)].astype(v.dtype.numpy) for v in node.inputs if v is not None}
            results = [_wide(result) for result in evaluate_node(node, own, extents)]
            narrow.append(node.source or node.op.name)
        arrays.update(zip(map(_widened, node.outputs), results, strict=True))
        for value in {v for v in node.inputs if v is not None and last[v] is node and v.name not in kept}:
            del arrays[_widened(value)]
    notes = (f"computed in their own type, not in float64: {', '.join(dict.fromkeys(narrow))}",) if narrow else ()
    return Reference({value.name: array for value, array in arrays.items() if value.name in kept}, notes)


def _widened(value: Value) -> Value:
    return Value(value.name, f64, value.shape) if value.dtype.is_float else value


def _wide(array: Array) -> Array:
    kind = array.dtype.kind
    return array if kind in "iub" else array.astype(np.float64)


def _wide_node(node: Node) -> Node | None:
    """``node`` in float64; None if its operator or attributes do not allow that."""
    inputs = [None if v is None else _widened(v) for v in node.inputs]
    attributes: dict[str, Attribute] = {name: _wide_attribute(value) for name, value in node.attributes}
    try:
        wide = make_node(node.op, inputs, [v.name for v in node.outputs], attributes, node.source)
    except (BadProgram, Unsupported):
        return None
    same = all(a.dtype == _widened(b).dtype for a, b in zip(wide.outputs, node.outputs, strict=True))
    return wide if same else None


def _wide_attribute(value: Attribute) -> Attribute:
    return f64 if isinstance(value, DType) and value.is_float else value
