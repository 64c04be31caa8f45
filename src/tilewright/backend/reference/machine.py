"""Runs a program like a device, with the threads of a block in lockstep, and records findings.

A loop over threads makes lanes of its iterations, and each statement in it runs for all of them at once. Blocks run one
after the other. That is one of the possible orders of threads: ``cells`` detects whether another order could give other
results.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.backend.reference.cells import Cells, Meeting, Now
from tilewright.backend.reference.lanes import (
    OWN,
    Evaluator,
    Indices,
    Lanes,
    Mask,
    Numbers,
    as_index,
    as_mask,
    evaluator,
)
from tilewright.backend.reference.report import (
    Access,
    Coordinates,
    Fault,
    Overflow,
    Race,
    Report,
    Thread,
    Traffic,
    Trouble,
)
from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram
from tilewright.loops.dissolve import dissolve
from tilewright.loops.interpreter import fed_shapes
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
    Seq,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.launch import BLOCKS, THREADS
from tilewright.loops.memory import Memory, Sharing
from tilewright.loops.printer import format_stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import rename_allocs, replace_buffers, substitute, walk
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import TRUE, Expr, Extent, Source, Var

_Action: TypeAlias = Callable[[Lanes], None]
_MOST = 64
"""Maximum number of findings of a kind."""


def run_reference(
    program: Program, arrays: Mapping[str, Array], dims: Mapping[str, int] | None = None
) -> tuple[dict[str, Array], Report]:
    """The outputs of ``program`` by name, when its inputs have the values in ``arrays``, and a report.

    ``dims`` gives run-time extents that are in no shape. Errors are in the report (``Report.check`` raises them): reads
    out of bounds give 0, and such writes do nothing. Raises ``BadFeed`` for feeds that do not fit, ``BadProgram`` for
    calls of other kernels.
    """
    extents, shapes = fed_shapes(program, arrays, dims or {})
    machine = _Machine(program, extents)
    for param in program.params:
        machine.cells[param.name] = cells = Cells(param, shapes[param.name])
        fed = arrays.get(param.name)
        if fed is not None:
            cells.values[:], cells.written[:] = fed.reshape(-1), True
    machine.run()
    found = {result.name: machine.cells[result.name] for result in program.results}
    return {name: cells.values.reshape(cells.shape) for name, cells in found.items()}, machine.report()


class _Machine:
    """One run. Statements become closures once, which take the lanes that run them."""

    def __init__(self, program: Program, extents: Mapping[str, int]) -> None:
        self.operations = 0
        self.cells: dict[str, Cells] = {}
        self._program = program
        self._extents = {dim.var.unique: extents[dim.var.name] for dim in program.dims}
        self._intrinsics = {intrinsic.name: intrinsic for intrinsic in program.intrinsics}
        self._regions: dict[str, tuple[Buffer, int]] = {}
        """The regions of the parameters of called intrinsics, and the number of leading dimensions that these lack."""
        self._texts: list[str] = []
        self._block_name = ""
        self._traffic: dict[str, list[int]] = {}
        self._memories: dict[str, Memory] = {}
        self._races: dict[tuple[object, ...], Race] = {}
        self._troubles: dict[tuple[object, ...], Trouble] = {}
        self._overflows: dict[Memory, Overflow] = {}
        self._barriers = 0
        self._epoch = 1
        self._now: Now | None = None
        self._sizes: tuple[Coordinates, Coordinates] = ((1, 1, 1), (1, 1, 1))
        self._block: dict[LoopKind, int] = {}
        self._kept: dict[str, Cells] = {}
        """The allocations of the present block: repeated ones get the same memory."""
        self._held: dict[Memory, int] = {}
        """Bytes allocated now per holder of a memory."""

    def run(self) -> None:
        """Execute the program on ``cells``."""
        lanes = Lanes(1, np.zeros(1, np.int64), dict(self._extents))
        with np.errstate(all="ignore"):
            self._action(self._program.body)(lanes)
        end = self._statement("the end of the program")
        for result in self._program.results:
            missing = np.flatnonzero(~self.cells[result.name].written)
            if missing.size:
                self._trouble(Fault.NEVER_WRITTEN, end, False, self.cells[result.name], missing[:1], 0, lanes)

    def report(self) -> Report:
        """The report of the run."""
        traffic = (Traffic(n, self._memories[n], loaded, stored) for n, (loaded, stored) in self._traffic.items())
        findings = (tuple(self._races.values()), tuple(self._troubles.values()), tuple(self._overflows.values()))
        return Report(tuple(traffic), self.operations, self._barriers, *findings)

    # Statements ------------------------------------------------------------------------------------------------------

    def _statement(self, text: str) -> int:
        self._texts.append(f"{self._block_name}: {text}" if self._block_name else text)
        return len(self._texts) - 1

    def _evaluator(self, expr: Expr, what: str) -> Evaluator:
        return evaluator(expr, self, self._statement(f"{what} {expr}"))

    def _action(self, stmt: Stmt) -> _Action:
        match stmt:
            case Store():
                return self._stores((stmt,), self._statement(format_stmt(stmt)))
            case Stores(stores):
                return self._stores(stores, self._statement(format_stmt(stmt)))
            case Seq(statements):
                return _each([self._action(inner) for inner in statements])
            case If():
                return self._if(stmt)
            case Loop():
                return self._loop(stmt)
            case Alloc():
                return self._alloc(stmt)
            case Block():
                return self._computed(stmt)
            case Call():
                return self._call(stmt)
            case Barrier():
                return self._barrier

    def _stores(self, stores: Sequence[Store], number: int) -> _Action:
        def compiled(expr: Expr) -> Evaluator:
            return evaluator(expr, self, number)

        parts = [(store.buffer, [*map(compiled, store.indices)], compiled(store.value)) for store in stores]

        def run(lanes: Lanes) -> None:
            ready = [(b, tuple(as_index(i(lanes)) for i in at), value(lanes)) for b, at, value in parts]
            for buffer, at, value in ready:
                self._store(buffer, at, np.asarray(value), lanes, number)

        return run

    def _if(self, stmt: If) -> _Action:
        condition, then = self._evaluator(stmt.condition, "if"), self._action(stmt.then)
        otherwise = None if stmt.otherwise is None else self._action(stmt.otherwise)

        def run(lanes: Lanes) -> None:
            holds = as_mask(condition(lanes), lanes)
            if holds.any():
                then(lanes if holds.all() else lanes.only(holds))
            if otherwise is not None and not holds.all():
                otherwise(lanes.only(~holds) if holds.any() else lanes)

        return run

    def _barrier(self, lanes: Lanes) -> None:
        self._barriers += 1
        self._next_epoch()

    # Loops -----------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> _Action:
        extent, body = self._evaluator(loop.extent, "range"), self._action(loop.body)
        may_start = any(isinstance(node, Block) and node.init is not None for node in walk(loop))

        def run(lanes: Lanes) -> None:
            count = as_index(extent(lanes))
            if isinstance(count, int) and count <= 0 and may_start:
                # An empty reduction: without blocks, its initialization precedes the loop.
                self._action(dissolve(loop))(lanes)
            elif loop.kind.is_block or loop.kind.is_thread:
                self._launched(loop, int(np.max(count)), body, lanes)
            else:
                _serially(loop.var, count, body, lanes)

        return run

    def _launched(self, loop: Loop, count: int, body: _Action, lanes: Lanes) -> None:
        starts = self._now is None
        if starts:
            self._launch(loop, lanes)
        if loop.kind.is_block:
            for value in range(count):
                self._block[loop.kind] = value
                self._enter_block()
                body(Lanes(lanes.size, self._numbered(lanes), {**lanes.values, loop.var.unique: value}))
            self._block.pop(loop.kind, None)
        elif count > 0:
            axis = THREADS.index(loop.kind)
            body(lanes.split(loop.var.unique, count, prod(self._sizes[1][:axis])))
        if starts:
            self._now = None

    def _launch(self, nest: Loop, lanes: Lanes) -> None:
        """The numbers of blocks and threads: extents depend on run-time extents only."""
        sizes = dict.fromkeys((*BLOCKS, *THREADS), 1)
        for node in walk(nest):
            if isinstance(node, Loop) and node.kind in sizes:
                count = as_index(evaluator(node.extent, self, 0)(lanes))
                sizes[node.kind] = max(sizes[node.kind], int(np.max(count)))
        x, y, z, tx, ty, tz = sizes.values()
        self._sizes = ((x, y, z), (tx, ty, tz))
        self._epoch += 1
        self._now = Now(self._epoch, self._epoch, tx * ty * tz)
        self._enter_block()

    def _enter_block(self) -> None:
        self._next_epoch()
        self._kept.clear()
        for memory in [memory for memory in self._held if memory.sharing is Sharing.BLOCK]:
            del self._held[memory]

    def _next_epoch(self) -> None:
        if self._now is not None:
            self._epoch += 1
            self._now = Now(self._epoch, self._now.launch, self._now.threads)

    def _numbered(self, lanes: Lanes) -> Numbers:
        """The threads at the start of the present block."""
        x, y, z = (self._block.get(kind, 0) for kind in BLOCKS)
        (nx, ny, _), threads = self._sizes
        return np.full(lanes.size, (x + nx * (y + ny * z)) * prod(threads), np.int64)

    def _thread(self, number: int) -> Thread | None:
        if self._now is None:
            return None
        (nx, ny, _), (tx, ty, _) = self._sizes
        block, thread = divmod(number, self._now.threads)
        return Thread(
            (block % nx, block // nx % ny, block // nx // ny), (thread % tx, thread // tx % ty, thread // tx // ty)
        )

    # Blocks of the schedule ------------------------------------------------------------------------------------------

    def _computed(self, block: Block) -> _Action:
        outer, self._block_name = self._block_name, block.name
        predicate = None if block.predicate == TRUE else self._evaluator(block.predicate, "where")
        names = [axis.var.unique for axis in block.axes]
        bindings = [self._evaluator(binding, "at") for binding in block.bindings]
        reduced = [axis.var.unique for axis in block.axes if axis.kind is IterKind.REDUCE]
        init = None if block.init is None else self._action(block.init)
        body = self._action(block.body)
        self._block_name = outer

        def run(lanes: Lanes) -> None:
            if predicate is not None:
                holds = as_mask(predicate(lanes), lanes)
                if not holds.any():
                    return
                lanes = lanes if holds.all() else lanes.only(holds)
            values = self._extents | {name: v for name, v in lanes.values.items() if name.startswith(OWN)}
            values |= {name: as_index(binding(lanes)) for name, binding in zip(names, bindings, strict=True)}
            inside = Lanes(lanes.size, lanes.thread, values)
            if init is not None:
                first = as_mask(np.logical_not(sum(np.abs(values[name]) for name in reduced)), inside)
                if first.any():
                    init(inside if first.all() else inside.only(first))
            body(inside)

        return run

    def _call(self, call: Call) -> _Action:
        known = self._intrinsics.get(call.callee)
        if call.kind is Callee.KERNEL or known is None:
            raise BadProgram(f"{call.kind.value} {call.callee} is called; the reference back end runs one kernel alone")
        found, number = known.description, len(self._texts)
        views = {param: Buffer(f"{OWN}{number}.{param.name}", param.dtype, param.shape) for param in found.params}
        starts: dict[str, Evaluator] = {}
        for param, region in zip(found.params, call.args, strict=True):
            name = views[param].name
            self._regions[name] = region.buffer, len(region.ranges) - len(param.shape)
            for dimension, (start, _) in enumerate(region.ranges):
                starts[f"{name}.{dimension}"] = self._evaluator(start, call.callee)
        extents = {v: Extent(f"{OWN}{number}.{v.name}") for v in known.extents(call.args)}
        for extent, size in known.extents(call.args).items():
            starts[extents[extent].unique] = self._evaluator(size, call.callee)
        own = rename_allocs(found.body, lambda name: f"{name}.{number}")
        body = self._action(substitute(replace_buffers(own, views), extents))

        def run(lanes: Lanes) -> None:
            moved = {name: as_index(start(lanes)) for name, start in starts.items()}
            body(Lanes(lanes.size, lanes.thread, {**lanes.values, **moved}))

        return run

    # Allocations -----------------------------------------------------------------------------------------------------

    def _alloc(self, stmt: Alloc) -> _Action:
        buffer, body, own = stmt.buffer, self._action(stmt.body), f"{OWN}{stmt.buffer.name}"
        shape = [self._evaluator(extent, "alloc") for extent in buffer.shape]

        def run(lanes: Lanes) -> None:
            sizes = tuple(max(int(np.max(as_index(extent(lanes)))), 0) for extent in shape)
            outer = self.cells.get(buffer.name)
            cells = self._new_cells(buffer, sizes, lanes)
            self.cells[buffer.name] = cells
            if cells.copies:
                lanes = Lanes(lanes.size, lanes.thread, {**lanes.values, own: np.arange(lanes.size, dtype=np.int64)})
            body(lanes)
            self._release(cells)
            del self.cells[buffer.name]
            if outer is not None:
                self.cells[buffer.name] = outer

        return run

    def _new_cells(self, buffer: Buffer, shape: tuple[int, ...], lanes: Lanes) -> Cells:
        """The same cells if a block allocates a buffer again; else new ones, one per lane for a thread's memory."""
        kept = self._kept.get(buffer.name)
        if kept is not None and kept.shape == shape:
            kept.forget()
            return kept
        is_own = buffer.memory.sharing is Sharing.THREAD and lanes.size > 1
        cells = Cells(buffer, shape, lanes.size if is_own else 0)
        if self._now is not None and not is_own:
            self._kept[buffer.name] = cells
        if is_own or buffer.memory.sharing is not Sharing.THREAD:
            self._hold(buffer.memory, cells.bytes)
        return cells

    def _release(self, cells: Cells) -> None:
        """The memory of a block stays allocated while the block runs; that of threads is counted now."""
        memory, size = cells.buffer.memory, cells.bytes
        if memory.sharing is Sharing.THREAD and not cells.copies:
            size = cells.bytes_by_owner
            self._hold(memory, size)
        if memory.sharing is not Sharing.BLOCK:
            self._held[memory] -= size

    def _hold(self, memory: Memory, size: int) -> None:
        held = self._held[memory] = self._held.get(memory, 0) + size
        if memory.capacity is not None and held > memory.capacity:
            self._overflows.setdefault(memory, Overflow(memory, held))

    # Accesses --------------------------------------------------------------------------------------------------------

    def load(self, source: Source, at: Indices, lanes: Lanes, statement: int) -> Array:
        """The element at ``at`` for each lane; 0 out of bounds."""
        cells, elements, inside, lanes = self._found(source.name, at, lanes, statement, False)
        if not inside.all():
            result = np.zeros(inside.size, cells.values.dtype)
            result[inside] = self._loaded(cells, elements, lanes, statement)
            return result
        return self._loaded(cells, elements, lanes, statement)

    def _loaded(self, cells: Cells, elements: Numbers, lanes: Lanes, statement: int) -> Array:
        unwritten = ~cells.written[elements]
        if unwritten.any():
            self._trouble(Fault.NEVER_WRITTEN, statement, False, cells, elements, int(unwritten.argmax()), lanes)
        if self._now is not None:
            for meeting in cells.read(elements, lanes.thread, self._now, statement):
                self._race(meeting, cells, elements, lanes, statement, False)
        self._count(cells, 0, lanes.size)
        return cells.values[elements]

    def _store(self, buffer: Buffer, at: Indices, value: Array, lanes: Lanes, statement: int) -> None:
        cells, elements, inside, lanes = self._found(buffer.name, at, lanes, statement, True)
        if self._now is not None:
            for meeting in cells.write(elements, lanes.thread, self._now, statement):
                self._race(meeting, cells, elements, lanes, statement, True)
        cells.values[elements] = value[inside] if value.ndim else value
        cells.written[elements] = True
        self._count(cells, 1, lanes.size)

    def _count(self, cells: Cells, which: int, times: int) -> None:
        name = cells.buffer.name
        self._memories.setdefault(name, cells.buffer.memory)
        self._traffic.setdefault(name, [0, 0])[which] += times * cells.buffer.dtype.itemsize

    def _found(
        self, name: str, at: Indices, lanes: Lanes, statement: int, is_write: bool
    ) -> tuple[Cells, Numbers, Mask, Lanes]:
        """The buffer, the elements in it, which of the lanes are in bounds, and these lanes."""
        if name in self._regions:
            buffer, lacking = self._regions[name]
            starts = [lanes.values[f"{name}.{dimension}"] for dimension in range(lacking + len(at))]
            at = (*starts[:lacking], *(start + index for start, index in zip(starts[lacking:], at, strict=True)))
            name = buffer.name
        cells = self.cells.get(name)
        if cells is None:
            raise BadProgram(f"`{self._texts[statement]}`: buffer {name} does not exist there")
        inside = np.ones(lanes.size, np.bool_)
        flat = np.zeros(lanes.size, np.int64)
        for index, extent in zip(at, cells.shape, strict=True):
            inside &= np.less_equal(0, index) & np.less(index, extent)
            flat = flat * extent + index
        if not inside.all():
            lane = int((~inside).argmax())
            index = tuple(i if isinstance(i, int) else int(i[lane]) for i in at)
            self._note(Fault.OUT_OF_BOUNDS, self._access(statement, is_write, name, index, int(lanes.thread[lane])))
            flat, lanes = flat[inside], lanes.only(inside)
        if cells.copies:
            flat = flat + lanes.values[f"{OWN}{name}"] * cells.size
        if self._now is not None:
            foreign = cells.foreign(flat, lanes.thread, self._now)
            if foreign.any():
                self._trouble(Fault.OUT_OF_SCOPE, statement, is_write, cells, flat, int(foreign.argmax()), lanes)
        return cells, flat, inside, lanes

    # Findings --------------------------------------------------------------------------------------------------------

    def _access(self, statement: int, is_write: bool, name: str, index: tuple[int, ...], thread: int) -> Access:
        return Access(self._texts[statement], is_write, name, index, self._thread(thread))

    def _trouble(
        self, fault: Fault, statement: int, is_write: bool, cells: Cells, flat: Numbers, lane: int, lanes: Lanes
    ) -> None:
        index = self._unflattened(cells, int(flat[lane]))
        self._note(fault, self._access(statement, is_write, cells.buffer.name, index, int(lanes.thread[lane])))

    def _note(self, fault: Fault, access: Access) -> None:
        if len(self._troubles) < _MOST:
            self._troubles.setdefault((fault, access.statement, access.buffer), Trouble(fault, access))

    def _race(
        self, meeting: Meeting, cells: Cells, flat: Numbers, lanes: Lanes, statement: int, is_write: bool
    ) -> None:
        key = (meeting.statement, meeting.is_write, statement, is_write, cells.buffer.name)
        if key in self._races or len(self._races) >= _MOST:
            return
        name, index = cells.buffer.name, self._unflattened(cells, int(flat[meeting.lane]))
        first = self._access(meeting.statement, meeting.is_write, name, index, meeting.thread)
        self._races[key] = Race(first, self._access(statement, is_write, name, index, int(lanes.thread[meeting.lane])))

    def _unflattened(self, cells: Cells, element: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(element % max(cells.size, 1), cells.shape)) if cells.shape else ()


def _each(actions: Sequence[_Action]) -> _Action:
    def run(lanes: Lanes) -> None:
        for action in actions:
            action(lanes)

    return run


def _serially(var: Var, count: int | Numbers, body: _Action, lanes: Lanes) -> None:
    """Iterations in order; lanes with smaller counts become inactive."""
    inside = Lanes(lanes.size, lanes.thread, dict(lanes.values))
    for value in range(count if isinstance(count, int) else int(count.max(initial=0))):
        if isinstance(count, int):
            inside.values[var.unique] = value
            body(inside)
        else:
            inside.values[var.unique] = np.full(lanes.size, value)
            body(inside.only(count > value))
