"""Emits calls of intrinsics with an implementation in LLVM IR (``prepare`` inlines the others).

One with operands in registers is inlined: loads of vectors, or known values; then its instructions; then a store. If
the result is private and its offset a literal, only the instructions remain: loads and stores become registers.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod

from tilewright.backend.cpu.prepare.inline import fill_value
from tilewright.backend.cpu.register_code import RegisterCode, register_code
from tilewright.backend.cpu.statements import Module, StatementEmitter
from tilewright.backend.cpu.values import Value, literal
from tilewright.base.errors import InternalError
from tilewright.loops.ir import Call, Region
from tilewright.loops.program import Intrinsic
from tilewright.symbolic.expr import Const, Expr, Read, Var, binary, const
from tilewright.symbolic.operations import BinaryOp

_LANE = Var("element")
"""Contiguous elements of a region."""


def emit_intrinsic(emitter: StatementEmitter, intrinsic: Intrinsic, call: Call) -> None:
    """Emit the call."""
    filled = None if intrinsic.implementation else fill_value(intrinsic)
    if filled is not None:
        _store(emitter, call.args[0], literal(filled.value, filled.dtype, _elements(call.args[0])))
    elif (code := register_code(intrinsic)) is not None:
        _emit_in_registers(emitter, code, call)
    else:
        _emit_in_memory(emitter, intrinsic, call)


def _emit_in_memory(emitter: StatementEmitter, intrinsic: Intrinsic, call: Call) -> None:
    """For each parameter the address of its region, then its strides (in elements) except the last; then run-time
    extents."""
    operands: list[str] = []
    for parameter, region in zip(intrinsic.description.params, call.args, strict=True):
        operands.append(
            f"ptr {emitter.scalars.pointer(region.buffer, tuple(start for start, _ in region.ranges)).text}"
        )
        operands.extend(
            f"i64 {emitter.scalars.value(stride).text}" for stride in _strides(region, len(parameter.shape))
        )
    extents = intrinsic.extents(call.args)
    operands.extend(f"i64 {emitter.scalars.value(extents[dim.var]).text}" for dim in intrinsic.description.dims)
    _define(emitter.state.module, intrinsic.implementation)
    emitter.text.effect(f"call void @{intrinsic.name}({', '.join(operands)})")
    emitter.text.forget(None)


def _define(module: Module, implementation: str) -> None:
    """Add the functions of ``implementation``, and its declarations once: LLVM refuses to read them again."""
    lines = implementation.splitlines()
    functions = "\n".join(line for line in lines if not line.startswith("declare "))
    if functions not in module.functions:
        module.functions.append(functions)
        module.declarations.update((line, None) for line in lines if line.startswith("declare "))


def _strides(region: Region, rank: int) -> list[Expr]:
    """The strides of the last ``rank`` dimensions, except the last one, which is 1."""
    strides: list[Expr] = [const(1)]
    for extent in reversed(region.buffer.shape[1:]):
        strides.append(binary(BinaryOp.MUL, strides[-1], extent))
    return strides[1:rank][::-1]


# In registers --------------------------------------------------------------------------------------------------------


def _emit_in_registers(emitter: StatementEmitter, code: RegisterCode, call: Call) -> None:
    operands = [_load(emitter, region) for region in call.args[: len(code.parameters)]]
    result = call.args[-1]
    text, depth = code.inlined(emitter.text, operands)
    _store(emitter, result, Value(text, result.buffer.dtype, _elements(result), depth))


def _load(emitter: StatementEmitter, region: Region) -> Value:
    """All elements of ``region`` as one vector."""
    env, whole = emitter.env, _elements(region)
    joined: Value | None = None
    done = 0
    for read, lanes in _runs(region, emitter.state.module.checked):
        env.lane_variable, env.lanes = (_LANE, lanes) if lanes > 1 else (None, 1)
        part = emitter.scalars.value(read)
        env.lane_variable, env.lanes = None, 1
        joined = part if lanes == whole else _with_part(emitter, joined, part, done, whole)
        done += lanes
    if joined is None:
        raise InternalError(f"a region of {region.buffer.name} is empty")
    return joined


def _with_part(emitter: StatementEmitter, joined: Value | None, part: Value, start: int, whole: int) -> Value:
    """``joined``, a vector of ``whole`` elements, with ``part`` from ``start`` on."""
    vector = Value("poison", part.dtype, whole) if joined is None else joined
    depth = max(vector.depth, part.depth)
    if part.lanes == 1:
        text = f"insertelement {vector.typed}, {part.typed}, i64 {start}"
        return Value(emitter.text.pure(text, depth), part.dtype, whole, depth)
    wide = _shuffled(emitter, part, None, [lane if lane < part.lanes else -1 for lane in range(whole)])
    end = start + part.lanes
    order = [whole + lane - start if start <= lane < end else lane for lane in range(whole)]
    return _shuffled(emitter, vector, wide, order)


def _shuffled(emitter: StatementEmitter, a: Value, b: Value | None, order: Sequence[int]) -> Value:
    """The elements of ``a`` and ``b`` at ``order``; negative ones are undefined."""
    mask = ", ".join("i32 poison" if place < 0 else f"i32 {place}" for place in order)
    depth = max(a.depth, 0 if b is None else b.depth)
    other = "poison" if b is None else b.text
    text = f"shufflevector {a.typed}, {a.type} {other}, <{len(order)} x i32> <{mask}>"
    return Value(emitter.text.pure(text, depth), a.dtype, len(order), depth)


def _store(emitter: StatementEmitter, region: Region, value: Value) -> None:
    """Store the vector ``value`` to all elements of ``region``."""
    env, done = emitter.env, 0
    for read, lanes in _runs(region, emitter.state.module.checked):
        part = value if lanes == value.lanes else _part(emitter, value, done, lanes)
        env.lane_variable, env.lanes = (_LANE, lanes) if lanes > 1 else (None, 1)
        emitter.scalars.store(region.buffer, read.indices, part)
        env.lane_variable, env.lanes = None, 1
        done += lanes


def _part(emitter: StatementEmitter, value: Value, start: int, lanes: int) -> Value:
    if lanes == 1:
        text = emitter.text.pure(f"extractelement {value.typed}, i64 {start}", value.depth)
        return Value(text, value.dtype, 1, value.depth)
    return _shuffled(emitter, value, None, range(start, start + lanes))


@lru_cache(256)
def _runs(region: Region, by_rows: bool) -> tuple[tuple[Read, int], ...]:
    """The contiguous runs of memory in ``region``, as reads along ``_LANE``, and their lengths.

    ``by_rows``: no run extends over the last dimension, as needed for checks of each access.
    """
    extents = [_number(extent) for _, extent in region.ranges]
    inner = max(len(extents) - 1, 0)
    while inner > 0 and not by_rows and region.buffer.shape[inner] == region.ranges[inner][1]:
        inner -= 1
    length = prod(extents[inner:])
    starts = [start for start, _ in region.ranges]
    runs: list[tuple[Read, int]] = []
    for place in product(*map(range, extents[:inner])):
        at = [start + offset for start, offset in zip(starts, place, strict=False)] + starts[inner:]
        if length > 1:
            at[-1] = at[-1] + _LANE
        runs.append((Read(region.buffer, tuple(at)), length))
    return tuple(runs)


def _elements(region: Region) -> int:
    return prod(_number(extent) for _, extent in region.ranges)


def _number(extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise InternalError(f"a tile of an intrinsic has the extent {extent}")
    return int(extent.value)
