"""Implementations of intrinsics: checks the user's LLVM IR against its declaration, and parses it for inlining.

An implementation is text of LLVM IR that defines one function, on registers or on memory (``loops.program.Intrinsic``).
Each error is the user's, a ``BadProgram`` that names the intrinsic.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilewright.backend.cpu.llvm import Function, Instruction, read_function
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, type_name
from tilewright.base.dtypes import Kind
from tilewright.base.errors import BadProgram
from tilewright.base.names import nearest, shown
from tilewright.base.processors import FEATURES
from tilewright.loops.ir import Block, Buffer
from tilewright.loops.program import Intrinsic
from tilewright.loops.visit import own_exprs, walk
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.symbolic.expr import Const, Expr
from tilewright.symbolic.traversal import reads_in

_NAME = re.compile(r'(%(?:"[^"]*"|[-\w$.]+))')
_ATTRIBUTES = re.compile(r" #\d+$")

_PURE = frozenset(
    (
        *("add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "select", "freeze"),
        *("fneg", "fadd", "fsub", "fmul", "fdiv", "fcmp"),
        *("bitcast", "trunc", "zext", "sext", "fptrunc", "fpext", "fptosi", "fptoui", "sitofp", "uitofp"),
        *("insertelement", "extractelement", "shufflevector"),
    )
)
"""Instructions allowed in registers: they neither trap nor access memory, so that they may be hoisted."""


@dataclass(frozen=True, slots=True)
class RegisterCode:
    """A function on registers: the names of its parameters, its lines, and the name that it returns."""

    parameters: tuple[str, ...]
    types: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    """The name that a line defines, and its text: alternately other text and names."""
    result: str
    result_type: str

    def inlined(self, text: FunctionText, operands: Sequence[Value]) -> tuple[str, int]:
        """Emit the lines on ``operands``, where these are available; returns the result, and its scope."""
        known: dict[str, tuple[str, int]] = {}
        for name, wanted, operand in zip(self.parameters, self.types, operands, strict=True):
            known[name] = _as_type(text, operand.text, operand.type, wanted, operand.depth), operand.depth
        for name, pieces in self.lines:
            depth = max((known[used][1] for used in pieces[1::2]), default=0)
            line = "".join(known[piece][0] if place % 2 else piece for place, piece in enumerate(pieces))
            known[name] = text.pure(line, depth), depth
        result, depth = known.get(self.result, (self.result, 0))
        return _as_type(text, result, self.result_type, self.result_type.replace("bfloat", "i16"), depth), depth


def _as_type(text: FunctionText, value: str, given: str, wanted: str, depth: int) -> str:
    """bf16 values are integers (``values``), but functions take ``bfloat``."""
    return value if given == wanted else text.pure(f"bitcast {given} {value} to {wanted}", depth)


def check_implementations(intrinsic: TensorIntrinsic) -> None:
    """Raises ``BadProgram`` unless LLVM accepts the implementations of all forms, with their descriptions' types."""
    for form in (intrinsic.compute, intrinsic.reset, intrinsic.update):
        if form is not None and form.implementation:
            _check_features(form)
            register_code(form)


def _check_features(form: Intrinsic) -> None:
    known = frozenset(name for features in FEATURES.values() for name in features)
    for name in form.features:
        if name not in known:
            near = " or ".join(nearest(name, sorted(known)))
            remedy = f"did you mean {near}?" if near else "give one of LLVM's names"
            raise BadProgram(f"{form.name}: there is no processor feature {shown(name)}; {remedy}")


@lru_cache(64)
def register_code(intrinsic: Intrinsic) -> RegisterCode | None:
    """The implementation of ``intrinsic`` on registers; None for one on memory. Raises ``BadProgram``."""
    function = read_function(intrinsic.implementation, intrinsic.name)
    parameters = _operands(intrinsic)
    if function.type.startswith("void "):
        extents = ["i64"] * len(intrinsic.description.dims)
        operands = ", ".join([*map(_in_memory, intrinsic.description.params), *extents])
        _require_type(intrinsic, function, f"void ({operands})")
        return None
    results = intrinsic.description.results
    if len(results) != 1:
        raise BadProgram(f"{intrinsic.name} has {len(results)} results; an intrinsic on registers has one")
    types = tuple(map(_in_registers, parameters))
    _require_type(intrinsic, function, f"{_in_registers(results[0])} ({', '.join(types)})")
    if len(function.blocks) != 1:
        raise BadProgram(f"{intrinsic.name}: its implementation branches; one on registers is straight-line code")
    *lines, last = function.blocks[0]
    taken = tuple(_line(intrinsic.name, line) for line in lines)
    result = last.text.removeprefix(f"ret {_in_registers(results[0])} ")
    return RegisterCode(function.parameters, types, taken, result, _in_registers(results[0]))


def _operands(intrinsic: Intrinsic) -> tuple[Buffer, ...]:
    """The parameters of a function on registers: results only if their old elements are read."""
    program = intrinsic.description
    reads_old = any(
        isinstance(stmt, Block) and stmt.init is None and set(program.results) & _read(stmt)
        for stmt in walk(program.body)
    )
    return program.params if reads_old else program.inputs


def _read(block: Block) -> set[object]:
    return {read.source for stmt in walk(block.body) for expr in own_exprs(stmt) for read in reads_in(expr)}


def _require_type(intrinsic: Intrinsic, function: Function, wanted: str) -> None:
    if function.type != wanted:
        raise BadProgram(f"{intrinsic.name}: its implementation is of type `{function.type}`; declared is `{wanted}`")


def _in_registers(parameter: Buffer) -> str:
    name = type_name(parameter.dtype, prod(map(_number, parameter.shape)))
    return name.replace("i16", "bfloat") if parameter.dtype.kind is Kind.BFLOAT else name


def _in_memory(parameter: Buffer) -> str:
    return ", ".join(("ptr", *["i64"] * (len(parameter.shape) - 1)))


def _number(extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise BadProgram(f"an intrinsic works on tiles of constant shape, not {extent}")
    return int(extent.value)


def _line(intrinsic: str, instruction: Instruction) -> tuple[str, tuple[str, ...]]:
    is_pure = instruction.opcode in _PURE or (instruction.opcode == "call" and "memory(none)" in instruction.callee)
    if not is_pure:
        raise BadProgram(
            f"{intrinsic}: `{instruction.text}` is not for registers; there are {', '.join(sorted(_PURE))}, "
            "and calls of LLVM's intrinsics that touch no memory"
        )
    name, _, text = _ATTRIBUTES.sub("", instruction.text).partition(" = ")
    return name, tuple(_NAME.split(text))
