"""Emits whole functions: a kernel from a scheduled loop program, and the main function from a main program.

Both have the signature of ``runtime.abi``: ``(buffers, dims, workspace, context)``. Main calls kernels with slices of
its own workspace; its allocations have offsets planned by liveness (``plan``).
"""

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.backend.cpu.accesses import Environment
from tilewright.backend.cpu.intrinsics import emit_intrinsic
from tilewright.backend.cpu.places import Place
from tilewright.backend.cpu.plan import balanced, largest, plan_below, plan_memory
from tilewright.backend.cpu.prepare import prepare
from tilewright.backend.cpu.statements import Arena, CallEmitter, FunctionState, Module, StatementEmitter
from tilewright.backend.cpu.stop_text import poll
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value
from tilewright.base import dtypes
from tilewright.base.errors import BadProgram, Unsupported
from tilewright.loops.ir import NOTHING, Alloc, Buffer, Call, Callee, Loop, Region, Stmt
from tilewright.loops.printer import format_region
from tilewright.loops.program import Program
from tilewright.loops.visit import MOST_COPIES, allocations, buffers, copies, seq, seq_items, walk
from tilewright.runtime import abi
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, ZERO, Expr, Extent, Var, const
from tilewright.symbolic.traversal import substitute

Variants: TypeAlias = Mapping[str, Sequence[tuple[str, Expr]]]
"""By the names of kernels, those that may run instead, and conditions on the kernel's run-time extents."""


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """Requirements of a function: bytes of workspace, and of scratch for each worker."""

    name: str
    workspace_bytes: int
    scratch_bytes: int
    calls: tuple[str, ...] = ()
    """For main: the kernels that it calls, in the order of their marks."""
    more_workspace: Expr = ZERO
    """Bytes that depend on run-time extents: for a kernel, below its workspace; for main, among the others."""


def emit_kernel(program: Program, module: Module) -> FunctionInfo:
    """Append the kernel's functions to ``module``; prepares the scheduled ``program``.

    Raises ``Unsupported`` if its unrolled loops give too much code.
    """
    if (count := copies(program.body)) > MOST_COPIES:
        raise Unsupported(f"its unrolled loops are {count} statements, more than {MOST_COPIES}; unroll fewer of them")
    prepared = prepare(program)
    below = plan_below(prepared)
    calls, signature = _intrinsic_calls(program), f"define hidden void @{program.name}"
    info = _emit(prepared, program.name, module, below.offsets, calls, signature)
    return replace(info, more_workspace=below.bytes)


def emit_main(
    program: Program,
    constants: int,
    kernels: Mapping[str, tuple[Program, FunctionInfo]],
    module: Module,
    sites: Mapping[str, int],
    variants: Variants,
) -> FunctionInfo:
    """Append ``tw_main``. The last ``constants`` of the read-only parameters are constants of the model.

    ``sites``: the number of sites of each kernel; those of the calls are numbered in the order of the calls.
    ``variants``: the kernels that are called instead of others where conditions on these' run-time extents hold.

    Raises ``BadProgram`` if it calls a kernel missing in ``kernels``.
    """
    plan = plan_memory(program)
    top = _aligned(plan.bytes)
    deepest = max((k.workspace_bytes for _, k in kernels.values()), default=0)
    own = (call for call in walk(program.body) if isinstance(call, Call) and call.callee in kernels)
    bounds = Bounds({}, {dim.var: dim.bound for dim in program.dims})
    below = largest((_below(*kernels[call.callee], call, program) for call in own), bounds)
    fixed = top + _aligned(deepest)
    before = (balanced(operator.add, plan.slot_bytes[:slot]) for slot in range(len(plan.slot_bytes)))
    starts = [fixed + below + size for size in before]
    offsets: dict[str, Expr] = {name: const(at) for name, at in plan.offsets.items()}
    offsets.update((name, starts[slot]) for name, slot in plan.slots.items())
    called: list[str] = []
    calls = _kernel_calls(program, kernels, top, called, sites, variants)
    signature = f"define hidden i32 @{abi.MAIN}"
    parts = _parts(program)
    for name, part in parts.items():
        _emit(part, name, module, offsets, calls, f"define internal void @{name}", constants, is_part=True)
    whole = replace(program, body=NOTHING) if parts else program
    info = _emit(whole, abi.MAIN, module, offsets, calls, signature, constants, tuple(parts), is_part=bool(parts))
    scratch = max((k.scratch_bytes for _, k in kernels.values()), default=0)
    more = balanced(operator.add, (below, *plan.slot_bytes))
    return FunctionInfo(info.name, fixed, max(info.scratch_bytes, scratch), tuple(called), more)


MOST_CALLS = 256
"""Maximum number of calls in one function: LLVM's time grows with its square."""


def _parts(program: Program) -> dict[str, Program]:
    """Main in parts, if it has many calls: each is a separate function, by name."""
    around, body = allocations(program.body)
    steps = seq_items(body)
    if len(steps) <= MOST_CALLS or not all(isinstance(step, Call | Loop) for step in steps):
        return {}
    allocated = {alloc.buffer for alloc in around}
    pieces = [seq(*steps[start : start + MOST_CALLS]) for start in range(0, len(steps), MOST_CALLS)]
    return {f"{abi.MAIN}_part{i}": replace(program, body=_within(piece, allocated)) for i, piece in enumerate(pieces)}


def _within(piece: Stmt, allocated: Collection[Buffer]) -> Stmt:
    """``piece`` with the allocations that it uses around it."""
    for buffer in buffers(piece):
        if buffer in allocated:
            piece = Alloc(buffer, piece)
    return piece


_RETURN_CODE = (
    f"%code.at = getelementptr inbounds i8, ptr %context, i64 {abi.CONTEXT_CODE}",
    "%code64 = load i64, ptr %code.at",
    "%code = trunc i64 %code64 to i32",
    "ret i32 %code",
)


def _aligned(size: int) -> int:
    return -(-size // abi.ALIGNMENT) * abi.ALIGNMENT


def _emit(
    program: Program,
    name: str,
    module: Module,
    offsets: Mapping[str, Expr],
    calls: CallEmitter,
    signature: str,
    constants: int = 0,
    parts: Sequence[str] = (),
    *,
    is_part: bool = False,
) -> FunctionInfo:
    """Append the function ``name`` to ``module``; it runs ``program``, then calls ``parts``.

    ``is_part``: it is one of several, each of which uses some of the parameters.
    """
    text = FunctionText(module.declarations)
    environment = _entry(program, constants, text, frozenset(buffers(program.body)) if is_part else None)
    bounds: dict[Var, int | None] = {dim.var: dim.bound for dim in program.dims}
    state = FunctionState(name, module, text, environment, Arena(), Arena(), bounds, offsets, calls)
    is_main = name == abi.MAIN
    if is_main:
        _mark(text, 0)
    StatementEmitter(state).emit(program.body)
    for part in parts:
        text.effect(f"call void @{part}(ptr %buffers, ptr %dims, ptr %workspace, ptr %context)")
        poll(text, "0")
    parameters = "ptr noalias %buffers, ptr noalias %dims, ptr noalias %workspace, ptr %context"
    module.functions.append(text.finish(f"{signature}({parameters}) nounwind", *(_RETURN_CODE if is_main else ())))
    return FunctionInfo(name, state.workspace.peak, state.scratch.peak)


def _entry(program: Program, constants: int, text: FunctionText, used: Collection[Buffer] | None = None) -> Environment:
    """Load the pointers of all parameters (or of those in ``used``) and the run-time extents."""
    environment = Environment()
    written = {p.name for p in program.params[len(program.params) - program.outputs :]}
    for position, buffer in enumerate(_in_abi_order(program, constants)):
        if used is not None and buffer not in used:
            continue
        at = text.pure(f"getelementptr inbounds ptr, ptr %buffers, i64 {position}", 0)
        pointer = Value(text.emit(f"load ptr, ptr {at}"), dtypes.index)
        constant, ahead = buffer.name not in written, program.prefetched(buffer.name)
        cache = program.prefetch_cache(buffer.name)
        steps = tuple((Var(loop), step) for loop, step in program.prefetch_steps(buffer.name).items())
        environment.places[buffer.name] = Place(
            pointer, constant, buffer.dtype.itemsize, ahead=ahead, ahead_cache=cache, ahead_steps=steps
        )
    for position, dim in enumerate(program.dims):
        at = text.pure(f"getelementptr inbounds i64, ptr %dims, i64 {position}", 0)
        environment.scalars[dim.var] = Value(text.emit(f"load i64, ptr {at}"), dtypes.index)
    return environment


def _in_abi_order(program: Program, constants: int) -> tuple[Buffer, ...]:
    """The parameters in the order of the caller's array: constants, before the outputs in a program, come last."""
    results = len(program.params) - program.outputs
    inputs = results - constants
    return (*program.params[:inputs], *program.params[results:], *program.params[inputs:results])


def _intrinsic_calls(program: Program) -> CallEmitter:
    known = {intrinsic.name: intrinsic for intrinsic in program.intrinsics}

    def emit(emitter: StatementEmitter, call: Call) -> None:
        if call.kind is not Callee.INTRINSIC or call.callee not in known:
            raise BadProgram(f"kernel `{program.name}` calls `{call.callee}`, which is not one of its intrinsics")
        emit_intrinsic(emitter, known[call.callee], call)

    return emit


def _kernel_calls(
    caller: Program,
    kernels: Mapping[str, tuple[Program, FunctionInfo]],
    workspace: int,
    called: list[str],
    sites: Mapping[str, int],
    variants: Variants,
) -> CallEmitter:
    """Emits calls of kernels, each followed by a mark and a stop check; appends their names to ``called``."""

    def emit(emitter: StatementEmitter, call: Call) -> None:
        if call.kind is not Callee.KERNEL or call.callee not in kernels:
            raise BadProgram(f"main calls `{call.callee}`, which is not one of its kernels")
        program, info = kernels[call.callee]
        pointers = [_start(emitter, region) for region in call.args]
        buffers = _array(emitter.text, "ptr", pointers)
        extents = _extents(program, call, caller)
        sizes = [emitter.scalars.value(extents[dim.var]) for dim in program.dims]
        dims = _array(emitter.text, "i64", sizes)
        start = emitter.scalars.value(workspace + substitute(info.more_workspace, extents))
        slice_ = emitter.text.pure(f"getelementptr inbounds i8, ptr %workspace, i64 {start.text}", 0)
        if sites.get(program.name):
            first = sum(sites.get(name, 0) for name in called)
            at = emitter.text.pure(f"getelementptr inbounds i8, ptr %context, i64 {abi.CONTEXT_FIRST_SITE}", 0)
            emitter.text.effect(f"store i64 {first}, ptr {at}")
        rest = f"(ptr {buffers}, ptr {dims}, ptr {slice_}, ptr %context)"
        own = [(name, substitute(where, extents)) for name, where in variants.get(program.name, ())]
        _call_first(emitter, [(n, emitter.scalars.value(where)) for n, where in own], program.name, rest)
        called.append(program.name)
        _mark(emitter.text, len(called))
        poll(emitter.text, "0")

    return emit


def _start(emitter: StatementEmitter, region: Region) -> Value:
    """The pointer to the first element of a box that is contiguous."""
    pointer = emitter.env.places[region.buffer.name].pointer
    (first, _), *others = region.ranges or ((ZERO, ONE),)
    if any(start != ZERO for start, _ in others):
        raise BadProgram(f"main passes {format_region(region)}, which does not lie in one piece")
    if first == ZERO:
        return pointer
    size: Expr = first * region.buffer.dtype.itemsize
    for extent in region.buffer.shape[1:]:
        size = size * extent
    offset = emitter.scalars.value(size)
    return Value(emitter.text.emit(f"getelementptr inbounds i8, ptr {pointer.text}, i64 {offset.text}"), dtypes.index)


def _call_first(emitter: StatementEmitter, variants: Sequence[tuple[str, Value]], other: str, arguments: str) -> None:
    """Calls the first of ``variants`` whose condition holds, else ``other``."""
    text = emitter.text
    if not variants:
        text.effect(f"call void @{other}{arguments}")
        return
    (name, condition), *rest = variants
    entry = text.open_branch()
    text.effect(f"call void @{name}{arguments}")
    sides = [(entry, text.close_branch()[1])]
    entry = text.open_branch()
    _call_first(emitter, rest, other, arguments)
    sides.append((entry, text.close_branch()[1]))
    text.branch(condition, sides)


def _mark(text: FunctionText, slot: int) -> None:
    """Marks the end of a call's time (``runtime.abi``); a no-op unless the caller asked for times."""
    text.effect(f"call void @tw_mark(ptr %context, i64 {slot})")


def _extents(kernel: Program, call: Call, caller: Program) -> dict[Var, Expr]:
    """The kernel's run-time extents, as the caller computes them.

    They have the same names there, or are those of arguments of the parameters' rank: a kernel may see the same memory
    in another shape.
    """
    found: dict[Var, Expr] = {}
    for parameter, region in zip(kernel.params, call.args, strict=True):
        if len(parameter.shape) == len(region.buffer.shape):
            pairs = zip(parameter.shape, region.buffer.shape, strict=True)
            found = {extent: actual for extent, actual in pairs if isinstance(extent, Extent)} | found
    same = {dim.var.name: dim.var for dim in caller.dims}
    return {dim.var: same[dim.var.name] if dim.var.name in same else found[dim.var] for dim in kernel.dims}


def _below(kernel: Program, info: FunctionInfo, call: Call, caller: Program) -> Expr:
    """The bytes below its workspace that ``call`` needs, in terms of the caller's run-time extents."""
    return ZERO if info.more_workspace == ZERO else substitute(info.more_workspace, _extents(kernel, call, caller))


def _array(text: FunctionText, element: str, values: Sequence[Value]) -> str:
    """An array on the stack with these values of at most eight bytes."""
    if not values:
        return "null"
    array = text.alloca(f"[{len(values)} x i64]")
    for position, value in enumerate(values):
        at = text.pure(f"getelementptr inbounds {element}, ptr {array}, i64 {position}", 0)
        text.effect(f"store {element} {value.text}, ptr {at}")
    return array
