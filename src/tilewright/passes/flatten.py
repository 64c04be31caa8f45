"""Replaces reductions over several axes that lie side by side by ones over a single axis, followed by at most one.

The elements of ``[n, c, y, x]`` that are reduced over ``y`` and ``x`` are contiguous; as rows of ``[n, c, y * x]`` they
are scheduled like a softmax. Reduced over ``c``, whole rows of ``[n, c, y * x]`` are: lanes are read side by side, not
from row to row of an image, and few are idle. Reshapes cost nothing, as kernels read the same memory in another shape.
It runs after all algebraic rewrites.
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
    return replace(laid_out, graph=graph, copies={**laid_out.copies, **flattening.copies})


@dataclass(slots=True)
class _Flattening:
    """One pass; constants in other shapes are added to those of the graph."""

    laid_out: LaidOut
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    rows: dict[Value, Value] = field(default_factory=dict[Value, Value])
    copies: dict[str, str] = field(default_factory=dict[str, str])
    """The names of results, by those of the same in another shape."""
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.constants.update(self.laid_out.graph.constants)
        self.names = self.laid_out.graph.names()

    def nodes(self, node: Node) -> Iterator[Node]:
        """``node``, or its equivalent over one axis."""
        (source, *parameters) = node.inputs or (None,)
        shape = None if source is None else static(source.shape)
        if source is None or shape is None or 0 in shape or {source, *node.outputs} & self.laid_out.layouts.keys():
            yield node
            return
        axes = _axes_of(node, len(shape))
        others = None if axes is None else self._rows_of(parameters, prod(shape[axes.first : axes.beyond]))
        if axes is None or others is None or not axes.differ_in(shape):
            yield node
        else:
            yield from self._over_one(node, source, axes, others)

    def _over_one(self, node: Node, source: Value, axes: "_Axes", parameters: Sequence[Value]) -> Iterator[Node]:
        """``node`` over one axis of ``source`` in another shape, between reshapes."""
        result, before, after = node.outputs[0], static(source.shape), static(node.outputs[0].shape)
        assert before is not None and after is not None, "results of static inputs are static"
        in_rows, reduced = (self.names.fresh(f"{result.name}.{suffix}") for suffix in ("rows", "flat"))
        self.copies[reduced] = self.laid_out.copies.get(result.name, result.name)
        flat = reshaped(source, axes.flat(before), in_rows, node.source)
        attributes = {name: value for name, value in node.attributes if name not in ("axes", "axis")}
        attributes |= {"axes": (axes.first,), "keepdims": True} if axes.are_reduced else {"axis": axes.first}
        made = make_node(node.op, [flat.outputs[0], *parameters], [reduced], attributes, node.source)
        yield from (flat, made, reshaped(made.outputs[0], after, result.name, node.source))

    def _rows_of(self, parameters: Sequence[Value | None], length: int) -> list[Value] | None:
        """``parameters`` as vectors of ``length``, if all are constants of that size."""
        rows = [row for value in parameters if (row := self._row(value, length)) is not None]
        return rows if len(rows) == len(parameters) else None

    def _row(self, value: Value | None, length: int) -> Value | None:
        """The constant ``value`` as a vector of ``length``, if it has that size."""
        array = None if value is None else self.constants.get(value)
        if value is None or array is None or array.size != length:
            return None
        if value not in self.rows:
            self.rows[value] = Value(self.names.fresh(f"{value.name}.row"), value.dtype, (const(length),))
            self.constants[self.rows[value]] = array.reshape(-1)
        return self.rows[value]


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes ``first .. beyond - 1`` are reduced, or normalized."""

    first: int
    beyond: int
    are_reduced: bool
    keeps: bool = True
    """Whether reduced axes stay, with one element."""

    def flat(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """``shape`` with one axis in place of these, and one in place of all that follow."""
        rest = (prod(shape[self.beyond :]),) if self.beyond < len(shape) else ()
        return (*shape[: self.first], prod(shape[self.first : self.beyond]), *rest)

    def differ_in(self, shape: tuple[int, ...]) -> bool:
        """Whether this is more than a reduction of rows of ``shape`` to one element each."""
        return self.flat(shape) != shape or (self.beyond == len(shape) and not self.keeps)


def _axes_of(node: Node, rank: int) -> _Axes | None:
    """The axes that ``node`` reduces or normalizes, if these are one after the other."""
    attributes = dict(node.attributes)
    axes, axis = attributes.get("axes"), attributes.get("axis", -1)
    if len(node.outputs) != 1 or rank == 0 or not node.op.has(Trait.FLAT_AXES):
        return None
    if node.op.has(Trait.LIKE_FIRST):
        first = normalize_axis(axis, rank) if isinstance(axis, int) else rank
        return _Axes(first, rank if len(node.inputs) > 1 else first + 1, are_reduced=False)
    keeps = bool(attributes.get("keepdims", True))
    if axes is None:
        return None if attributes.get("noop_with_empty_axes") else _Axes(0, rank, are_reduced=True, keeps=keeps)
    if not isinstance(axes, tuple) or not axes:
        return None
    first, *others = normalize_axes([int(str(a)) for a in axes], rank)
    are_neighbours = tuple(others) == tuple(range(first + 1, first + 1 + len(others)))
    return _Axes(first, first + 1 + len(others), are_reduced=True, keeps=keeps) if are_neighbours else None


def reshaped(value: Value, shape: tuple[int, ...], name: str, source: str) -> Node:
    """A node that reads ``value`` in another static shape."""
    return make_node(_RESHAPE, [value], [name], {"shape": shape, "allow_zero": True}, source)
