"""Statements of a prepared loop program as LLVM IR: loops, branches, allocations, parallel regions, calls.

A *prepared* program (``prepare``) has no blocks. Parallel loops are outlined to functions, which the worker pool calls
once per chunk (``regions``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

from tilewright.backend.cpu.abilities import ANY, Abilities
from tilewright.backend.cpu.accesses import Environment
from tilewright.backend.cpu.checks import BoundsChecks, Guard, IndexChecks, Site
from tilewright.backend.cpu.places import Place
from tilewright.backend.cpu.regions import Captures, Region, RegionText
from tilewright.backend.cpu.scalars import ScalarEmitter
from tilewright.backend.cpu.stop_text import poll
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.transposition import Crossing, crossing, transpose
from tilewright.backend.cpu.values import Value, integer, memory_type
from tilewright.backend.cpu.work import look_period
from tilewright.base import dtypes
from tilewright.base.errors import BadProgram, InternalError, ResourceLimit, Unsupported, UnsupportedTarget
from tilewright.base.identity import ByIdentity
from tilewright.loops.ir import Alloc, Barrier, Block, Buffer, Call, If, Loop, LoopKind, Seq, Stmt, Store, Stores
from tilewright.loops.memory import Sharing
from tilewright.loops.visit import own_exprs, walk
from tilewright.runtime.abi import ALIGNMENT
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.check import Check
from tilewright.symbolic.expr import ONE, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import conjuncts, free_vars
from tilewright.symbolic.traversal import walk as walk_expr
from tilewright.target.machine import MOST_CHUNKS

MAX_ITERATIONS = 1 << 56
"""Maximum iterations of a parallel region."""
_REMEMBERED = 32
"""Cached regions: several for each of a few kernels."""
STACK_LIMIT = 64 * 1024
"""Bytes: larger private buffers are allocated in the worker's scratch."""


@dataclass(slots=True)
class Arena:
    """A stack allocator of memory; ``top`` is the size in use."""

    top: int = 0
    peak: int = 0

    def take(self, size: int) -> int:
        """The offset of ``size`` bytes above all in use."""
        offset = -(-self.top // ALIGNMENT) * ALIGNMENT
        self.top = offset + size
        self.peak = max(self.peak, self.top)
        return offset


@dataclass(slots=True)
class Module:
    """State shared by the functions of one image during emission."""

    declarations: dict[str, None] = field(default_factory=dict[str, None])
    functions: list[str] = field(default_factory=list[str])
    regions: dict[str, RegionText] = field(default_factory=dict[str, RegionText])
    """The regions among ``functions``, by name."""
    sites: list[Site] = field(default_factory=list[Site])
    checked: bool = False
    """Whether every access is checked."""
    reports: bool = True
    """Whether out-of-range indices are reported."""
    abilities: Abilities = ANY
    """Those of the processor."""

    def add(self, name: str, region: RegionText) -> None:
        """Add the function of a region."""
        self.regions[name] = region
        self.functions.append(region.text)
        self.declarations.update(dict.fromkeys(region.declarations))

    def split(self) -> list[RegionText]:
        """Remove and return all regions that can be separate modules, except the last one."""
        taken = [name for name, region in self.regions.items() if region.is_alone][:-1]
        regions = [self.regions.pop(name) for name in taken]
        for name, region in zip(taken, regions, strict=True):
            self.functions.remove(region.text)
            self.declarations[f"declare hidden void @{name}(ptr, i64, i64)"] = None
        return regions


CallEmitter = Callable[["StatementEmitter", Call], None]


@dataclass(slots=True)
class FunctionState:
    """One function under construction, and its memory use."""

    name: str
    module: Module
    text: FunctionText
    environment: Environment
    workspace: Arena
    scratch: Arena
    bounds: Mapping[Var, int | None]
    offsets: Mapping[str, Expr]
    call: CallEmitter
    in_region: bool = False


class StatementEmitter:
    """Emits statements into one function."""

    def __init__(self, state: FunctionState) -> None:
        self.state = state
        self.text = state.text
        self.env = state.environment
        module = state.module
        indices = IndexChecks(module.sites if module.reports else None)
        accesses = BoundsChecks(module.sites) if module.checked else None
        self.scalars = ScalarEmitter(state.text, state.environment, indices, accesses, module.abilities)
        self._crossings = ByIdentity[Crossing | None]()

    def emit(self, stmt: Stmt) -> None:
        """Emit ``stmt`` here."""
        match stmt:
            case Seq(statements):
                for inner in statements:
                    self.emit(inner)
            case Store(buffer, indices, value):
                self.scalars.store(buffer, indices, self.scalars.value(value))
            case Stores(stores):
                values = [self.scalars.value(store.value) for store in stores]
                for store, value in zip(stores, values, strict=True):
                    self.scalars.store(store.buffer, store.indices, value)
            case Loop():
                self._loop(stmt)
            case If(condition, then, otherwise):
                self._if(condition, then, otherwise)
            case Alloc():
                self._allocs(stmt)
            case Call():
                self.state.call(self, stmt)
            case Barrier():
                raise _elsewhere("there is a barrier", "the end of a parallel loop is one")
            case Block(name):
                raise BadProgram(f"block `{name}` in a prepared program")

    # --- loops ------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        if isinstance(loop.extent, Const):
            if int(loop.extent.value) <= 0:
                return
            if int(loop.extent.value) == 1:
                self._with(loop.var, integer(0), loop.body)
                return
        match loop.kind:
            case LoopKind.UNROLLED if self._may_cross() and (box := self._crossed(loop)) is not None:
                self._crossing(box)
            case LoopKind.UNROLLED if isinstance(loop.extent, Const):
                for i in range(int(loop.extent.value)):
                    self._with(loop.var, integer(i), loop.body)
            case LoopKind.VECTORIZED if isinstance(loop.extent, Const) and self.env.lane_variable is None:
                self._lanes(loop.var, int(loop.extent.value), loop.body)
            case LoopKind.PARALLEL if not (self.state.in_region or _runs_once(loop)):
                self._region(loop)
            case _:
                self._serial(loop)

    def _with(self, var: Var, value: Value, body: Stmt) -> None:
        self.env.scalars[var] = value
        self.emit(body)
        del self.env.scalars[var]

    def _lanes(self, var: Var, lanes: int, body: Stmt) -> None:
        self.env.lane_variable, self.env.lanes = var, lanes
        self.emit(body)
        self.env.lane_variable, self.env.lanes = None, 1

    def _may_cross(self) -> bool:
        """Store boxes across the lanes, if every element is stored."""
        guard = self.env.guard
        unguarded = guard.uniform is None and guard.lanes is None
        return unguarded and self.env.lane_variable is None and not self.state.module.checked

    def _crossed(self, loop: Loop) -> Crossing | None:
        """See ``crossing``; cached, as unrolled loops ask repeatedly."""
        return self._crossings.of(lambda: crossing(loop), loop)

    def _crossing(self, box: Crossing) -> None:
        """As many rows at a time as lanes."""
        buffer, indices = box.store.buffer, box.store.indices
        for first in range(0, box.rows, box.lanes):
            rows = range(first, min(first + box.lanes, box.rows))
            columns = transpose(self.text, [self._row(box, row) for row in rows])
            self.env.scalars[box.row] = integer(first)
            for lane, column in enumerate(columns):
                self.env.scalars[box.lane] = integer(lane)
                self.scalars.store_first(buffer, indices, column, len(rows))
                del self.env.scalars[box.lane]
            del self.env.scalars[box.row]

    def _row(self, box: Crossing, row: int) -> Value:
        """The stored values of one iteration, in lanes."""
        self.env.lane_variable, self.env.lanes = box.lane, box.lanes
        self.env.scalars[box.row] = integer(row)
        value = self.scalars.accesses.to_memory(self.scalars.value(box.store.value), box.lanes)
        del self.env.scalars[box.row]
        self.env.lane_variable, self.env.lanes = None, 1
        return value

    def _serial(self, loop: Loop) -> None:
        extent = self.scalars.value(loop.extent)
        if extent.literal is not None and extent.literal <= 0:
            return
        counter = self.text.open_loop()
        self.look(loop, counter)
        self._with(loop.var, counter, loop.body)
        self.text.close_loop(counter, extent, guard=extent.literal is None)

    def look(self, loop: Loop, counter: Value) -> None:
        """At the start of some iterations: whether the call is to end (``runtime.abi``)."""
        period = look_period(loop)
        worker = "%worker" if self.state.in_region else "0"
        if period == 1:
            poll(self.text, worker)
        elif period is not None:
            low = self.text.emit(f"and i64 {counter.text}, {period - 1}")
            turn = Value(self.text.emit(f"icmp eq i64 {low}, 0"), dtypes.boolean, 1, self.text.depth)
            label = self.text.open_branch()
            poll(self.text, worker)
            self.text.branch(turn, [(label, self.text.close_branch()[1])])

    # --- branches ---------------------------------------------------------------------------------------------

    def _if(self, condition: Expr, then: Stmt, otherwise: Stmt | None) -> None:
        uniform: Value | None = None
        lanes: Value | None = None
        for part in conjuncts(condition):
            value = self._under(Guard(uniform, lanes), part)
            if value.lanes == 1:
                uniform = value if uniform is None else self.scalars.ops.binary(BinaryOp.AND, uniform, value)
            else:
                lanes = value if lanes is None else self.scalars.ops.binary(BinaryOp.AND, lanes, value)
        if lanes is None:
            self._branch(uniform, then, otherwise)
            return
        both = lanes if uniform is None else self.scalars.ops.binary(BinaryOp.AND, lanes, uniform)
        self._masked(both, then)
        if otherwise is not None:
            self._masked(self.scalars.ops.unary(UnaryOp.NOT, both), otherwise)

    def _under(self, guard: Guard, condition: Expr) -> Value:
        saved = self.env.guard
        for part in (guard.uniform, guard.lanes):
            if part is not None:
                self.env.guard = self.scalars.narrowed(part)
        value = self.scalars.value(condition)
        self.env.guard = saved
        return value

    def _branch(self, condition: Value | None, then: Stmt, otherwise: Stmt | None) -> None:
        if condition is None or condition.literal == 1:
            self.emit(then)
            return
        if condition.literal == 0:
            if otherwise is not None:
                self.emit(otherwise)
            return
        sides: list[tuple[str, list[str]]] = []
        for side in (then, otherwise):
            if side is not None:
                entry = self.text.open_branch()
                self.emit(side)
                sides.append((entry, self.text.close_branch()[1]))
        self.text.branch(condition, sides)

    def _masked(self, mask: Value, body: Stmt) -> None:
        saved = self.env.guard
        self.env.guard = self.scalars.narrowed(mask)
        self.emit(body)
        self.env.guard = saved

    # --- memory -----------------------------------------------------------------------------------------------

    def _allocs(self, stmt: Stmt) -> None:
        """Perfectly nested allocations together: a main program has one for each of its calls."""
        arena = self.state.scratch if self.state.in_region else self.state.workspace
        top = arena.top
        placed: list[str] = []
        while isinstance(stmt, Alloc):
            self._place(stmt.buffer, arena)
            placed.append(stmt.buffer.name)
            stmt = stmt.body
        self.emit(stmt)
        for name in placed:
            del self.env.places[name]
        arena.top = top

    def _place(self, buffer: Buffer, arena: Arena) -> None:
        private, is_private = 0, buffer.memory.sharing is Sharing.THREAD
        if buffer.memory.sharing is Sharing.BLOCK:
            raise _elsewhere(f"{buffer.name} is in {buffer.memory.name}", "local and global serve")
        if buffer.name in self.state.offsets:
            pointer = self._slice("%workspace", self.scalars.value(self.state.offsets[buffer.name]).text)
        elif (size := self._size(buffer)) <= STACK_LIMIT and (self.state.in_region or is_private):
            private = max(1, size // buffer.dtype.itemsize)
            text = f"[{private} x {memory_type(buffer.dtype)}], align {ALIGNMENT}"
            pointer = Value(self.text.alloca(text), dtypes.index)
        else:
            base = "%scratch" if self.state.in_region else "%workspace"
            pointer = self._slice(base, str(arena.take(size)))
        self.env.places[buffer.name] = Place(pointer, False, ALIGNMENT, private)
        self.text.forget(buffer.name)

    def _slice(self, base: str, offset: str) -> Value:
        return Value(self.text.pure(f"getelementptr inbounds i8, ptr {base}, i64 {offset}", 0), dtypes.index)

    def _size(self, buffer: Buffer) -> int:
        count = 1
        for extent in buffer.shape:
            count *= self._upper_bound(extent, buffer)
        return count * buffer.dtype.itemsize

    def _upper_bound(self, extent: Expr, buffer: Buffer) -> int:
        if isinstance(extent, Const):
            return int(extent.value)
        if isinstance(extent, Var):
            bound = self.state.bounds.get(extent)
            if bound is not None:
                return bound
        bound = interval(extent, Bounds({}, dict(self.state.bounds))).hi
        if bound is None:
            raise Unsupported(f"`{buffer.name}` has extent {extent}, which has no upper bound: give one for its dims")
        return bound

    # --- parallel regions -------------------------------------------------------------------------------------

    def _region(self, loop: Loop) -> None:
        state, module = self.state, self.state.module
        extents = [self.scalars.value(inner.extent) for inner in _collapse(loop)[0]]
        _check_count([extent.literal or 1 for extent in extents], loop)
        total = extents[0]
        for extent in extents[1:]:
            total = self.scalars.ops.binary(BinaryOp.MUL, total, extent)
        chunks = self.scalars.ops.binary(BinaryOp.MIN, total, integer(MOST_CHUNKS))
        numbers = (total, chunks, *extents)
        captures = Captures.of(self.env, numbers)
        name = f"{state.name}.region{len(module.functions)}"
        known = tuple(state.bounds.items()), tuple(state.offsets.items())
        region = Region(name, loop, captures, *known, module.abilities)
        argument = captures.pack(self.text, self.env, numbers)
        is_alone = not (module.checked or _has_calls(region.loop) or has_checks(region.loop))
        module.add(name, region_text(region) if is_alone else _outlined(region, module, state.call))
        state.scratch.peak = max(state.scratch.peak, module.regions[name].scratch_bytes)
        self.text.effect(f"call void @tw_parallel_for(ptr %context, ptr @{name}, ptr {argument}, i64 {chunks.text})")
        self.text.forget(None)


def _elsewhere(what: str, instead: str) -> UnsupportedTarget:
    """Constructs of devices with blocks and threads."""
    return UnsupportedTarget(f"{what}, and a CPU has no blocks and threads of a grid; {instead}")


def _check_count(extents: Sequence[int], loop: Loop) -> None:
    """Raises ``ResourceLimit`` if the number of the region's iterations times that of chunks overflows."""
    if prod(extents) > MAX_ITERATIONS:
        raise ResourceLimit(
            f"parallel loop `{loop.var}`, with those inside, runs {prod(extents)} times; the most is {MAX_ITERATIONS}"
        )


def has_checks(stmt: Stmt) -> bool:
    """Whether an index is checked in ``stmt``."""
    exprs = (expr for each in walk(stmt) for expr in own_exprs(each) if expr.has_reads)
    return any(isinstance(node, Check) for expr in exprs for node in walk_expr(expr))


def _has_calls(loop: Loop) -> bool:
    return any(isinstance(stmt, Call) for stmt in walk(loop))


@lru_cache(_REMEMBERED)
def region_text(region: Region) -> RegionText:
    """Cached: candidates for a kernel's schedule usually differ in only one region."""

    def refuse(_: StatementEmitter, call: Call) -> None:
        raise InternalError(f"`{call.callee}` is called by a region that was held to have no calls")

    return replace(_outlined(region, Module(abilities=region.abilities), refuse), is_alone=True)


def _outlined(region: Region, module: Module, call: CallEmitter) -> RegionText:
    """The region's function: the iterations from chunk*total/chunks up to (chunk+1)*total/chunks."""
    nest, body = _collapse(region.loop)
    declarations: dict[str, None] = {}
    text = FunctionText(declarations)
    text.effect("%context = load ptr, ptr %argument")
    environment, (total, chunks, *extents) = region.captures.unpack(text)
    memory, bounds, offsets = (Arena(), Arena()), dict(region.bounds), dict(region.offsets)
    state = FunctionState(region.name, module, text, environment, *memory, bounds, offsets, call, True)
    inner = StatementEmitter(state)
    ops = inner.scalars.ops
    text.effect("%scratch = call ptr @tw_scratch(ptr %context, i64 %worker)")
    chunk = Value("%chunk", dtypes.index)
    following = ops.binary(BinaryOp.ADD, chunk, integer(1))
    first, last = (_divided(inner, ops.binary(BinaryOp.MUL, at, total), chunks) for at in (chunk, following))
    counter = text.open_loop(first.text)
    remaining = counter
    for loop, extent in list(zip(nest, extents, strict=True))[:0:-1]:
        quotient = _divided(inner, remaining, extent)
        product = ops.binary(BinaryOp.MUL, quotient, extent)
        environment.scalars[loop.var] = ops.binary(BinaryOp.SUB, remaining, product)
        remaining = quotient
    environment.scalars[nest[0].var] = remaining
    inner.look(replace(region.loop, body=body), counter)
    inner.emit(body)
    text.close_loop(counter, last, guard=False)
    signature = f"define internal void @{region.name}(ptr noalias %argument, i64 %chunk, i64 %worker) nounwind"
    return RegionText(text.finish(signature), tuple(declarations), state.scratch.peak)


def _runs_once(loop: Loop) -> bool:
    """Whether the region would have one iteration: outside of regions, its arrays can be in registers."""
    return all(nested.extent == ONE for nested in _collapse(loop)[0])


def _collapse(loop: Loop) -> tuple[list[Loop], Stmt]:
    """The perfectly nested parallel loops, and the body of the innermost."""
    nest: list[Loop] = [loop]
    body = loop.body
    outer = {loop.var}
    while isinstance(body, Loop) and body.kind is LoopKind.PARALLEL and not (free_vars(body.extent) & outer):
        nest.append(body)
        outer.add(body.var)
        body = body.body
    return nest, body


def _divided(emitter: StatementEmitter, a: Value, b: Value) -> Value:
    """``a // b`` of non-negative numbers, ``b`` at least 1."""
    depth = max(a.depth, b.depth)
    return Value(emitter.text.pure(f"udiv i64 {a.text}, {b.text}", depth), dtypes.index, 1, depth)
