"""Replaces reductions over several trailing axes, or several leading ones, by ones over a single axis.

The elements of ``[n, c, y, x]`` that are reduced over ``y`` and ``x`` are contiguous; as rows of ``[n, c, y * x]`` they
are scheduled like a softmax. Reduced over ``n`` and ``c``, whole rows of ``[n * c, y * x]`` are: lanes are read side by
side, not from row to row of an image. Reshapes cost nothing, as kernels read the same memory in another shape. It runs
after all algebraic rewrites.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tilewright.base.names import Names
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops import Trait
from tilewright.ops.operator import require
from tilewright.ops.shapes import normalize_axes, normalize_axis, static
from tilewright.passes.layout import LaidOut
from tilewright.symbolic.expr import const

_RESHAPE = require("Reshape")


def flatten_reductions(laid_out: LaidOut) -> LaidOut:
    """``laid_out`` with reductions and normalizations of row-major values over one axis, if equivalent."""
    flattening = _Flattening(laid_out)
    nodes = tuple(new for node in laid_out.graph.nodes for new in flattening.nodes(node))
    graph = replace(laid_out.graph, nodes=nodes, constants=flattening.constants)
    return replace(laid_out, graph=graph)


@dataclass(slots=True)
class _Flattening:
    """One pass; constants in other shapes are added to those of the graph."""

    laid_out: LaidOut
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    rows: dict[Value, Value] = field(default_factory=dict[Value, Value])
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.constants.update(self.laid_out.graph.constants)
        self.names = self.laid_out.graph.names()

    def nodes(self, node: Node) -> Iterator[Node]:
        """``node``, or its equivalent over one axis."""
        (source, *parameters) = node.inputs or (None,)
        shape = None if source is None else static(source.shape)
        if source is not None and shape is not None and not {source, node.outputs[0]} & self.laid_out.layouts.keys():
            leading = _leading_axes(node, len(shape))
            if leading and len(shape) > 2 and prod(shape) > 0:
                yield from self._over_rows(node, source, (prod(shape[:leading]), prod(shape[leading:])), 0)
                return
        first = None if source is None or shape is None else _first_axis(node, len(shape))
        fits = first is not None and shape is not None and _differs(node, len(shape) - first) and prod(shape) > 0
        if source is None or shape is None or first is None or not fits or source in self.laid_out.layouts:
            yield node
            return
        result = node.outputs[0]
        others = [self._row(v, prod(shape[first:])) for v in parameters]
        if None in others or result in self.laid_out.layouts:
            yield node
            return
        yield from self._over_rows(node, source, (*shape[:first], prod(shape[first:])), first, others)

    def _over_rows(
        self, node: Node, source: Value, shape: tuple[int, ...], axis: int, parameters: Sequence[Value | None] = ()
    ) -> Iterator[Node]:
        """``node`` over ``axis`` of ``source`` in another ``shape``, between reshapes."""
        result = node.outputs[0]
        in_rows, reduced = (self.names.fresh(f"{result.name}.{suffix}") for suffix in ("rows", "flat"))
        flat = reshaped(source, shape, in_rows, node.source)
        attributes = {name: value for name, value in node.attributes if name not in ("axes", "axis")}
        attributes |= {"axis": axis} if parameters else {"axes": (axis,), "keepdims": True}
        made = make_node(node.op, [flat.outputs[0], *parameters], [reduced], attributes, node.source)
        extents = static(result.shape)
        assert extents is not None, "results of static inputs are static"
        yield from (flat, made, reshaped(made.outputs[0], extents, result.name, node.source))

    def _row(self, value: Value | None, length: int) -> Value | None:
        """The constant ``value`` as a vector of ``length``, if it has that size."""
        array = None if value is None else self.constants.get(value)
        if value is None or array is None or array.size != length:
            return None
        if value not in self.rows:
            self.rows[value] = Value(self.names.fresh(f"{value.name}.row"), value.dtype, (const(length),))
            self.constants[self.rows[value]] = array.reshape(-1)
        return self.rows[value]


def _differs(node: Node, trailing: int) -> bool:
    """Whether ``node``, over several trailing axes, is more than a reduction of rows to one element each."""
    return trailing > 1 or not dict(node.attributes).get("keepdims", True)


def _first_axis(node: Node, rank: int) -> int | None:
    """The first of the trailing axes that ``node`` reduces, if it reduces exactly these."""
    attributes = dict(node.attributes)
    axes, axis = attributes.get("axes"), attributes.get("axis", -1)
    if len(node.outputs) != 1 or not node.op.has(Trait.FLAT_AXES):
        return None
    if len(node.inputs) > 1:
        return normalize_axis(axis, rank) if isinstance(axis, int) else None
    if axes is None and rank > 0:
        return None if attributes.get("noop_with_empty_axes") else 0
    if not isinstance(axes, tuple) or not axes:
        return None
    reduced = normalize_axes([int(str(a)) for a in axes], rank)
    return reduced[0] if reduced == tuple(range(reduced[0], rank)) else None


def _leading_axes(node: Node, rank: int) -> int:
    """How many axes ``node`` reduces, if these are the leading ones, and others are left; else 0."""
    axes = dict(node.attributes).get("axes")
    if len(node.outputs) != 1 or len(node.inputs) != 1 or not node.op.has(Trait.FLAT_AXES):
        return 0
    if not isinstance(axes, tuple) or not axes:
        return 0
    reduced = normalize_axes([int(str(a)) for a in axes], rank)
    return len(reduced) if len(reduced) < rank and reduced == tuple(range(len(reduced))) else 0


def reshaped(value: Value, shape: tuple[int, ...], name: str, source: str) -> Node:
    """A node that reads ``value`` in another static shape."""
    return make_node(_RESHAPE, [value], [name], {"shape": shape, "allow_zero": True}, source)
