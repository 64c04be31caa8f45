"""``tensorize``: replaces a nest of loops around one block by a call of a hardware intrinsic.

The block keeps its name; each of its axes now counts tiles. With ``vi = yo * 8 + yi`` and an intrinsic of 8 rows::

    for yo in range(128):                 for yo in range(128):
      for yi in range(8):         ->        block C(vi = yo: spatial 128):
        block C(vi = yo * 8 + yi ...)          intrinsic gemm8x8(A[vi * 8 +: 8, ...], ...)
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.loops import visit
from tilewright.loops.ir import Block, Call, Callee, If, Loop, Region, Stmt, Store
from tilewright.loops.program import Intrinsic, Program
from tilewright.loops.visit import perfect_nest
from tilewright.schedule.determination import undetermined
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.matching import Matcher
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    LoopRef,
    bounds_at,
    bounds_below,
    depends_on,
    loop_at,
    refuse,
    rewrite,
)
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, Extent, Read, Select, Var, const, equal, minimum
from tilewright.symbolic.simplify import equivalent, prove, simplify
from tilewright.symbolic.traversal import all_of, conjuncts, substitute


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of the block, in tiles of ``size`` points; ``start`` is the binding's first point in the tile."""

    axis: IterVar
    start: Expr
    size: int
    is_cut: bool = False
    """Whether the last tile may be lower."""

    @property
    def outer(self) -> IterVar:
        """The axis that counts tiles."""
        more = self.size - 1 if self.is_cut else 0
        return IterVar(self.axis.var, (self.axis.extent + more) // self.size, self.axis.kind)

    @property
    def points(self) -> Expr:
        """Those of the tile that the axis counts."""
        return minimum(self.size, self.axis.extent - self.axis.var * self.size) if self.is_cut else const(self.size)

    @property
    def tile(self) -> Expr:
        """The number of the tile."""
        return self.start // self.size


def tensorize(program: Program, loop: LoopRef, intrinsic: TensorIntrinsic) -> tuple[Program, BlockRef]:
    """Replace ``loop`` and everything in it by ``intrinsic``; returns the block that calls it.

    A reduction that continues outside of ``loop`` uses the forms ``reset`` and ``update``. Refuses unless the loops are
    a perfect nest around one block whose predicate they do not change (so their splits must be exact), and which
    matches, in tiles of the intrinsic's size, the description operand by operand. What the block does only where a
    condition holds, which is the same for all of a tile, is a call where it holds. For an axis that the intrinsic takes
    with an extent of run time, the last tile may be lower: the call is on what is left.
    """
    place = loop_at(program, loop)
    guarded, axes = _tiles(program, place, intrinsic)
    guarded = dataclasses.replace(guarded, body=_conditional(guarded.body))
    block = _unguarded(guarded, axes)
    pattern = _pattern(block, intrinsic)
    matched = _matched(axes, pattern, intrinsic)
    matcher = _match(program, block, axes, matched, pattern, intrinsic)
    new, used = _calling(block, axes, matcher, pattern, intrinsic, _sizes(axes, matched))
    new = dataclasses.replace(
        new, body=_again(guarded.body, new.body), init=_again(guarded.init, new.init) if new.init is not None else None
    )
    bounds = bounds_at(program, place)
    new = dataclasses.replace(new, bindings=tuple(simplify(binding, bounds) for binding in new.bindings))
    known = {known.name for known in program.intrinsics}
    program = dataclasses.replace(
        program, intrinsics=(*program.intrinsics, *(form for form in used if form.name not in known))
    )
    return rewrite(program, place, new), BlockRef(block.name)


# The nest, as tiles --------------------------------------------------------------------------------------------------


def _tiles(program: Program, place: Location[Loop], intrinsic: TensorIntrinsic) -> tuple[Block, tuple[_Axis, ...]]:
    """The block inside, and its axes in tiles of the loops from ``place`` inward; without what is said of the end of an
    axis that the intrinsic takes with any extent."""
    inner = perfect_nest(place.stmt)
    block = inner[-1].body
    if not isinstance(block, Block):
        raise refuse("there must be one block inside, and nothing else", LoopRef(inner[-1].var.name))
    ref = BlockRef(block.name)
    bounds = bounds_below(program, (*place.ancestors, *inner))
    variables = [loop.var for loop in inner]
    cut = _cut_axis(block, variables) if intrinsic.description.dims else None
    if cut is not None:
        block = dataclasses.replace(block, predicate=_without_end(block, cut))
    if depends_on(block.predicate, variables):
        raise refuse(f"the block has the predicate `{block.predicate}`; split by factors that divide the extents", ref)
    pairs = zip(block.axes, block.bindings, strict=True)
    axes = tuple(_tile(axis, b, variables, bounds, ref, axis is cut) for axis, b in pairs)
    _require_exact(inner, axes, block, bounds)
    return block, axes


def _cut_axis(block: Block, inner: Sequence[Var]) -> IterVar | None:
    """The axis of ``block`` whose end is all that its predicate says of the loops ``inner``."""
    pairs = zip(block.axes, block.bindings, strict=True)
    ends = (axis for axis, binding in pairs if depends_on(binding, inner) and axis.kind is IterKind.SPATIAL)
    return next((axis for axis in ends if not depends_on(_without_end(block, axis), inner)), None)


def _without_end(block: Block, axis: IterVar) -> Expr:
    """The predicate of ``block`` without its limit of ``axis`` to the extent of that."""
    end = block.bindings[block.axes.index(axis)] < axis.extent
    return all_of(*(part for part in conjuncts(block.predicate) if part != end))


def _tile(axis: IterVar, binding: Expr, inner: Sequence[Var], bounds: Bounds, ref: BlockRef, is_cut: bool) -> _Axis:
    start = simplify(substitute(binding, dict.fromkeys(inner, ZERO)), bounds)
    within = interval(simplify(binding - start, bounds), bounds)
    if within.lo != 0 or within.hi is None:
        raise refuse(f"axis `{axis.name}` = {binding} does not run over a tile of constant size", ref)
    size = within.hi + 1
    is_divided = is_cut or prove(equal(axis.extent % size, 0), bounds)
    if not (is_divided and prove(equal(start % size, 0), bounds)):
        raise refuse(f"axis `{axis.name}` = {binding} of extent {axis.extent} is not made of tiles of {size}", ref)
    return _Axis(axis, start, size, is_cut)


def _require_exact(inner: Sequence[Loop], axes: Sequence[_Axis], block: Block, bounds: Bounds) -> None:
    """Checks that the loops run over each point of the tile once; those that run once do so at any of them."""
    variables = [loop.var for loop in inner if loop.extent != ONE]
    iterations: Expr = ONE
    for loop in inner:
        iterations = iterations * loop.extent
    points = 1
    for axis in axes:
        points *= axis.size
    offsets = [b - axis.start for axis, b in zip(axes, block.bindings, strict=True)]
    if iterations != const(points) or undetermined(offsets, variables, variables, bounds):
        raise refuse(f"the loops run {iterations} times, not once for each of {points} points", BlockRef(block.name))


def _unguarded(block: Block, axes: Sequence[_Axis]) -> Block:
    """``block`` without the conditions around what it does. Refuses those that change within a tile."""
    moving = [axis.axis.var for axis in axes if axis.size > 1]
    for stmt in (block.body, block.init):
        for condition in _conditions(stmt):
            if depends_on(condition, moving):
                raise refuse(f"the condition `{condition}` changes within a tile", BlockRef(block.name))
    init = None if block.init is None else _inside(block.init)
    return dataclasses.replace(block, body=_inside(block.body), init=init)


def _conditional(stmt: Stmt) -> Stmt:
    """A store that keeps what is there unless a condition holds, as a store where it holds."""
    match stmt:
        case Store(buffer, indices, Select(condition, value, kept)) if kept == Read(buffer, indices):
            return If(condition, dataclasses.replace(stmt, value=value))
        case _:
            return stmt


def _conditions(stmt: Stmt | None) -> tuple[Expr, ...]:
    match stmt:
        case If(condition, then, None):
            return condition, *_conditions(then)
        case _:
            return ()


def _inside(stmt: Stmt) -> Stmt:
    while isinstance(stmt, If) and stmt.otherwise is None:
        stmt = stmt.then
    return stmt


def _again(guarded: Stmt | None, made: Stmt) -> Stmt:
    """``made`` under the conditions that ``guarded`` has."""
    for condition in reversed(_conditions(guarded)):
        made = If(condition, made)
    return made


# The intrinsic, axis by axis -----------------------------------------------------------------------------------------


def _pattern(block: Block, intrinsic: TensorIntrinsic) -> Block:
    """The pattern of the block: the description, or only its init or update."""
    pattern = intrinsic.block
    if pattern.init is None or block.init is not None:
        return pattern
    if any(axis.kind is IterKind.REDUCE for axis in block.axes):
        return dataclasses.replace(pattern, init=None)
    spatial = tuple(axis for axis in pattern.axes if axis.kind is IterKind.SPATIAL)
    return dataclasses.replace(pattern, axes=spatial, init=None, body=pattern.init)


def _matched(axes: Sequence[_Axis], pattern: Block, intrinsic: TensorIntrinsic) -> dict[Var, IterVar]:
    """The intrinsic's axis for each axis of the block: from the right, for each kind; the others are single points."""
    matched: dict[Var, IterVar] = {}
    for kind in IterKind:
        own = [axis for axis in axes if axis.axis.kind is kind]
        theirs = [axis for axis in pattern.axes if axis.kind is kind]
        pairs = _paired(own, theirs, _most(intrinsic))
        if pairs is None:
            mine = " x ".join(f"{axis.size} ({axis.axis.name})" for axis in own) or "none"
            wanted = " x ".join(f"{axis.extent} ({axis.name})" for axis in theirs) or "none"
            raise refuse(f"the {kind.value} tile is {mine}, but {intrinsic.name} takes {wanted}")
        matched.update(pairs)
    return matched


def _most(intrinsic: TensorIntrinsic) -> dict[Var, Expr]:
    """The largest values of run-time extents."""
    return {dim.var: const(dim.bound) for dim in intrinsic.description.dims if dim.bound is not None}


def _paired(own: Sequence[_Axis], theirs: Sequence[IterVar], most: Mapping[Var, Expr]) -> dict[Var, IterVar] | None:
    """Pairs of axes of equal sizes, from the right; axes of single points that do not fit are left out."""
    left, pairs = list(theirs), dict[Var, IterVar]()
    for axis in reversed(own):
        if left and const(axis.size) == substitute(left[-1].extent, most) and not _is_too_low(axis, left[-1]):
            pairs[axis.axis.var] = left.pop()
        elif axis.size != 1:
            return None
    return None if left else pairs


def _is_too_low(axis: _Axis, other: IterVar) -> bool:
    """Whether the last tile of ``axis`` may be lower, while ``other`` is of one extent."""
    return axis.is_cut and isinstance(other.extent, Const)


def _sizes(axes: Sequence[_Axis], matched: Mapping[Var, IterVar]) -> dict[Var, Expr]:
    """The intrinsic's run-time extents in a call, over the axes that count tiles."""
    pairs = ((axis, matched.get(axis.axis.var)) for axis in axes)
    return {o.extent: axis.points for axis, o in pairs if o is not None and isinstance(o.extent, Extent)}


def _match(
    program: Program,
    block: Block,
    axes: Sequence[_Axis],
    matched: dict[Var, IterVar],
    pattern: Block,
    intrinsic: TensorIntrinsic,
) -> Matcher:
    """The two bodies, compared over the axes that count tiles and the intrinsic's axes."""
    inner = {axis.var: Var(f"{intrinsic.name}.{axis.name}") for axis in pattern.axes}
    extents = {axis.axis.var: axis.outer.extent for axis in axes}
    extents.update((inner[axis.var], substitute(axis.extent, _most(intrinsic))) for axis in pattern.axes)
    bounds = program.bounds.extended(extents)
    values: dict[Var, Expr] = {}
    for axis in axes:
        other = matched.get(axis.axis.var)
        offset = ZERO if other is None else inner[other.var]
        values[axis.axis.var] = axis.axis.var * axis.size + offset
    matcher = Matcher(intrinsic.name, tuple(inner.values()), bounds)
    for own, their in ((block.body, pattern.body), (block.init, pattern.init)):
        if own is not None and their is not None:
            matcher.statement(visit.substitute(own, values), visit.substitute(their, inner))
    return matcher


# The call ------------------------------------------------------------------------------------------------------------


def _calling(
    block: Block,
    axes: Sequence[_Axis],
    matcher: Matcher,
    pattern: Block,
    intrinsic: TensorIntrinsic,
    sizes: Mapping[Var, Expr],
) -> tuple[Block, tuple[Intrinsic, ...]]:
    """The block over tiles that calls the right form of ``intrinsic``, and the forms that it uses."""
    is_reset = len(pattern.axes) < len(intrinsic.block.axes)
    inputs = () if is_reset else tuple(matcher.region(p, sizes) for p in intrinsic.description.inputs)
    outputs = tuple(matcher.region(p, sizes) for p in intrinsic.description.results)
    for parameter, region in zip(intrinsic.description.params, (*inputs, *outputs), strict=not is_reset):
        if parameter.name in intrinsic.dense and region.ranges[-1][1] != region.buffer.shape[-1]:
            raise refuse(
                f"{intrinsic.name} takes whole rows of {parameter.name}, and {region.buffer.name} has longer ones"
            )
    touched = (*outputs, *inputs)  # an intrinsic may read its outputs
    is_whole = all(a.axis.kind is not IterKind.REDUCE or equivalent(a.outer.extent, ONE, Bounds()) for a in axes)
    if pattern.init is not None and not (is_whole and _is_best(intrinsic.compute, intrinsic.update)):
        reset, update = _form(intrinsic.reset, "reset", intrinsic), _form(intrinsic.update, "update", intrinsic)
        body, init = _call(update, inputs, outputs), _call(reset, (), outputs)
        return _over_tiles(block, axes, touched, outputs, body, init), (reset, update)
    if intrinsic.block.init is None or pattern.init is not None:
        compute = _form(intrinsic.compute, "compute", intrinsic)
        kept = [axis for axis in axes if axis.axis.kind is not IterKind.REDUCE]
        return _over_tiles(block, kept, touched, outputs, _call(compute, inputs, outputs), None), (compute,)
    if is_reset:
        reset = _form(intrinsic.reset, "reset", intrinsic)
        return _over_tiles(block, axes, outputs, outputs, _call(reset, (), outputs), None), (reset,)
    update = _form(intrinsic.update, "update", intrinsic)
    return _over_tiles(block, axes, touched, outputs, _call(update, inputs, outputs), None), (update,)


def _is_best(compute: Intrinsic | None, update: Intrinsic | None) -> bool:
    """Whether to use the form of the whole: not if only the update is an instruction."""
    return compute is not None and (compute.implementation != "" or update is None or update.implementation == "")


def _form(form: Intrinsic | None, role: str, intrinsic: TensorIntrinsic) -> Intrinsic:
    if form is None:
        raise refuse(f"{intrinsic.name} is declared without the form `{role}`, which this place needs")
    return form


def _call(form: Intrinsic, inputs: tuple[Region, ...], outputs: tuple[Region, ...]) -> Call:
    return Call(Callee.INTRINSIC, form.name, (*inputs, *outputs), len(outputs))


def _over_tiles(
    block: Block,
    axes: Sequence[_Axis],
    reads: tuple[Region, ...],
    writes: tuple[Region, ...],
    body: Stmt,
    init: Stmt | None,
) -> Block:
    return dataclasses.replace(
        block,
        axes=tuple(axis.outer for axis in axes),
        bindings=tuple(axis.tile for axis in axes),
        reads=reads,
        writes=writes,
        body=body,
        init=init,
    )
