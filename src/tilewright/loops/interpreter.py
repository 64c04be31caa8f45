"""Interprets loop programs, one element at a time: the oracle of schedules and of generated code.

It also checks the rules of ``ir.py`` at run time, and raises if one is broken:

- ``OutOfBounds``: an access outside of its buffer.
- ``BadProgram``: a read of an element that was never written; an access outside of the regions that a block declares; a
  point of a block's axes executed twice; a reduction that does not start at its zero point, or ends unfinished; ordered
  axes not ascending; an output element that was never written.

Loops without a fixed order can be run in several orders (``Order``), which reveals dependences between iterations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from operator import contains
from random import Random
from typing import TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadProgram, OutOfBounds
from tilewright.loops.dissolve import dissolve
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
from tilewright.loops.program import Program
from tilewright.loops.scalars import Evaluator, IntEvaluator, Value, as_value, evaluator, int_evaluator
from tilewright.loops.storage import Box, Point, Progress, Storage
from tilewright.loops.visit import walk
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Expr, Extent, Source

_Env: TypeAlias = dict[str, int]
_Action: TypeAlias = Callable[[_Env], None]
_Declared: TypeAlias = dict[str, list[tuple[range, ...]]]
"""The regions that a block may access, by buffer."""


class Order(Enum):
    """The order of iterations of loops that are not serial."""

    ASCENDING = "ascending"
    REVERSED = "reversed"
    SHUFFLED = "shuffled"


Kernels: TypeAlias = Callable[[Call, Program, Mapping[str, Array], Mapping[str, int]], None]
"""Executes a call of a kernel: reads and writes the arrays of its parameters, by name; run-time extents by name."""


def interpret(
    program: Program,
    arrays: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
    programs: Mapping[str, Program] | None = None,
    order: Order = Order.ASCENDING,
    kernels: Kernels | None = None,
) -> dict[str, Array]:
    """The outputs of ``program``, by name, when its parameters have the values in ``arrays``.

    ``dims``: run-time extents that are in no shape; ``programs``: the kernels that it calls, by name. An output may be
    fed too, as its initial values. ``kernels`` executes calls of kernels; by default they are interpreted. Raises
    ``BadFeed`` for feeds that do not fit, and the errors in the module's docstring.
    """
    extents, shapes = fed_shapes(program, arrays, dims or {})
    storages = {
        param.name: Storage.full(arrays[param.name].copy())
        if param.name in arrays
        else Storage.new(param, shapes[param.name])
        for param in program.params
    }
    with np.errstate(all="ignore"):
        _Machine(program, programs or {}, order, kernels).run(storages, extents)
    for result in program.results:
        storages[result.name].check_complete(program.name, result.name)
    return {result.name: storages[result.name].array for result in program.results}


def fed_shapes(
    program: Program, arrays: Mapping[str, Array], dims: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """The run-time extents of a run on ``arrays``, and the shapes of all parameters; ``BadFeed`` if they do not fit."""
    extents = run_time_extents(program, {name: array.shape for name, array in arrays.items()}, dims)
    shapes: dict[str, tuple[int, ...]] = {}
    for param in program.params:
        shape = tuple(_extent(e, _environment(program, extents)) for e in param.shape)
        fed = arrays.get(param.name)
        if fed is None and param in program.inputs:
            raise BadFeed(f"{program.name}: no array is given for {param!r}")
        if fed is not None and (fed.shape != shape or dtypes.from_numpy(fed.dtype) != param.dtype):
            raise BadFeed(f"{program.name}: {param!r} can't be {fed.dtype}{list(fed.shape)}")
        shapes[param.name] = tuple(max(extent, 0) for extent in shape)
    unknown = arrays.keys() - shapes.keys()
    if unknown:
        raise BadFeed(f"{program.name} has no parameter {', '.join(sorted(unknown))}")
    return extents, shapes


def run_time_extents(
    program: Program, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]
) -> dict[str, int]:
    """The run-time extents of ``program`` by name: the given ones, and dimensions of arguments.

    Raises ``BadFeed`` if one is unknown, negative, above its bound, or differs from one argument to the next.
    """
    known = {name: value for name, value in given.items() if any(dim.var.name == name for dim in program.dims)}
    for param in program.params:
        for extent, size in zip(param.shape, shapes.get(param.name, ()), strict=False):
            if isinstance(extent, Extent) and known.setdefault(extent.name, size) != size:
                raise BadFeed(f"{program.name}: {extent.name} is {known[extent.name]}, but {param.name} says {size}")
    for dim in program.dims:
        value = known.get(dim.var.name)
        if value is None:
            raise BadFeed(
                f"{program.name}: the run-time extent {dim.var.name} follows from no argument; give it in dims="
            )
        if value < 0 or (dim.bound is not None and value > dim.bound):
            raise BadFeed(f"{program.name}: {dim.var.name} is {value}; it must be 0 .. {dim.bound}")
    return known


def _environment(program: Program, extents: Mapping[str, int]) -> _Env:
    return {dim.var.unique: extents[dim.var.name] for dim in program.dims}


def _extent(extent: Expr, environment: _Env) -> int:
    return int(extent.value) if isinstance(extent, Const) else int_evaluator(extent, _no_load)(environment)


def _no_load(source: Source, at: Point) -> Value:
    raise BadProgram(f"an extent reads {source.name}{list(at)}; extents are made of run-time extents only")


@dataclass(slots=True)
class _Frame:
    """An active block."""

    block: Block
    point: Point
    reads: "_Declared"
    writes: "_Declared"


@dataclass(frozen=True, slots=True)
class _AxesByKind:
    """The positions of a block's axes."""

    spatial: tuple[int, ...]
    reduce: tuple[int, ...]
    ordered: tuple[int, ...]
    others: tuple[int, ...]
    """The positions of its spatial axes."""

    @staticmethod
    def of(block: Block) -> "_AxesByKind":
        def those(*kinds: IterKind) -> tuple[int, ...]:
            return tuple(d for d, axis in enumerate(block.axes) if axis.kind in kinds)

        spatial, ordered = those(IterKind.SPATIAL), those(IterKind.ORDERED)
        return _AxesByKind(spatial, those(IterKind.REDUCE), ordered, those(IterKind.SPATIAL, IterKind.ORDERED))


class _Machine:
    """Executes one program. Statements are turned into closures once, which take the values of the variables."""

    def __init__(
        self, program: Program, programs: Mapping[str, Program], order: Order, kernels: Kernels | None
    ) -> None:
        self._program = program
        self._programs = programs
        self._order = order
        self._kernels = kernels
        self._random = Random(0)
        self._intrinsics = {intrinsic.name: intrinsic.description for intrinsic in program.intrinsics}
        self._storages: dict[str, Storage] = {}
        self._frames: list[_Frame] = []
        self._extents: dict[str, int] = {}
        self._scope: _Env = {}

    def run(self, storages: Mapping[str, Storage], extents: Mapping[str, int]) -> None:
        """Execute the program on ``storages``, by the names of its parameters."""
        self._storages = dict(storages)
        self._extents = dict(extents)
        self._scope = _environment(self._program, extents)
        self._action(self._program.body)(dict(self._scope))
        for storage in storages.values():
            storage.finish()

    # Statements

    def _action(self, stmt: Stmt) -> _Action:
        match stmt:
            case Store():
                return self._store(stmt)
            case Stores(stores):
                return self._stores(stores)
            case Seq(statements):
                return self._seq([self._action(inner) for inner in statements])
            case If():
                return self._if(stmt)
            case Loop():
                return self._loop(stmt)
            case Alloc():
                return self._alloc(stmt)
            case Block():
                return self._block(stmt)
            case Call():
                return self._call(stmt)
            case Barrier():
                return lambda env: None

    def _store(self, stmt: Store) -> _Action:
        at, value = self._ints(stmt.indices), self._evaluator(stmt.value)
        return lambda env: self._write(stmt.buffer, tuple([i(env) for i in at]), value(env))

    def _stores(self, stores: Sequence[Store]) -> _Action:
        parts = [(s.buffer, self._ints(s.indices), self._evaluator(s.value)) for s in stores]

        def run(env: _Env) -> None:
            ready = [(buffer, tuple([i(env) for i in at]), value(env)) for buffer, at, value in parts]
            for buffer, where, value in ready:
                self._write(buffer, where, value)

        return run

    def _seq(self, actions: Sequence[_Action]) -> _Action:
        def run(env: _Env) -> None:
            for action in actions:
                action(env)

        return run

    def _if(self, stmt: If) -> _Action:
        condition, then = self._evaluator(stmt.condition), self._action(stmt.then)
        otherwise = None if stmt.otherwise is None else self._action(stmt.otherwise)

        def run(env: _Env) -> None:
            if condition(env):
                then(env)
            elif otherwise is not None:
                otherwise(env)

        return run

    def _loop(self, stmt: Loop) -> _Action:
        name, extent, body = stmt.var.unique, self._int(stmt.extent), self._action(stmt.body)
        may_start = any(isinstance(node, Block) and node.init is not None for node in walk(stmt))

        def run(env: _Env) -> None:
            count = extent(env)
            if count <= 0 and may_start:
                # An empty reduction: without blocks, its initialization precedes the loop.
                self._action(dissolve(stmt))(env)
                return
            for value in self._iterations(stmt.kind, count):
                env[name] = value
                body(env)
            env.pop(name, None)

        return run

    def _iterations(self, kind: LoopKind, extent: int) -> Sequence[int]:
        values = range(extent)
        if kind in (LoopKind.SERIAL, LoopKind.UNROLLED) or self._order is Order.ASCENDING:
            return values
        return values[::-1] if self._order is Order.REVERSED else self._random.sample(values, extent)

    def _alloc(self, stmt: Alloc) -> _Action:
        buffer, body = stmt.buffer, self._action(stmt.body)
        shape = self._ints(buffer.shape)

        def run(env: _Env) -> None:
            extents = tuple([e(env) for e in shape])
            outer = self._storages.get(buffer.name)
            self._storages[buffer.name] = storage = Storage.new(buffer, extents, len(self._frames))
            body(env)
            storage.finish()
            del self._storages[buffer.name]
            if outer is not None:
                self._storages[buffer.name] = outer

        return run

    # Blocks

    def _block(self, block: Block) -> _Action:
        predicate = self._evaluator(block.predicate)
        names = [axis.var.unique for axis in block.axes]
        bindings = self._ints(block.bindings)
        extents = self._ints([axis.extent for axis in block.axes])
        reads, writes = self._declared(block.reads), self._declared(block.writes)
        axes = _AxesByKind.of(block)
        init = None if block.init is None else self._action(block.init)
        body = self._action(block.body)

        def run(env: _Env) -> None:
            if not predicate(env):
                return
            point = tuple([binding(env) for binding in bindings])
            sizes = tuple([extent(env) for extent in extents])
            is_first = self._enter(block, axes, point, sizes)
            inner = dict(self._scope)
            inner.update(zip(names, point, strict=True))
            self._frames.append(_Frame(block, point, reads(inner), writes(inner)))
            if init is not None and is_first:
                init(inner)
            body(inner)
            self._frames.pop()

        return run

    def _declared(self, regions: Sequence[Region]) -> Callable[[_Env], _Declared]:
        parts = [(region.buffer.name, self._box(region)) for region in regions]

        def evaluate(env: _Env) -> _Declared:
            found: _Declared = {}
            for name, box in parts:
                found.setdefault(name, []).append(tuple([range(start, start + size) for start, size in box(env)]))
            return found

        return evaluate

    def _box(self, region: Region) -> Callable[[_Env], Box]:
        ranges = [(self._int(start), self._int(extent)) for start, extent in region.ranges]
        return lambda env: tuple([(start(env), extent(env)) for start, extent in ranges])

    def _enter(self, block: Block, axes: "_AxesByKind", point: Point, sizes: tuple[int, ...]) -> bool:
        """Record the execution of ``block`` at ``point``; return whether it is the first point of its reduction."""
        for axis, value, size in zip(block.axes, point, sizes, strict=True):
            if not 0 <= value < size:
                raise BadProgram(f"block {block.name}: axis {axis.name} is {value}, but its extent is {size}")
        reduced = tuple([point[d] for d in axes.reduce])
        is_first = not any(reduced)
        progress = self._progress(block)
        if progress is None:
            return is_first
        progress.points = prod([sizes[d] for d in axes.reduce])
        outer = tuple([(frame.block.name, frame.point) for frame in self._frames])
        others = tuple([point[d] for d in axes.others])
        done = progress.reduced.setdefault((outer, others), set())
        if reduced in done:
            raise BadProgram(f"block {block.name}: point {_named(block, point)} is executed twice")
        if block.init is not None and not done and not is_first:
            raise BadProgram(f"block {block.name}: reduction starts at {_named(block, point)}, not at its zero point")
        done.add(reduced)
        if not axes.ordered:
            return is_first
        clock = tuple([point[d] for d in axes.ordered])
        spatial = (outer, tuple([point[d] for d in axes.spatial]), reduced)
        if clock < progress.clock.get(spatial, clock):
            raise BadProgram(
                f"block {block.name}: {_named(block, point)} comes after {progress.clock[spatial]}; "
                "ordered axes must ascend"
            )
        progress.clock[spatial] = clock
        return is_first

    def _progress(self, block: Block) -> Progress | None:
        """The block's record, stored with the innermost allocated buffer that it writes."""
        written = [self._storage(region.buffer) for region in block.writes]
        if not written:
            return None
        youngest = written[0]
        if len(written) > 1:
            ages = {id(storage): age for age, storage in enumerate(self._storages.values())}
            youngest = max(written, key=lambda storage: ages[id(storage)])
        return youngest.progress.setdefault(block.name, Progress())

    # Accesses

    def _evaluator(self, expr: Expr) -> Evaluator:
        return evaluator(expr, self._read)

    def _int(self, expr: Expr) -> IntEvaluator:
        return int_evaluator(expr, self._read)

    def _ints(self, exprs: Sequence[Expr]) -> list[IntEvaluator]:
        return [self._int(expr) for expr in exprs]

    def _storage(self, source: Source) -> Storage:
        found = self._storages.get(source.name)
        if found is None:
            raise BadProgram(f"{self._place()}buffer {source.name} does not exist here")
        return found

    def _place(self) -> str:
        return f"block {self._frames[-1].block.name}: " if self._frames else ""

    def _read(self, source: Source, at: Point) -> Value:
        storage = self._checked(source, at, "read", is_read=True)
        if not storage.written[at]:
            raise BadProgram(f"{self._place()}reads {source.name}{list(at)}, which was never written")
        return as_value(storage.array[at], source.dtype)

    def _write(self, buffer: Buffer, at: Point, value: Value) -> None:
        storage = self._checked(buffer, at, "written", is_read=False)
        storage.array[at] = value
        storage.written[at] = True

    def _checked(self, source: Source, at: Point, verb: str, *, is_read: bool) -> Storage:
        storage = self._storage(source)
        if not _lies_in(storage.whole, at):
            shape = list(storage.array.shape)
            raise OutOfBounds(f"{self._place()}{source.name}{list(at)} is {verb}, outside of its shape {shape}")
        for frame in self._frames[storage.depth :]:
            declared = frame.reads if is_read else frame.writes
            if not any([_lies_in(region, at) for region in declared.get(source.name, ())]):
                raise BadProgram(f"{self._place()}{source.name}{list(at)} is {verb}, outside of the declared regions")
        return storage

    # Calls

    def _call(self, call: Call) -> _Action:
        known = self._programs if call.kind is Callee.KERNEL else self._intrinsics
        callee = known.get(call.callee)
        if callee is None:
            where = "programs=" if call.kind is Callee.KERNEL else "the program's intrinsics"
            raise BadProgram(f"{call.kind.value} {call.callee} is called, but is not in {where}")
        if (len(callee.params), callee.outputs) != (len(call.args), call.outputs):
            raise BadProgram(
                f"{call.callee} takes {len(callee.params)} arguments, {callee.outputs} of them outputs, but is called "
                f"with {len(call.args)} and {call.outputs}"
            )
        boxes = [self._box(region) for region in call.args]

        def run(env: _Env) -> None:
            views: dict[str, Storage] = {}
            for param, region, box in zip(callee.params, call.args, boxes, strict=True):
                views[param.name] = self._argument(callee, param, region.buffer, box(env))
            extents = run_time_extents(callee, {name: view.array.shape for name, view in views.items()}, self._extents)
            if self._kernels is None or call.kind is not Callee.KERNEL:
                _Machine(callee, self._programs, self._order, self._kernels).run(views, extents)
                return
            self._kernels(call, callee, {name: view.array for name, view in views.items()}, extents)
            for result in callee.results:
                views[result.name].written[...] = True

        return run

    def _argument(self, callee: Program, param: Buffer, buffer: Buffer, box: Box) -> Storage:
        for corner in _corners(box):
            self._checked(buffer, corner, "passed to " + callee.name, is_read=param not in callee.results)
        if param.dtype != buffer.dtype or len(box) < len(param.shape):
            raise BadProgram(f"{callee.name}: {param!r} can't be a region of {buffer!r}")
        storage = self._storage(buffer)
        shape = tuple(int(extent.value) for extent in param.shape if isinstance(extent, Const))
        in_one_piece = box[1:] == tuple((0, extent) for extent in storage.array.shape[1:])
        if in_one_piece and len(shape) == len(param.shape) and prod(shape) == prod(size for _, size in box):
            return storage.view(box, len(box)).reshaped(shape)
        return storage.view(box, len(param.shape))


def _lies_in(region: tuple[range, ...], at: Point) -> bool:
    return len(region) == len(at) and all(map(contains, region, at))


def _corners(box: Box) -> Iterator[Point]:
    """The first and the last point, if there are any."""
    if all(size > 0 for _, size in box):
        yield tuple(start for start, _ in box)
        yield tuple(start + size - 1 for start, size in box)


def _named(block: Block, point: Point) -> str:
    return ", ".join(f"{axis.name} = {value}" for axis, value in zip(block.axes, point, strict=True)) or "()"
