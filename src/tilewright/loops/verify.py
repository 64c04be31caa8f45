"""Verifies loop programs statically; the interpreter checks the same rules at run time.

A violation of a rule of ``ir.py`` must be proven: bindings and regions that are too hard for the simplifier pass.
Names, scopes, dtypes and ranks are always decided.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NoReturn

from tilewright.base.dtypes import index
from tilewright.base.errors import BadProgram
from tilewright.base.names import RESERVED
from tilewright.loops import visit
from tilewright.loops.access import Regions, regions
from tilewright.loops.ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    Call,
    Callee,
    If,
    Loop,
    LoopKind,
    Region,
    Seq,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.launch import problems
from tilewright.loops.positions import refuse_outside
from tilewright.loops.printer import format_region
from tilewright.loops.program import Program
from tilewright.loops.visit import allocations, seq
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import TRUE, ZERO, Binary, Const, Expr, Extent, Read, Select, Var
from tilewright.symbolic.simplify import linear_form, prove, simplify
from tilewright.symbolic.traversal import free_vars, vars_in, walk

_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_IN_ORDER = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


def verify(program: Program) -> None:
    """Raise ``BadProgram``, which names the place, if ``program`` breaks a rule of the IR."""
    _Verifier(program).run()


@dataclass(frozen=True, slots=True)
class _Place:
    """The context of a statement."""

    bounds: Bounds
    visible: frozenset[Var]
    """The variables that expressions may use."""
    hidden: frozenset[Var]
    """Variables outside of the block: their names are not available."""
    buffers: dict[str, tuple[Buffer, int]]
    """The buffers in scope, with the number of loops around each."""
    loops: tuple[Loop, ...] = ()
    conditions: tuple[Expr, ...] = ()
    outer_loops: int = 0
    """The number of loops outside of the innermost block."""
    block: str = ""


class _Verifier:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._inputs = {param.name for param in program.inputs}
        self._results = {param.name for param in program.results}
        self._buffer_names: set[str] = set()
        self._loop_names: set[str] = set()
        self._block_names: set[str] = set()

    def run(self) -> None:
        dims = frozenset(dim.var for dim in self._program.dims)
        place = _Place(self._program.bounds, dims, frozenset(), {})
        if len({dim.var.name for dim in self._program.dims}) != len(self._program.dims):
            self._fail(place, "two run-time extents have one name")
        for param in self._program.params:
            place = self._declare(place, param)
        self._visit(self._program.body, place)
        refuse_outside(self._program)
        for problem in problems(self._program):
            raise BadProgram(f"{self._program.name}: {problem.reason}")

    def _fail(self, place: _Place, message: str) -> NoReturn:
        where = f"{self._program.name}, block {place.block}" if place.block else self._program.name
        raise BadProgram(f"{where}: {message}")

    # Names and scopes

    def _check_name(self, place: _Place, name: str, what: str, taken: set[str]) -> None:
        if not _NAME.fullmatch(name) or name in RESERVED:
            self._fail(place, f"{name!r} can't name a {what}")
        if name in taken:
            self._fail(place, f"there are two {what}s called {name}; names are unique in a program")
        taken.add(name)

    def _declare(self, place: _Place, buffer: Buffer) -> _Place:
        self._check_name(place, buffer.name, "buffer", self._buffer_names)
        dims = {dim.var for dim in self._program.dims}
        for extent in buffer.shape:
            if extent.dtype != index or not free_vars(extent) <= dims:
                self._fail(place, f"extent {extent} of {buffer!r} is not made of run-time extents")
        return replace(place, buffers={**place.buffers, buffer.name: (buffer, len(place.loops))})

    def _check_buffer(self, place: _Place, buffer: Buffer) -> None:
        known = place.buffers.get(buffer.name)
        if known is None:
            self._fail(place, f"buffer {buffer.name} is used where it does not exist; put an Alloc around")
        if known[0] != buffer:
            self._fail(place, f"{buffer!r} is used, but {known[0]!r} is what exists")

    def _check_written(self, place: _Place, buffer: Buffer) -> None:
        self._check_buffer(place, buffer)
        if buffer.name in self._inputs:
            self._fail(place, f"{buffer.name} is an input; it can't be written")

    # Expressions

    def _check_expr(self, place: _Place, expr: Expr, what: str) -> None:
        for node in walk(expr):
            match node:
                case Var() if node not in place.visible:
                    note = "; inside a block only its own axes and run-time extents are visible" if place.block else ""
                    self._fail(place, f"{what} `{expr}` uses {node}, which has no value here{note}")
                case Read(Buffer() as source, indices):
                    self._check_buffer(place, source)
                    self._check_indices(place, source, indices)
                case Read(source, _):
                    self._fail(place, f"{what} `{expr}` reads the tensor {source.name}; loop programs read buffers")
                case Binary(_, a, b) | Select(_, a, b) if a.dtype != b.dtype:
                    self._fail(place, f"{what} `{node}` mixes {a.dtype} and {b.dtype}")
                case _:
                    pass

    def _check_index(self, place: _Place, expr: Expr, what: str) -> None:
        self._check_expr(place, expr, what)
        if expr.dtype != index:
            self._fail(place, f"{what} `{expr}` is {expr.dtype}, not {index}")

    def _check_condition(self, place: _Place, expr: Expr, what: str) -> None:
        self._check_expr(place, expr, what)
        if not expr.dtype.is_bool:
            self._fail(place, f"{what} `{expr}` is {expr.dtype}, not bool")

    def _check_indices(self, place: _Place, buffer: Buffer, indices: Sequence[Expr]) -> None:
        if len(indices) != len(buffer.shape):
            self._fail(place, f"{buffer!r} has {len(buffer.shape)} dimensions, but {len(indices)} indices")
        for expr in indices:
            if expr.dtype != index:
                self._fail(place, f"index `{expr}` of {buffer.name} is {expr.dtype}, not {index}")

    # Statements

    def _visit(self, stmt: Stmt, place: _Place) -> None:
        match stmt:
            case Store():
                self._store(stmt, place)
            case Stores(stores):
                for store in stores:
                    self._store(store, place)
                if len({(store.buffer, store.indices) for store in stores}) != len(stores):
                    self._fail(place, f"one element of {stores[0].buffer.name} is stored twice at once")
            case Seq(statements):
                for inner in statements:
                    self._visit(inner, place)
            case If(condition, then, otherwise):
                self._check_condition(place, condition, "condition")
                inside = replace(place, conditions=(*place.conditions, condition))
                self._visit(then, replace(inside, bounds=place.bounds.assuming(condition)))
                if otherwise is not None:
                    self._visit(otherwise, inside)
            case Loop():
                self._loop(stmt, place)
            case Alloc():
                around, inner = allocations(stmt)
                for alloc in around:
                    place = self._declare(place, alloc.buffer)
                self._visit(inner, place)
            case Block():
                self._block(stmt, place)
            case Call():
                self._call(stmt, place)
            case Barrier():
                pass

    def _store(self, store: Store, place: _Place) -> None:
        self._check_written(place, store.buffer)
        self._check_indices(place, store.buffer, store.indices)
        for expr in store.indices:
            self._check_expr(place, expr, f"index of {store.buffer.name}")
        self._check_expr(place, store.value, "value")
        if store.value.dtype != store.buffer.dtype:
            self._fail(place, f"{store.buffer!r} is assigned `{store.value}` of {store.value.dtype}; cast it")

    def _loop(self, loop: Loop, place: _Place) -> None:
        self._check_index(place, loop.extent, f"extent of loop {loop.var}")
        self._check_name(place, loop.var.name, "loop", self._loop_names)
        self._check_not_hidden(place, loop.var)
        inside = replace(
            place,
            bounds=place.bounds.extended({loop.var: loop.extent}),
            visible=place.visible | {loop.var},
            loops=(*place.loops, loop),
        )
        self._visit(loop.body, inside)

    def _check_not_hidden(self, place: _Place, var: Var) -> None:
        if isinstance(var, Extent) or var.dtype != index:
            self._fail(place, f"{var} is a run-time extent, or no {index}; loops and axes have variables of their own")
        if var.name in {other.name for other in place.visible | place.hidden}:
            self._fail(place, f"{var} hides another variable of that name")

    def _call(self, call: Call, place: _Place) -> None:
        for region in call.args:
            self._check_region(place, region, place)
        for region in call.args[len(call.args) - call.outputs :]:
            self._check_written(place, region.buffer)
        if call.kind is not Callee.INTRINSIC:
            return
        found = [intrinsic for intrinsic in self._program.intrinsics if intrinsic.name == call.callee]
        if not found:
            self._fail(place, f"intrinsic {call.callee} is called, but is not among the program's intrinsics")
        params, outputs = found[0].description.params, found[0].description.outputs
        if (len(params), outputs) != (len(call.args), call.outputs):
            self._fail(
                place,
                f"{call.callee} takes {len(params)} arguments, {outputs} of them outputs, but is called with "
                f"{len(call.args)} and {call.outputs}",
            )
        for param, region in zip(params, call.args, strict=True):
            if param.dtype != region.buffer.dtype or len(param.shape) > len(region.ranges):
                self._fail(place, f"{call.callee}: {param!r} can't be the region {format_region(region)}")

    # Blocks

    def _block(self, block: Block, place: _Place) -> None:
        self._check_name(place, block.name, "block", self._block_names)
        here = replace(place, block=block.name)
        if len(block.axes) != len(block.bindings):
            self._fail(here, f"{len(block.axes)} axes have {len(block.bindings)} bindings")
        for binding in block.bindings:
            self._check_index(here, binding, "binding")
        self._check_condition(here, block.predicate, "predicate")
        inside = self._inside(block, here)
        for region in block.reads:
            self._check_region(here, region, inside)
        for region in block.writes:
            self._check_region(here, region, inside)
            self._check_written(here, region.buffer)
        if block.init is not None:
            self._visit(block.init, inside)
        self._visit(block.body, inside)
        if not self._is_dead(block, here):
            self._check_coverage(block, inside)
            self._check_range(block, here)
        self._check_races(block, here)
        self._check_repetition(block, here)

    def _inside(self, block: Block, place: _Place) -> _Place:
        dims = frozenset(dim.var for dim in self._program.dims)
        hidden = place.hidden | place.visible
        for axis in block.axes:
            self._check_not_hidden(replace(place, hidden=hidden), axis.var)
            self._check_name(place, axis.name, "axis", set())
            if axis.extent.dtype != index or not free_vars(axis.extent) <= dims:
                self._fail(place, f"extent {axis.extent} of axis {axis.name} is not made of run-time extents")
        if len({axis.var for axis in block.axes}) != len(block.axes):
            self._fail(place, "two axes have one name")
        return replace(
            place,
            bounds=self._program.bounds.extended({axis.var: axis.extent for axis in block.axes}),
            visible=dims | {axis.var for axis in block.axes},
            hidden=hidden - dims,
            conditions=(),
            outer_loops=len(place.loops),
        )

    def _check_region(self, place: _Place, region: Region, scope: _Place) -> None:
        self._check_buffer(place, region.buffer)
        if len(region.ranges) != len(region.buffer.shape):
            self._fail(place, f"region of {region.buffer!r} has {len(region.ranges)} ranges")
        for start, extent in region.ranges:
            self._check_index(scope, start, f"region of {region.buffer.name}:")
            self._check_index(scope, extent, f"region of {region.buffer.name}:")

    def _check_coverage(self, block: Block, inside: _Place) -> None:
        """Checks that no access is provably outside of the block's declared regions."""
        whole = block.body if block.init is None else seq(block.init, block.body)
        is_guarded = block.predicate != TRUE or _has_conditions(whole)
        touched: Regions = regions(whole, inside.bounds)
        for verb, actual, declared in (("reads", touched.reads, block.reads), ("writes", touched.writes, block.writes)):
            for region in actual:
                known = [other for other in declared if other.buffer == region.buffer]
                if not any(_may_cover(other, region, inside.bounds, is_guarded) for other in known):
                    stated = ", ".join(map(format_region, known)) or "nothing of it"
                    self._fail(inside, f"{verb} {format_region(region)}, but declares {stated}")

    def _is_dead(self, block: Block, place: _Place) -> bool:
        """Whether it provably never runs, so that every condition holds inside."""
        extents = (*(loop.extent for loop in place.loops), *(axis.extent for axis in block.axes))
        return any(isinstance(extent, Const) and extent.value <= 0 for extent in extents)

    def _check_range(self, block: Block, place: _Place) -> None:
        bounds = place.bounds.assuming(block.predicate)
        for axis, binding in zip(block.axes, block.bindings, strict=True):
            if prove(binding < 0, bounds) or prove(binding >= axis.extent, bounds):
                self._fail(place, f"axis {axis.name} = {binding} is outside of its extent {axis.extent}")

    def _check_races(self, block: Block, place: _Place) -> None:
        """Checks that reductions and recurrences do not run in parallel, except into buffers private to a worker."""
        for loop in self._repeating(block, place):
            if loop.kind in _IN_ORDER:
                continue
            for axis, binding in zip(block.axes, block.bindings, strict=True):
                if axis.kind is not IterKind.SPATIAL and loop.var in free_vars(binding):
                    self._fail(
                        place,
                        f"{loop.kind.value} loop {loop.var} drives the {axis.kind.value} axis {axis.name}: its "
                        "iterations race for the same elements; use rfactor, or a serial loop",
                    )

    def _repeating(self, block: Block, place: _Place) -> tuple[Loop, ...]:
        """The loops within the lifetime of the innermost allocated buffer that ``block`` writes."""
        written = [place.buffers[region.buffer.name][1] for region in block.writes]
        return place.loops[max(place.outer_loops, *written, 0) :] if written else ()

    def _check_repetition(self, block: Block, place: _Place) -> None:
        """Checks that no point of the axes is provably executed twice, or, for a result, provably never."""
        loops = self._repeating(block, place)
        if any(loop.extent == ZERO for loop in place.loops):
            return
        guards = (block.predicate, *place.conditions)
        used = vars_in((*block.bindings, *guards))
        for loop in loops:
            if loop.var not in used and not _is_at_most_one(loop.extent, place.bounds):
                self._fail(place, f"is executed again for each {loop.var}, on which no axis depends")
        if any(guard != TRUE for guard in guards):
            return
        runs, points = _product(loop.extent for loop in loops), _product(axis.extent for axis in block.axes)
        if runs is None or points is None:
            return
        if runs > points:
            self._fail(place, f"its {points} points are executed by {runs} iterations: some of them twice")
        into_result = any(region.buffer.name in self._results for region in block.writes)
        in_all = _product(loop.extent for loop in place.loops)
        if into_result and not place.outer_loops and not place.hidden and in_all is not None and in_all < points:
            self._fail(place, f"its {points} points are executed by {in_all} iterations: some of them never")


def _is_at_most_one(extent: Expr, bounds: Bounds) -> bool:
    return prove(extent <= 1, bounds)


def _product(extents: Iterable[Expr]) -> int | None:
    listed = list(extents)
    return (
        prod(int(e.value) for e in listed if isinstance(e, Const))
        if all(isinstance(e, Const) for e in listed)
        else None
    )


def _highest(expr: Expr, bounds: Bounds) -> int:
    """The maximum of ``expr`` if it is a sum of axes with constant extents, else 0."""
    form = linear_form(expr, bounds)
    total = form.constant
    for atom, factor in form.terms:
        extent = bounds.extents.get(atom) if isinstance(atom, Var) else None
        if not isinstance(extent, Const):
            return 0
        total += max(factor, 0) * (int(extent.value) - 1)
    return total


def _has_conditions(stmt: Stmt) -> bool:
    """Whether some accesses may be skipped at some points."""
    statements = list(visit.walk(stmt))
    exprs = (node for each in statements for expr in visit.own_exprs(each) for node in walk(expr))
    return any(isinstance(each, If | Block | Call) for each in statements) or any(
        isinstance(node, Select) or (isinstance(node, Binary) and node.dtype.is_bool) for node in exprs
    )


def _may_cover(declared: Region, actual: Region, bounds: Bounds, is_guarded: bool) -> bool:
    """False if ``actual`` provably reaches outside of ``declared``.

    Without guards: at some point of the axes. With guards: at all points, as others may not be executed, and
    completely, as loops inside may not reach its ends.
    """
    ranges = zip(declared.ranges, actual.ranges, declared.buffer.shape, strict=True)
    for (start, extent), (first, size), whole in ranges:
        if (start, extent) == (ZERO, whole):
            continue
        for outside in (start - first, first + size - start - extent):
            reaches = prove(simplify(outside, bounds) >= size, bounds) if is_guarded else False
            if reaches or (not is_guarded and _highest(outside, bounds) > 0):
                return False
    return True
