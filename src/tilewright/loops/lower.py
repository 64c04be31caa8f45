"""Tensor expressions to naive loop programs: one nest of serial loops around one block for each compute.

Parameters are the placeholders, in order of first use unless they are given, then the outputs; everything else is
allocated around the whole program. The result is simple rather than fast; schedules preserve its semantics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.errors import BadProgram
from tilewright.loops.access import regions, whole
from tilewright.loops.extern import local_buffers, statement_of
from tilewright.loops.ir import Alloc, Block, Buffer, Loop, Stmt, Store, Stores
from tilewright.loops.naming import Names
from tilewright.loops.positions import refuse_outside, with_checked_data
from tilewright.loops.program import Dim, Program
from tilewright.loops.simplification import simplify_indices
from tilewright.loops.visit import rename_allocs, rename_loops, replace_buffers, seq
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ZERO, Expr, Extent, Read, Var, select
from tilewright.symbolic.traversal import substitute, transform, walk
from tilewright.tensor.build import UNNAMED, compute
from tilewright.tensor.ir import (
    Compute,
    Extern,
    Operation,
    Placeholder,
    Reduction,
    Scan,
    Tensor,
    inputs_of,
    topological_order,
)
from tilewright.tensor.scan import recurrent_operations


def lower(
    outputs: Sequence[Tensor] | Tensor,
    name: str = "main",
    *,
    inputs: Sequence[Tensor] | None = None,
    dims: Mapping[str, int] | None = None,
    trusted: bool = False,
) -> Program:
    """The naive program that computes ``outputs``. Data-dependent indices are checked.

    ``inputs``: the placeholders in the order of the parameters, also unused ones. ``dims``: upper bounds of run-time
    extents, by name. ``trusted``: skip the check that other indices are in range, which takes time. Raises
    ``BadProgram`` if a placeholder is missing in ``inputs``, if a scan's state is used outside of the scan, or for an
    access that is provably out of range.
    """
    program = lower_named(outputs, name, inputs=inputs, dims=dims).program
    if not trusted:
        refuse_outside(program)
    return program


def lower_named(
    outputs: Sequence[Tensor] | Tensor,
    name: str = "main",
    *,
    inputs: Sequence[Tensor] | None = None,
    dims: Mapping[str, int] | None = None,
) -> "Lowered":
    """The same without a check of accesses, and the names of the operations in the program."""
    wanted = _distinct((outputs,) if isinstance(outputs, Tensor) else tuple(outputs))
    lowering = _Lowering(wanted, inputs, dims or {})
    program = lowering.program(name)
    return Lowered(program, lowering.blocks, {key: buffer.name for key, buffer in lowering.buffers.items()})


def _distinct(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Outputs that are also inputs, or repeated, become copies."""
    result: list[Tensor] = []
    for tensor in outputs:
        is_own = not isinstance(tensor.op, Placeholder) and tensor not in result
        result.append(tensor if is_own else _copy(tensor))
    return tuple(result)


def _copy(tensor: Tensor) -> Tensor:
    return compute(tensor.shape, lambda *index: tensor[index], name=f"{tensor.name}_copy")


_Key: TypeAlias = tuple[Operation, int]
"""An operation's output."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program, and its parts by operation of the tensor expression."""

    program: Program
    blocks: Mapping[Operation, str]
    """The block of each compute and extern."""
    buffers: Mapping[tuple[Operation, int], str]
    """The buffer of each output of an operation."""


class _Lowering:
    """One program under construction."""

    def __init__(self, outputs: tuple[Tensor, ...], inputs: Sequence[Tensor] | None, limits: Mapping[str, int]) -> None:
        self._order = topological_order(outputs)
        self._scans = [op for op in self._order if isinstance(op, Scan)]
        self._recurrent: dict[Operation, Scan] = {op: scan for scan in self._scans for op in recurrent_operations(scan)}
        self._outputs = outputs
        self._check_escapes()
        self._params = self._parameters(inputs)
        self._known = {(t.op, t.output): t for t in (*outputs, *(t for op in self._order for t in inputs_of(op)))}
        computed = [t for op in self._order if not isinstance(op, Placeholder) for t in self._results(op)]
        tensors = [*self._params, *computed]
        self._dims = tuple(Dim(v, limits.get(v.name)) for v in _extents_in(tensors, self._order))
        self._bounds = Bounds(dims={dim.var: dim.bound for dim in self._dims})
        self._check_dims()
        self._names = Names((dim.var.name for dim in self._dims), (t.name for t in tensors))
        self.buffers: dict[_Key, Buffer] = {}
        self.blocks: dict[Operation, str] = {}
        self._name_buffers(tensors)

    def program(self, name: str) -> Program:
        body = seq(*(self._operation(op) for op in self._order if op not in self._recurrent))
        params = tuple(self.buffers[t.op, t.output] for t in (*self._params, *self._outputs))
        for buffer in reversed(list(dict.fromkeys(self.buffers.values()))):
            if buffer not in params:
                body = Alloc(buffer, body)
        program = Program(name, params, body, self._dims, len(self._outputs))
        return with_checked_data(program)

    # Parameters and buffers

    def _check_dims(self) -> None:
        """Checks that run-time extents have different names: programs identify them by name."""
        names = [dim.var.name for dim in self._dims]
        if len(set(names)) != len(names):
            raise BadProgram(f"two run-time extents have one name: {', '.join(names)}")

    def _check_escapes(self) -> None:
        """Checks that states, and computes within the steps of a scan, are not used outside of it."""
        within = {**self._recurrent, **{state.op: scan for scan in self._scans for state in scan.state}}
        for op in self._order:
            for tensor in inputs_of(op):
                scan = within.get(tensor.op)
                if scan is not None and self._recurrent.get(op) is not scan and op is not scan:
                    raise BadProgram(f"{op.name} reads {tensor.name}, which exists within steps of {scan.name} only")
        for tensor in self._outputs:
            if tensor.op in within:
                raise BadProgram(f"{tensor.name} exists within the steps of a scan only; it can't be an output")

    def _parameters(self, inputs: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
        states = {state.op for scan in self._scans for state in scan.state}
        used = {t.op: t for op in self._order for t in inputs_of(op) if isinstance(t.op, Placeholder)}
        needed = [used[op] for op in self._order if op in used and op not in states]
        if inputs is None:
            return tuple(needed)
        for tensor in needed:
            if tensor not in inputs:
                raise BadProgram(f"{tensor!r} is needed, but not listed in inputs=")
        return tuple(inputs)

    def _results(self, op: Operation) -> tuple[Tensor, ...]:
        """All outputs of ``op``, used or not."""
        match op:
            case Placeholder(name, shape, dtype):
                made = [Tensor(op, 0, name, dtype, shape)]
            case Compute(name, axes):
                shape = tuple(axis.extent for axis in axes)
                made = [Tensor(op, o, name, value.dtype, shape) for o, value in enumerate(op.values)]
            case Scan(name):
                made = [Tensor(op, o, name, state.dtype, state.shape) for o, state in enumerate(op.state)]
            case Extern():
                results = zip(op.output_names, op.output_dtypes, op.output_shapes, strict=True)
                made = [Tensor(op, o, *result) for o, result in enumerate(results)]
        return tuple(self._known.get((op, tensor.output), tensor) for tensor in made)

    def _name_buffers(self, tensors: Sequence[Tensor]) -> None:
        """One buffer for each tensor; the states of a scan and its updates live in the scan's result."""
        shared: dict[_Key, Tensor] = {}
        for scan in self._scans:
            for result, update, state in zip(self._results(scan), scan.update, scan.state, strict=True):
                shared[state.op, state.output] = result
                if update.op in self._recurrent and scan.update.count(update) == 1:
                    shared[update.op, update.output] = result
        for tensor in tensors:
            if (tensor.op, tensor.output) not in shared:
                buffer = Buffer(self._names.buffer(tensor.name), tensor.dtype, tensor.shape)
                self.buffers[tensor.op, tensor.output] = buffer
        for key, result in shared.items():
            self.buffers[key] = self.buffers[result.op, result.output]

    def _buffer(self, tensor: Tensor) -> Buffer:
        return self.buffers[tensor.op, tensor.output]

    # Statements

    def _operation(self, op: Operation) -> Stmt:
        match op:
            case Placeholder():
                return seq()
            case Compute():
                return self._compute(op)
            case Scan():
                return self._scan(op)
            case Extern():
                return self._extern(op)

    def _compute(self, op: Compute) -> Stmt:
        targets = [self.buffers[op, output] for output in range(len(op.values))]
        axes = [*op.axes, *_reduced(op)]
        return self._nest(self._block_name(op, targets), axes, lambda at: self._stores(op, targets, at))

    def _block_name(self, op: Operation, targets: Sequence[Buffer]) -> str:
        name = self._names.block(targets[0].name if op.name == UNNAMED or len(targets) == 1 else op.name)
        self.blocks[op] = name
        return name

    def _nest(
        self, name: str, axes: Sequence[IterVar], body: Callable[[Mapping[Var, Expr]], tuple[Stmt | None, Stmt]]
    ) -> Stmt:
        """Serial loops over ``axes`` around one block; ``body`` builds init and body for the values of the axes."""
        loops = [Var(self._names.loop(axis.name)) for axis in axes]
        block = self._block(name, axes, loops, body)
        return _looped(block, loops, axes)

    def _block(
        self,
        name: str,
        axes: Sequence[IterVar],
        bindings: Sequence[Var],
        body: Callable[[Mapping[Var, Expr]], tuple[Stmt | None, Stmt]],
    ) -> Block:
        own: list[IterVar] = []
        for axis, loop in zip(axes, bindings, strict=True):
            var = Var(self._names.axis(loop.name, [other.name for other in own]))
            own.append(IterVar(var, axis.extent, axis.kind))
        init, update = body({axis.var: mine.var for axis, mine in zip(axes, own, strict=True)})
        bounds = self._bounds.extended({axis.var: axis.extent for axis in own})
        if any(axis.kind is IterKind.ORDERED for axis in own):
            # The axis counts the steps after the start, so that row indices are sums: `t + 1 - 1`.
            update = simplify_indices(update, bounds)
        touched = regions(update if init is None else seq(init, update), bounds)
        return Block(name, tuple(own), tuple(bindings), touched.reads, touched.writes, update, init)

    def _stores(self, op: Compute, targets: Sequence[Buffer], at: Mapping[Var, Expr]) -> tuple[Stmt | None, Stmt]:
        """Init and body of the block of ``op`` at the axes' values ``at``."""
        indices = tuple(at[axis.var] for axis in op.axes)
        if op.reduction is not None and _reduces_nothing(op):
            return None, _store_all(targets, indices, op.reduction.reducer.identities)
        values = [self._scalar(value, at) for value in op.values]
        if op.reduction is None:
            return None, _store_all(targets, indices, values)
        condition = self._scalar(op.reduction.condition, at)
        combined = _combined(op.reduction, [Read(target, indices) for target in targets], values, condition)
        return _store_all(targets, indices, op.reduction.reducer.identities), _store_all(targets, indices, combined)

    def _scalar(self, expr: Expr, at: Mapping[Var, Expr]) -> Expr:
        """``expr`` over buffers instead of tensors, and over the axes of the block."""

        def leave(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                return at.get(node)
            if isinstance(node, Read) and isinstance(node.source, Tensor):
                return Read(self._buffer(node.source), node.indices)
            return None

        return transform(expr, leave)

    # Recurrences

    def _scan(self, op: Scan) -> Stmt:
        """The first rows are copied; then, for each step, the recurrent operations compute one row."""
        rows, steps = op.init[0].shape[0], op.state[0].shape[0]
        results = [self.buffers[op, output] for output in range(len(op.state))]
        copies = [self._copied_rows(result, init) for result, init in zip(results, op.init, strict=True)]
        time = Var(self._names.loop("t"))
        inside = [self._step(each, time, steps - rows, rows) for each in recurrent_operations(op)]
        for result, update in zip(results, op.update, strict=True):
            if self._buffer(update) != result:
                inside.append(self._copied_step(result, update, time, steps - rows, rows))
        return seq(*copies, Loop(time, steps - rows, seq(*inside)))

    def _copied_rows(self, result: Buffer, init: Tensor) -> Stmt:
        axes = _axes_of(init)
        source = self._buffer(init)

        def body(at: Mapping[Var, Expr]) -> tuple[None, Stmt]:
            indices = tuple(at[axis.var] for axis in axes)
            return None, Store(result, indices, Read(source, indices))

        return self._nest(self._names.block(f"{result.name}_start"), axes, body)

    def _step(self, op: Compute, time: Var, steps: Expr, rows: Expr) -> Stmt:
        """Row ``time + rows`` of a recurrent operation."""
        targets = [self.buffers[op, output] for output in range(len(op.values))]
        clock = op.axes[0]

        def body(at: Mapping[Var, Expr]) -> tuple[Stmt | None, Stmt]:
            return self._stores(op, targets, {**at, clock.var: at[clock.var] + rows})

        others = [*op.axes[1:], *_reduced(op)]
        return self._step_nest(
            self._block_name(op, targets), IterVar(clock.var, steps, IterKind.ORDERED), others, time, body
        )

    def _copied_step(self, result: Buffer, update: Tensor, time: Var, steps: Expr, rows: Expr) -> Stmt:
        axes = _axes_of(update)
        source = self._buffer(update)

        def body(at: Mapping[Var, Expr]) -> tuple[None, Stmt]:
            indices = (at[axes[0].var] + rows, *(at[axis.var] for axis in axes[1:]))
            return None, Store(result, indices, Read(source, indices))

        clock = IterVar(axes[0].var, steps, IterKind.ORDERED)
        return self._step_nest(self._names.block(f"{result.name}_step"), clock, axes[1:], time, body)

    def _step_nest(
        self,
        name: str,
        clock: IterVar,
        others: Sequence[IterVar],
        time: Var,
        body: Callable[[Mapping[Var, Expr]], tuple[Stmt | None, Stmt]],
    ) -> Stmt:
        loops = [Var(self._names.loop(axis.name)) for axis in others]
        return _looped(self._block(name, [clock, *others], [time, *loops], body), loops, others)

    # Opaque bodies

    def _extern(self, op: Extern) -> Stmt:
        inputs, outputs = local_buffers(op)
        sources = [self._buffer(tensor) for tensor in op.inputs]
        targets = [self.buffers[op, output] for output in range(len(outputs))]
        body = replace_buffers(statement_of(op), dict(zip((*inputs, *outputs), (*sources, *targets), strict=True)))
        body = rename_loops(body, self._names.loop)
        body = rename_allocs(body, self._names.buffer)
        reads = tuple(whole(buffer) for buffer in dict.fromkeys((*sources, *targets)))
        return Block(self._block_name(op, targets), (), (), reads, tuple(map(whole, targets)), body)


def _looped(body: Stmt, loops: Sequence[Var], axes: Sequence[IterVar]) -> Stmt:
    for var, axis in reversed(list(zip(loops, axes, strict=True))):
        body = Loop(var, axis.extent, body)
    return body


def _reduced(op: Compute) -> tuple[IterVar, ...]:
    """The reduction axes of the block; none if one is empty: an init runs at the first point of the reduction axes."""
    return () if _reduces_nothing(op) else op.reduce_axis


def _reduces_nothing(op: Compute) -> bool:
    return any(axis.extent == ZERO for axis in op.reduce_axis)


def _axes_of(tensor: Tensor) -> list[IterVar]:
    if isinstance(tensor.op, Compute):
        return list(tensor.op.axes)
    return [IterVar(Var(f"i{d}"), extent, IterKind.SPATIAL) for d, extent in enumerate(tensor.shape)]


def _combined(reduction: Reduction, old: Sequence[Expr], sources: Sequence[Expr], condition: Expr) -> list[Expr]:
    """The reducer's results with one more point; if the condition fails, the point is the identity."""
    reducer = reduction.reducer
    fresh = [select(condition, source, neutral) for source, neutral in zip(sources, reducer.identities, strict=True)]
    values = dict(zip((*reducer.left, *reducer.right), (*old, *fresh), strict=True))
    return [substitute(result, values) for result in reducer.results]


def _store_all(targets: Sequence[Buffer], indices: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
    stores = tuple(Store(target, indices, value) for target, value in zip(targets, values, strict=True))
    return stores[0] if len(stores) == 1 else Stores(stores)


def _extents_in(tensors: Sequence[Tensor], operations: Sequence[Operation]) -> list[Extent]:
    """The run-time extents, in order of first use: in shapes, then in bodies."""
    found = [node for t in tensors for extent in t.shape for node in walk(extent) if isinstance(node, Extent)]
    used = (v for op in operations if isinstance(op, Compute) for v in sorted(_dims_in(op), key=lambda v: v.unique))
    return list(dict.fromkeys((*found, *used)))


def _dims_in(op: Compute) -> set[Extent]:
    """The run-time extents in the bodies of ``op``, and in the extents of its reduction."""
    condition = (op.reduction.condition,) if op.reduction else ()
    reduced = (axis.extent for axis in op.reduce_axis)
    return {v for value in (*op.values, *condition, *reduced) for v in value.variables if isinstance(v, Extent)}
