"""Lowers groups to kernels: the te program of a group in the layouts of its values, and its naive loop program."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tilewright.base.exact import Exact
from tilewright.cost.model import panel_width
from tilewright.graph import Value
from tilewright.kernels.dot_tiles import groups_of, whole_columns
from tilewright.kernels.groups import split_groups
from tilewright.kernels.narrowing import narrowed
from tilewright.kernels.packing import constant_layouts
from tilewright.kernels.phases import split_phases
from tilewright.kernels.places import merge_places
from tilewright.kernels.relayout import dissolve_views, is_row_major, lanes_of, relayout, split, spread
from tilewright.kernels.run_time_panels import copied_panels, with_copies
from tilewright.kernels.run_time_weights import Copied, copied_weights
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.ops import FusionKind, Trait
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import Shape, number_at, simplified, static
from tilewright.passes.checks import known_ranges, numbered, without_known_checks
from tilewright.passes.fuse import Group
from tilewright.passes.index_tables import index_tables, without_tables
from tilewright.passes.layout import LaidOut
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, Var
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
    """The stored layouts of constants among the arguments."""
    text: str
    """The printed program: equal kernels have equal texts."""

    def of(self, group: Group, first: Group) -> "Kernel":
        """The kernel of ``group``, which equals ``first`` except for its values, if this is the kernel of ``first``."""
        pairs = zip(group.inputs, first.inputs, strict=True)
        packings = {new: self.packings[old] for new, old in pairs if old in self.packings}
        return replace(self, arguments=(*group.inputs, *group.outputs), packings=packings)


Lowered: TypeAlias = dict[tuple[object, ...], tuple[Group, Kernel]]
"""Cached groups and their kernels, by all that a kernel depends on."""


class Lowering:
    """Lowers the groups of one graph. Repeated groups (layers) are lowered once.

    ``bounds``: upper bounds of run-time extents, by the users' names, which do not occur in kernels. ``known``: kernels
    of other graphs for the same target and bounds, to which those of this one are added.
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
        """The kernel of ``group``. Raises ``Unsupported`` for groups without a program."""
        form = self._form(group)
        if form not in self._known:
            self._known[form] = group, to_kernel(group, self._laid_out, self._target, self._bounds, self._extents)
        first, kernel = self._known[form]
        return kernel if first is group else kernel.of(group, first)

    def single(self, group: Group, kernel: Kernel) -> Program | None:
        """The naive program of ``group`` for run-time extents that are all 1, on the arguments of ``kernel``.

        None unless it is a product with a constant weight: that takes as long as reading the weight, which asks for
        another schedule than one for many rows. None, too, if no input is so small: a window reaches further, or what a
        stride leaves of such an image is empty.
        """
        constants, layouts = self._laid_out.graph.constants, self._laid_out.layouts
        is_product = any(
            node.op.kind is FusionKind.CONTRACTION
            and not node.op.has(Trait.SUMS_CHANNELS)
            and any(value in constants for value in node.inputs)
            for node in group.nodes
        )
        if not kernel.program.dims or not is_product or any(value in layouts for value in kernel.arguments):
            return None
        extents = self._laid_out.graph.extents
        if not _fits_at(group, dict.fromkeys(extents, 1)):
            return None
        ones: dict[Var, Expr] = dict.fromkeys(extents, ONE)
        made = to_kernel(group, self._laid_out, self._target, {}, ones, kernel.packings)
        shapes = zip(made.program.params, kernel.program.params, strict=True)
        given: dict[Var, Expr] = {dim.var: ONE for dim in kernel.program.dims}
        alike = all(
            own.dtype == other.dtype and own.shape == tuple(simplified(substitute(e, given)) for e in other.shape)
            for own, other in shapes
        )
        is_empty = any(ZERO in param.shape for param in made.program.params)
        return made.program if alike and not is_empty and not made.program.dims else None

    def _form(self, group: Group) -> tuple[object, ...]:
        """All that the kernel of a group depends on: its values by number, and their facts."""
        constants, layouts = self._laid_out.graph.constants, self._laid_out.layouts
        ranges = known_ranges(group.inputs, self._laid_out.graph)
        tables = index_tables(group.inputs, self._laid_out.graph)
        made = (value for node in group.nodes for value in node.outputs)
        numbers = {value: number for number, value in enumerate((*group.inputs, *made))}
        weights, stored = self._laid_out.weights(group.nodes), self._laid_out.stored
        entering = [
            (v.dtype, stored(v), v.shape, v in constants, layouts.get(v), ranges.get(v), tables.get(v))
            for v in group.inputs
        ]
        steps = [
            (
                node.op.name,
                Exact(node.attributes),
                *((v if v is None else numbers[v], v in weights) for v in node.inputs),
            )
            for node in group.nodes
        ]
        leaving = [(numbers[value], stored(value), layouts.get(value)) for value in group.outputs]
        return tuple(entering), tuple(steps), tuple(leaving)


def _fits_at(group: Group, sizes: Mapping[Var, int]) -> bool:
    """Whether no extent is negative for these run-time extents."""
    made = (value for node in group.nodes for value in node.outputs)
    shapes = (value.shape for value in (*group.inputs, *made))
    return all(number_at(extent, sizes) >= 0 for shape in shapes for extent in shape)


def to_kernel(
    group: Group,
    laid_out: LaidOut,
    target: Target,
    bounds: Mapping[str, int],
    extents: Mapping[Var, Expr] | None = None,
    packings: Mapping[Value, IndexMap] | None = None,
) -> Kernel:
    """The naive program of ``group``; parameters are named by position, so that equal groups give equal programs.

    ``extents``: names of run-time extents in it, or their values, if not those of the graph; ``bounds`` are by these
    names. ``packings``: the stored layouts of constants, if these are given.
    """
    graph, layouts, extents = laid_out.graph, laid_out.layouts, extents or {}
    seen = {value: _seen_as(value, group, layouts) for value in group.inputs}
    inputs = {
        v: placeholder(_renamed(seen[v].shape, extents), v.dtype, f"p{position}")
        for position, v in enumerate(group.inputs)
    }
    known = {seen[value]: tensor for value, tensor in inputs.items()}
    made = _expand(group, known, extents)
    unblocked = _unblocked(group, laid_out)
    leaving = (*group.outputs, *unblocked)
    results, stored_as = _narrowed(
        [made[_made_as(v, group, made, layouts)] for v in leaving], leaving, made, inputs, group, laid_out
    )
    inputs = {value: stored_as.get(tensor, tensor) for value, tensor in inputs.items()}
    tables = index_tables([v for v in group.inputs if seen[v] == v], graph)
    results = without_tables(results, {inputs[value]: table for value, table in tables.items()})
    constants = {inputs[v]: v for v in group.inputs if v in graph.constants and seen[v] == v}
    dissolved = dissolve_views(results, constants)
    if any(value in layouts for value in (*group.outputs, *unblocked)):
        weights = copied_weights(dissolved, {*constants, *(inputs[v] for v in group.inputs if v in layouts)})
    else:
        weights = Copied(dissolved)
    dissolved = weights.outputs
    inputs = {value: weights.parameters.get(tensor, tensor) for value, tensor in inputs.items()}
    outputs, in_blocks = dissolved[: len(group.outputs)], dissolved[len(group.outputs) :]
    whole = _have_functional_form(results)
    plain = {v for v in group.inputs if v in layouts and not whole and is_row_major(layouts[v], v.shape)}
    stored = {inputs[v]: layouts[v] for v in group.inputs if v in layouts and seen[v] == v and v not in plain}
    stored.update((t, layouts[v]) for t, v in zip(dissolved, (*group.outputs, *unblocked), strict=True) if v in layouts)
    stored = spread(in_blocks or outputs, stored, target.machine)
    stored.update((t, split(t.ndim, lanes)) for t in outputs for lanes in unblocked.values() if _is_whole(t, lanes))
    stored.update(
        (inputs[value], split(len(value.shape), lanes)) for value, lanes in _entering(group, laid_out).items()
    )
    stored = split_phases(outputs, merge_places(outputs, stored, target))
    stored = split_groups(outputs, stored)
    outputs, stored = whole_columns(outputs, stored, target)
    widths, groups = partial(panel_width, target=target), partial(groups_of, target=target)
    if packings is None:
        known_later = {*weights.copies, *copied_panels(outputs, stored, groups)}
        steps = target.machine.unrolled_steps
        stored_so = constant_layouts(outputs, {*constants, *known_later}, stored, widths, groups, steps)
    else:
        stored_so = {tensor: packings[value] for tensor, value in constants.items() if value in packings}
    placed = relayout(outputs, {**stored, **stored_so})
    order = [placed.get(inputs[value], inputs[value]) for value in group.inputs]
    program = lower([placed[tensor] for tensor in outputs], name="kernel", inputs=order, dims=bounds, trusted=True)
    ranges = known_ranges(group.inputs, graph)
    program = without_known_checks(program, {inputs[v].name: limits for v, limits in ranges.items()})
    packed = {constants[tensor]: stored_so[tensor] for tensor in stored_so if tensor in constants}
    return Kernel(program, (*group.inputs, *group.outputs), packed, str(program))


def _narrowed(
    results: list[Tensor],
    leaving: Sequence[Value],
    made: Mapping[Value, Tensor],
    inputs: Mapping[Value, Tensor],
    group: Group,
    laid_out: LaidOut,
) -> tuple[list[Tensor], Mapping[Tensor, Tensor]]:
    """``results`` and inputs in the dtypes that they are stored in."""
    narrow, weights = laid_out.narrow, laid_out.weights(group.nodes)
    if narrow.dtype is None and not narrow.constants:
        return results, {}
    known = {value for value in weights if value in laid_out.graph.constants}
    stored = {t: narrow.dtype if narrow.dtype and v in known else laid_out.stored(v) for v, t in inputs.items()}
    results = with_copies(results, [made[value] for value in weights - known])
    factors = [made[value] for value in weights]
    dtypes = [laid_out.stored(value) for value in leaving]
    return narrowed(results, stored, factors, dtypes, narrow.dtype, narrow.is_flushing)


def _have_functional_form(results: list[Tensor]) -> bool:
    """Whether all indices behind ``results`` can be rewritten, so that they may read blocks."""
    return all(isinstance(op, Compute | Placeholder) for op in topological_order(results))


def _unblocked(group: Group, laid_out: LaidOut) -> dict[Value, int]:
    """The blocked value that a kernel finally stores plain, and its block width.

    Whole blocks are stored row-major, so the result is computed block by block, without index divisions. If the last
    one is not full, the schedule goes along the blocks (``kernels.tiling``).
    """
    copied = [n.inputs[0] for n in group.nodes if n.outputs[0] in laid_out.leaving_blocks and n.inputs[0] is not None]
    return {value: lanes_of(laid_out.layouts[value]) for value in copied}


def _is_whole(x: Tensor, lanes: int) -> bool:
    """Whether the channels of ``x`` are whole blocks."""
    channels = x.shape[1]
    return isinstance(channels, Const) and int(channels.value) % lanes == 0


def _entering(group: Group, laid_out: LaidOut) -> dict[Value, int]:
    """The plain value that a kernel copies into whole blocks, and their width: it is read block by block."""
    if len(group.nodes) != 1 or group.nodes[0].outputs[0] not in laid_out.entering_blocks:
        return {}
    return {value: lanes_of(laid_out.layouts[group.outputs[0]]) for value in group.inputs}


def _seen_as(value: Value, group: Group, layouts: Mapping[Value, IndexMap]) -> Value:
    """The form in which ``group`` reads an input: itself, or reshaped if nothing else reads it.

    A reshape moves nothing in memory, so the parameter has the new shape, without index divisions.
    """
    while static(value.shape) is not None and value not in group.outputs:
        readers = [node for node in group.nodes if value in node.inputs]
        if len(readers) != 1 or not readers[0].op.has(Trait.REGROUPS) or static(readers[0].outputs[0].shape) is None:
            break
        if value in layouts and not is_row_major(layouts[value], value.shape):
            break
        value = readers[0].outputs[0]
    return value


def _made_as(value: Value, group: Group, made: Container[Value], layouts: Mapping[Value, IndexMap]) -> Value:
    """The form in which ``group`` computes a result: itself, or what it regroups, which is the same in memory."""
    maker = next((node for node in group.nodes if value in node.outputs), None)
    if maker is None or not maker.op.has(Trait.REGROUPS) or static(value.shape) is None:
        return value
    (source, *_) = maker.inputs
    is_own = source is not None and source in made and any(source in node.outputs for node in group.nodes)
    return source if source is not None and is_own and source not in layouts else value


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
