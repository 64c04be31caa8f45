"""Groups to kernels: the te program of a group in the layouts of its values, and the naive loop program of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tilewright.base.exact import Exact
from tilewright.cost.model import panel_width
from tilewright.graph import Value
from tilewright.kernels.packing import constant_layouts
from tilewright.kernels.phases import split_phases
from tilewright.kernels.relayout import dissolve_views, is_row_major, lanes_of, merge_places, relayout, split, spread
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops import Trait
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import Shape, static
from tilewright.passes.checks import known_ranges, numbered, without_known_checks
from tilewright.passes.fuse import Group
from tilewright.passes.layout import LaidOut
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.traversal import substitute
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Compute, Placeholder, Tensor, topological_order


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel before scheduling: arguments are inputs, then outputs, in the order of the program's parameters."""

    program: Program
    arguments: tuple[Value, ...]
    packings: Mapping[Value, IndexMap]
    """How constants among the arguments are stored for it."""
    text: str
    """The program, printed: equal kernels have equal texts."""

    def of(self, group: Group, first: Group) -> "Kernel":
        """The kernel of ``group``, which is like ``first`` but for its values, if this is the one of ``first``."""
        pairs = zip(group.inputs, first.inputs, strict=True)
        packings = {new: self.packings[old] for new, old in pairs if old in self.packings}
        return replace(self, arguments=(*group.inputs, *group.outputs), packings=packings)


Lowered: TypeAlias = dict[tuple[object, ...], tuple[Group, Kernel]]
"""Groups, and their kernels, by all that a kernel depends on."""


class Lowering:
    """Makes the kernels of one graph's groups. What models repeat (layers) is made once.

    ``bounds``: upper bounds of run-time extents, by the names that users give them. Kernels know nothing of such names.
    ``known``: kernels of other graphs for the same target and bounds, to which those of this one are added.
    """

    def __init__(
        self, laid_out: LaidOut, target: Target, bounds: Mapping[str, int], known: Lowered | None = None
    ) -> None:
        self._laid_out = laid_out
        self._target = target
        extents = laid_out.graph.extents
        self._extents: dict[Var, Expr] = {extent: extent.unlabelled() for extent in extents if extent.label}
        self._bounds = {extent.name: bounds[extent.given] for extent in extents if extent.given in bounds}
        self._known: Lowered = {} if known is None else known

    def kernel(self, group: Group) -> Kernel:
        """The kernel of ``group``. Raises ``Unsupported`` for what has no program."""
        form = self._form(group)
        if form not in self._known:
            self._known[form] = group, to_kernel(group, self._laid_out, self._target, self._bounds, self._extents)
        first, kernel = self._known[form]
        return kernel if first is group else kernel.of(group, first)

    def _form(self, group: Group) -> tuple[object, ...]:
        """All that the kernel of a group depends on: its values by number, and what is known of them."""
        constants, layouts = self._laid_out.graph.constants, self._laid_out.layouts
        ranges = known_ranges(group.inputs, self._laid_out.graph)
        made = (value for node in group.nodes for value in node.outputs)
        numbers = {value: number for number, value in enumerate((*group.inputs, *made))}
        entering = [(v.dtype, v.shape, v in constants, layouts.get(v), ranges.get(v)) for v in group.inputs]
        steps = [
            (node.op.name, Exact(node.attributes), tuple(v if v is None else numbers[v] for v in node.inputs))
            for node in group.nodes
        ]
        leaving = [(numbers[value], layouts.get(value)) for value in group.outputs]
        return tuple(entering), tuple(steps), tuple(leaving)


def to_kernel(
    group: Group,
    laid_out: LaidOut,
    target: Target,
    bounds: Mapping[str, int],
    extents: Mapping[Var, Expr] | None = None,
) -> Kernel:
    """The naive program of ``group``; parameters are named by position, so that equal groups give equal programs.

    ``extents``: what run-time extents are called in it, if not as in the graph; ``bounds`` are by these names.
    """
    graph, layouts, extents = laid_out.graph, laid_out.layouts, extents or {}
    seen = {value: _seen_as(value, group, layouts) for value in group.inputs}
    inputs = {
        v: placeholder(_renamed(seen[v].shape, extents), v.dtype, f"p{position}")
        for position, v in enumerate(group.inputs)
    }
    constants = {inputs[v]: v for v in group.inputs if v in graph.constants and seen[v] == v}
    known = {seen[value]: tensor for value, tensor in inputs.items()}
    made = _expand(group, known, extents)
    unblocked = _unblocked(group, laid_out)
    results = [made[value] for value in (*group.outputs, *unblocked)]
    dissolved = dissolve_views(results, constants)
    outputs, in_blocks = dissolved[: len(group.outputs)], dissolved[len(group.outputs) :]
    whole = _have_functional_form(results)
    plain = {v for v in group.inputs if v in layouts and not whole and is_row_major(layouts[v], v.shape)}
    stored = {inputs[v]: layouts[v] for v in group.inputs if v in layouts and seen[v] == v and v not in plain}
    stored.update((t, layouts[v]) for t, v in zip(dissolved, (*group.outputs, *unblocked), strict=True) if v in layouts)
    stored = spread(in_blocks or outputs, stored, target.machine)
    stored.update((t, split(t.ndim, lanes)) for t in outputs for lanes in unblocked.values())
    stored.update(
        (inputs[value], split(len(value.shape), lanes)) for value, lanes in _entering(group, laid_out).items()
    )
    stored = split_phases(outputs, merge_places(outputs, stored))
    packings = constant_layouts(outputs, constants, stored, partial(panel_width, target=target))
    placed = relayout(outputs, {**stored, **packings})
    order = [placed.get(inputs[value], inputs[value]) for value in group.inputs]
    program = lower([placed[tensor] for tensor in outputs], name="kernel", inputs=order, dims=bounds, trusted=True)
    ranges = known_ranges(group.inputs, graph)
    program = without_known_checks(program, {inputs[v].name: limits for v, limits in ranges.items()})
    packed = {constants[tensor]: packings[tensor] for tensor in packings}
    return Kernel(program, (*group.inputs, *group.outputs), packed, str(program))


def _have_functional_form(results: list[Tensor]) -> bool:
    """Whether indices can be rewritten in all that ``results`` are made of: then it may read blocks."""
    return all(isinstance(op, Compute | Placeholder) for op in topological_order(results))


def _unblocked(group: Group, laid_out: LaidOut) -> dict[Value, int]:
    """The value in blocks that a kernel stores plain at its end, and its blocks' width.

    Whole blocks leave row-major: so the result is computed block by block as well, and no index needs a division.
    """
    copied = [n.inputs[0] for n in group.nodes if n.outputs[0] in laid_out.leaving_blocks and n.inputs[0] is not None]
    return {value: lanes_of(laid_out.layouts[value]) for value in copied}


def _entering(group: Group, laid_out: LaidOut) -> dict[Value, int]:
    """The plain value that a kernel copies into whole blocks, and their width: it is read block by block likewise."""
    if len(group.nodes) != 1 or group.nodes[0].outputs[0] not in laid_out.entering_blocks:
        return {}
    return {value: lanes_of(laid_out.layouts[group.outputs[0]]) for value in group.inputs}


def _seen_as(value: Value, group: Group, layouts: Mapping[Value, IndexMap]) -> Value:
    """What an input of ``group`` is read as: itself, or what a reshape makes of it if nothing else reads it.

    A reshape moves nothing in memory, so the parameter has the new shape, and no index needs a division.
    """
    while static(value.shape) is not None and value not in group.outputs:
        readers = [node for node in group.nodes if value in node.inputs]
        if len(readers) != 1 or not readers[0].op.has(Trait.REGROUPS) or static(readers[0].outputs[0].shape) is None:
            break
        if value in layouts and not is_row_major(layouts[value], value.shape):
            break
        value = readers[0].outputs[0]
    return value


def _renamed(shape: Shape, extents: Mapping[Var, Expr]) -> Shape:
    return tuple(substitute(extent, extents) for extent in shape) if extents else shape


def _expand(group: Group, known: Mapping[Value, Tensor], extents: Mapping[Var, Expr]) -> dict[Value, Tensor]:
    """The te program of the whole group, from the values that are ``known``: all of its values."""
    made = dict(known)
    for node in group.nodes:
        if not any(value in known for value in node.outputs) and all(v is None or v in made for v in node.inputs):
            attributes = dict(node.attributes)
            if extents:
                attributes = {k: map_expressions(v, lambda e: substitute(e, extents)) for k, v in node.attributes}
            results = node.op.apply([None if v is None else made[v] for v in node.inputs], attributes)
            if count := sum(other.op.name == node.op.name for other in group.nodes[: group.nodes.index(node)]):
                results = numbered(results, made.values(), count)
            made.update(zip(node.outputs, results, strict=False))
    return made
