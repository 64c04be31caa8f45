"""Rewrites te programs so that tensors are stored in other layouts.

Operators are defined over logical indices. Here, a te program is rewritten so that some of its tensors are stored by an
index map (``n, c, y, x -> n, c // 16, y, x, c % 16``): each is computed over the packed box, and read through the map.
The result is a te program, which is scheduled and checked as usual.

Points of a packed box beyond the logical one hold arbitrary values, which are never read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.base.errors import InternalError
from tilewright.base.names import fresh_name
from tilewright.ops.shapes import static
from tilewright.schedule.index_map import IndexMap, digit
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, Read, Var, const, select
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import all_of, free_vars, substitute, transform
from tilewright.target.machine import Machine
from tilewright.tensor.ir import (
    Compute,
    Extern,
    Operation,
    Placeholder,
    Scan,
    Tensor,
    inputs_of,
    reads_of,
    topological_order,
)

Layouts = Mapping[Tensor, IndexMap]


def blocked(rank: int, lanes: int, axis: int = 1) -> IndexMap:
    """``axis`` in blocks of ``lanes``, which go last: ``n, c, y, x -> n, c // 16, y, x, c % 16`` (NCHWc)."""
    variables = tuple(Var(f"d{position}") for position in range(rank))
    outer = tuple(v // lanes if position == axis else v for position, v in enumerate(variables))
    return IndexMap(variables, (*outer, variables[axis] % lanes))


def lanes_of(index_map: IndexMap) -> int:
    """The block width of a blocked layout."""
    place = digit(index_map.results[-1])
    if place is None or place.modulus is None:
        raise InternalError(f"{index_map} has no blocks")
    return place.modulus


def split(rank: int, lanes: int, axis: int = 1) -> IndexMap:
    """``axis`` as two dimensions, ``n, c, y, x -> n, c // 16, c % 16, y, x``: for whole blocks, the row-major order."""
    variables = tuple(Var(f"d{position}") for position in range(rank))
    channel = variables[axis]
    return IndexMap(variables, (*variables[:axis], channel // lanes, channel % lanes, *variables[axis + 1 :]))


def is_row_major(index_map: IndexMap, shape: tuple[Expr, ...]) -> bool:
    """Whether blocks of channels have the same order in memory as row-major: one position, and whole blocks."""
    own = static(shape)
    if own is None or prod(own[2:]) != 1:
        return False
    packed = static(index_map.shape(shape))
    return packed is not None and prod(own) == prod(packed)


def relayout(outputs: Sequence[Tensor], layouts: Layouts) -> dict[Tensor, Tensor]:
    """All tensors of the te program of ``outputs``, with those in ``layouts`` (inputs, too) stored by their maps.

    A packed input is a placeholder of the same name. All outputs of one operation share a layout. Raises
    ``InternalError`` if an operation other than a ``Compute`` would have to read or write a packed tensor.
    """
    made: dict[Tensor, Tensor] = {}
    for op, tensors in operations(outputs):
        index_map = layouts.get(tensors[0])
        match op:
            case Placeholder() if index_map is not None:
                changed: Operation = replace(op, shape=index_map.shape(op.shape))
            case Compute():
                changed = _computed(op, index_map, layouts, made)
            case _:
                if index_map is not None or any(source in layouts for source in inputs_of(op)):
                    raise InternalError(f"{op.name} has no functional form, and can't use packed tensors")
                changed = rewired(op, made)
        made.update((t, t if changed is op else output_of(changed, t)) for t in tensors)
    return made


def spread(outputs: Sequence[Tensor], known: Layouts, machine: Machine) -> dict[Tensor, IndexMap]:
    """Extends the layouts ``known`` to the tensors between them.

    A result in a blocked layout is computed in blocks from the reduction on; producers before it (padding) keep the
    layout of their inputs, or get blocks if that makes the reduction contiguous.
    """
    final = [known[t] for t in outputs if t in known]
    shapes = [t.shape for t in outputs if t in known]
    layouts = dict(known)
    reductions = [op for op in topological_order(outputs) if isinstance(op, Compute) and op.reduction is not None]
    reduced = {source: op for op in reductions for source in inputs_of(op)}
    for tensor in (t for _, tensors in operations(outputs) for t in tensors):
        if tensor in layouts or tensor in outputs or not isinstance(tensor.op, Compute):
            continue
        sources = [s for s in inputs_of(tensor.op) if s in layouts and s.ndim == tensor.ndim]
        alike = [layouts[s] for s in sources if s.shape[1] == tensor.shape[1] != ONE]
        alike += [layouts[s] for s in sources if _moves_blocks(tensor.op, s, layouts[s])]
        if alike:
            layouts[tensor] = alike[0]
        elif final and tensor.shape in shapes:
            layouts[tensor] = final[shapes.index(tensor.shape)]
        elif final and tensor in reduced and not sources and _is_scattered(tensor.op, reduced[tensor], machine):
            lanes = lanes_of(final[0])
            index_map = blocked(tensor.ndim, lanes)
            # A single block of results reads everything once: as cheap as a copy.
            several = prove(reduced[tensor].axes[1].extent > lanes, Bounds({}))
            if several and block_factors(reduced[tensor], {tensor: index_map}):
                layouts[tensor] = index_map
    return layouts


def _moves_blocks(op: Compute, source: Tensor, index_map: IndexMap) -> bool:
    """Whether ``op`` only moves whole blocks of channels of ``source``: each position of its own is at the same one
    there, as phases of a transposed convolution are, which lie behind each other."""
    if op.reduction is not None or source.shape[1] == op.axes[1].extent:
        return False
    lanes, channel = lanes_of(index_map), op.axes[1].var
    bounds = Bounds({axis.var: axis.extent for axis in op.axes})
    places = [indices[1] for read, indices in reads_of(op) if read == source]
    kept = (simplify((place - channel) % lanes, bounds) == ZERO for place in places)
    return simplify(op.axes[1].extent % lanes, bounds) == ZERO and all(kept)


def _is_scattered(op: Compute, reader: Compute, machine: Machine) -> bool:
    """Whether ``reader``, which sums over channels of the result of ``op``, would read these from many pages; or
    whether they are contiguous in the input of ``op``, and would only be separated."""
    shape = static(tuple(axis.extent for axis in op.axes))
    summed = static(tuple(axis.extent for axis in reader.reduce_axis[:1]))
    if op.reduction is not None or shape is None or summed is None or len(shape) < 3:
        return False
    origins = [origin_of(source, indices)[1] for source, indices in reads_of(op)]
    channel = op.axes[1].var
    if any(indices and channel in free_vars(indices[-1]) for indices in origins):
        return True
    plane = op.bodies[0].dtype.itemsize * prod(shape[2:])
    return prod(summed) * min(plane, machine.page_bytes) > machine.pages_at_hand * machine.page_bytes


def dissolve_views(outputs: Sequence[Tensor], roots: Collection[Tensor]) -> list[Tensor]:
    """``outputs``, with elements of ``roots`` that only pass through other tensors (a transpose, say) read directly."""

    def directly(source: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        origin = origin_of(source, indices)
        return Read(*origin) if origin[0] in roots else None

    return with_reads(outputs, directly)


def with_reads(outputs: Sequence[Tensor], instead: Callable[[Tensor, tuple[Expr, ...]], Expr | None]) -> list[Tensor]:
    """``outputs``, with what ``instead`` gives in place of reads of a tensor at some indices; None: they stay."""
    made: dict[Tensor, Tensor] = {}

    def read(source: Tensor, indices: tuple[Expr, ...]) -> Expr:
        changed = instead(source, indices)
        return Read(made[source], indices) if changed is None else changed

    for op, tensors in operations(outputs):
        is_compute = isinstance(op, Compute)
        changed = with_values(op, lambda value: rewritten(value, read)) if is_compute else rewired(op, made)
        made.update((t, t if changed is op else output_of(changed, t)) for t in tensors)
    return [made[tensor] for tensor in outputs]


def origin_of(source: Tensor, indices: tuple[Expr, ...]) -> tuple[Tensor, tuple[Expr, ...]]:
    """The origin of the element of ``source`` at ``indices``, if it was only moved."""
    while isinstance(source.op, Compute) and source.op.reduction is None and len(source.op.bodies) == 1:
        body = source.op.bodies[0]
        if not isinstance(body, Read) or not isinstance(body.source, Tensor):
            break
        at = dict(zip((axis.var for axis in source.op.axes), indices, strict=True))
        source, indices = body.source, tuple(substitute(index, at) for index in body.indices)
    return source, indices


def operations(outputs: Sequence[Tensor]) -> list[tuple[Operation, list[Tensor]]]:
    """Operations, producers first, and the tensors of each."""
    order = topological_order(outputs)
    tensors = dict.fromkeys((*(t for op in order for t in inputs_of(op)), *outputs))
    found: dict[Operation, list[Tensor]] = {op: [] for op in order}
    for tensor in tensors:
        found[tensor.op].append(tensor)
    return list(found.items())


def output_of(op: Operation, tensor: Tensor) -> Tensor:
    """The output of ``op`` in place of ``tensor``."""
    shape = op.shape if isinstance(op, Placeholder) else tensor.shape
    shape = tuple(axis.extent for axis in op.axes) if isinstance(op, Compute) else shape
    return Tensor(op, tensor.output, tensor.name, tensor.dtype, shape)


def rewritten(value: Expr, read: Callable[[Tensor, tuple[Expr, ...]], Expr]) -> Expr:
    """``value`` with the result of ``read`` in place of each element of a tensor."""

    def leave(node: Expr) -> Expr | None:
        return read(node.source, node.indices) if isinstance(node, Read) and isinstance(node.source, Tensor) else None

    return transform(value, leave)


def with_values(op: Compute, change: Callable[[Expr], Expr]) -> Compute:
    """``op`` with its values, and the condition of its reduction, changed."""
    if op.reduction is None:
        bodies = tuple(map(change, op.bodies))
        return op if bodies == op.bodies else replace(op, bodies=bodies)
    sources, condition = tuple(map(change, op.reduction.sources)), change(op.reduction.condition)
    if (sources, condition) == (op.reduction.sources, op.reduction.condition):
        return op
    return replace(op, reduction=replace(op.reduction, sources=sources, condition=condition))


def rewired(op: Operation, made: Mapping[Tensor, Tensor]) -> Operation:
    """A scan or an extern over the rewritten tensors."""

    def all_of_them(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(made.get(tensor, tensor) for tensor in tensors)

    match op:
        case Scan(_, init, update, state):
            parts = all_of_them(init), all_of_them(update), all_of_them(state)
            same = parts == (init, update, state)
            return op if same else replace(op, init=parts[0], update=parts[1], state=parts[2])
        case Extern(_, inputs):
            return op if all_of_them(inputs) == inputs else replace(op, inputs=all_of_them(inputs))
        case _:
            return op


@dataclass(frozen=True, slots=True)
class _Axes:
    """New axes, and the old variables in terms of them."""

    axes: tuple[IterVar, ...]
    values: Mapping[Var, Expr]
    inside: Expr
    """The condition that the old variables are within their extents."""


def _computed(op: Compute, index_map: IndexMap | None, layouts: Layouts, made: Mapping[Tensor, Tensor]) -> Compute:
    """``op`` over the packed box, with reads through the layouts of its inputs."""
    taken = {axis.name for axis in (*op.axes, *op.reduce_axis)}
    taken |= {v.name for axis in (*op.axes, *op.reduce_axis) for v in free_vars(axis.extent)}
    spatial = _Axes(op.axes, {}, all_of()) if index_map is None else _packed(op.axes, index_map, taken)
    reduced = _split_reduction(op, layouts, taken)
    axes = {**spatial.values, **reduced.values}
    bounds = Bounds({axis.var: axis.extent for axis in (*spatial.axes, *reduced.axes)})

    def read(source: Tensor, indices: tuple[Expr, ...]) -> Expr:
        packed = layouts[source].apply(indices) if source in layouts else indices
        return Read(made[source], tuple(simplify(index, bounds) for index in packed))

    def change(value: Expr) -> Expr:
        return rewritten(substitute(value, axes), read)

    changed = with_values(op, change)
    if index_map is None and not reduced.values:
        return changed
    changed = replace(changed, axes=spatial.axes)
    if changed.reduction is not None:
        changed = replace(changed, reduction=replace(changed.reduction, axes=reduced.axes))
    return changed if _reads_inside(changed, spatial, bounds) else _guarded(changed, spatial.inside)


def _packed(axes: tuple[IterVar, ...], index_map: IndexMap, taken: set[str]) -> _Axes:
    """The axes of the packed box."""
    extents = tuple(axis.extent for axis in axes)
    names = {v: axis.name for v, axis in zip(index_map.variables, axes, strict=True)}
    packed: list[IterVar] = []
    for result, extent in zip(index_map.results, index_map.shape(extents), strict=True):
        name = fresh_name(_name(result, names), taken - {axis.name for axis in axes if _is_whole(result)})
        taken.add(name)
        packed.append(IterVar(Var(name), extent, IterKind.SPATIAL))
    logical = index_map.inverse(extents, [axis.var for axis in packed])
    bounds = Bounds({axis.var: axis.extent for axis in packed})
    inside = [value < axis.extent for axis, value in zip(axes, logical, strict=True)]
    beyond = [condition for condition in inside if not prove(condition, bounds)]
    return _Axes(tuple(packed), {a.var: v for a, v in zip(axes, logical, strict=True)}, all_of(*beyond))


def _is_whole(result: Expr) -> bool:
    return isinstance(result, Var)


def _name(result: Expr, names: Mapping[Var, str]) -> str:
    """``c`` for the variable itself, ``c_o`` for its blocks, ``c_i`` for the position in a block."""
    single = digit(result)
    if single is None:
        return "_".join(names[v] for v in sorted(free_vars(result), key=str))
    suffix = "" if _is_whole(result) else "_o" if single.modulus is None else "_i"
    return names[single.var] + suffix


def _split_reduction(op: Compute, layouts: Layouts, taken: set[str]) -> _Axes:
    """Split reduction axes where the layouts of inputs do: blocks outermost, positions innermost."""
    cuts = _cuts(op, layouts)
    outer: list[IterVar] = []
    inner: list[tuple[int, IterVar]] = []
    values: dict[Var, Expr] = {}
    for axis in (axis for axis in op.reduce_axis if axis.var in cuts):
        first, *others = (1, *cuts[axis.var])
        parts = ("i", "o") if not others[1:] else ("i", *(f"m{place}" for place in range(1, len(others))), "o")
        value: Expr = ZERO
        for part, scale, above in zip(parts, (first, *others), (*others, None), strict=True):
            name = fresh_name(f"{axis.name}_{part}", taken)
            taken.add(name)
            extent = _blocks(axis, scale) if above is None else const(above // scale)
            own = IterVar(Var(name), extent, IterKind.REDUCE)
            value = own.var * scale + value
            if above is None:
                outer.append(own)
            else:
                inner.append((scale, own))
        values[axis.var] = value
    kept = [axis for axis in op.reduce_axis if axis.var not in values]
    innermost = sorted(inner, key=lambda pair: -pair[0])
    return _Axes((*outer, *kept, *(axis for _, axis in innermost)), values, all_of())


def _blocks(axis: IterVar, factor: int) -> Expr:
    assert isinstance(axis.extent, Const), "only axes of known extents are split"
    return const(int(axis.extent.value) // factor)


def _cuts(op: Compute, layouts: Layouts) -> dict[Var, tuple[int, ...]]:
    """The reduction axes of ``op`` that run along digits of its inputs' layouts, and the weights of these digits:
    each divides the next, and the axis' extent."""
    found: dict[Var, set[int]] = {}
    extents = {axis.var: axis.extent for axis in op.reduce_axis}
    for source, indices in reads_of(op):
        if source not in layouts:
            continue
        at = dict(zip(layouts[source].variables, indices, strict=True))
        for single in filter(None, map(digit, layouts[source].results)):
            for v in free_vars(at[single.var]) & extents.keys() if single.modulus else ():
                if not _counts_single(at[single.var], v):  # it runs along whole blocks
                    continue
                extent, weights = extents[v], {single.scale, single.scale * (single.modulus or 1)} - {1}
                if isinstance(extent, Const) and all(int(extent.value) % weight == 0 for weight in weights):
                    found.setdefault(v, set()).update(weights)
    return {v: tuple(sorted(weights)) for v, weights in found.items()}


def block_factors(op: Compute, layouts: Layouts) -> dict[Var, int]:
    """The reduction axes of ``op`` that run along whole blocks of its inputs, and the block sizes."""
    extents = {axis.var: axis.extent for axis in op.reduce_axis}
    factors: dict[Var, int] = {}
    for source, indices in reads_of(op):
        if source not in layouts:
            continue
        index_map = layouts[source]
        at = dict(zip(index_map.variables, indices, strict=True))
        for single in filter(None, map(digit, index_map.results)):
            for v in (reduced := free_vars(at[single.var]) & extents.keys()):
                extent = extents[v]
                if not single.modulus or not isinstance(extent, Const) or not _counts_single(at[single.var], v):
                    continue
                is_position = extent.value == single.modulus and len(reduced) > 1  # others count the blocks
                if int(extent.value) % single.modulus == 0 and not is_position:
                    factors[v] = single.modulus
    return factors


def _counts_single(index: Expr, v: Var) -> bool:
    """Whether ``index`` grows by 1 with ``v``: then ``v`` runs along positions, not along whole blocks."""
    return simplify(substitute(index, {v: v + 1}) - index, Bounds({})) == ONE


def _reads_inside(op: Compute, spatial: _Axes, bounds: Bounds) -> bool:
    """Whether no read is out of bounds at the points beyond the logical box."""
    growing = free_vars(spatial.inside)
    for source, indices in reads_of(op):
        for index, extent in zip(indices, source.shape, strict=True):
            if free_vars(index) & growing and not prove(all_of(index >= 0, index < extent), bounds):
                return False
    return True


def _guarded(op: Compute, inside: Expr) -> Compute:
    """``op`` with zero where ``inside`` does not hold."""
    if op.reduction is not None:
        return replace(op, reduction=replace(op.reduction, condition=all_of(op.reduction.condition, inside)))
    return replace(op, bodies=tuple(select(inside, body, const(0, body.dtype)) for body in op.bodies))
