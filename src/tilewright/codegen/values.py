"""Values of LLVM IR, their types, and the text of one function under construction.

``FunctionText`` is where loop-invariant code motion and common-subexpression elimination happen, by construction: a
pure instruction is written once, into the outermost open scope in which its operands exist. So kernels need no
middle-end passes beyond the promotion of allocas (``docs/architecture.md``, "Code generation").
"""

import struct
from dataclasses import dataclass, field
from functools import cache, lru_cache

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, Kind
from tilewright.symbolic.expr import Scalar
from tilewright.symbolic.operations import wrap

_TYPE_NAMES: dict[DType, str] = {
    dtypes.f16: "half",
    dtypes.bf16: "i16",  # computed in f32, moved as bits: no backend then needs bfloat instructions
    dtypes.f32: "float",
    dtypes.f64: "double",
    dtypes.boolean: "i1",
}


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its text, dtype, number of lanes (1: a scalar, the same for all lanes) and the scope it exists in."""

    text: str
    dtype: DType
    lanes: int = 1
    depth: int = 0
    constants: tuple[int, ...] | None = None
    """The integers in the lanes (of a bool: 0 or 1), where they are known now."""

    @property
    def type(self) -> str:
        return type_name(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def literal(self) -> int | None:
        """The value of a scalar integer literal, else None."""
        return self.constants[0] if self.constants is not None and self.lanes == 1 else None


def scalar_type(dtype: DType) -> str:
    """LLVM's name of a dtype in a register."""
    known = _TYPE_NAMES.get(dtype)
    return known if known else f"i{dtype.bits}"


@cache
def memory_type(dtype: DType) -> str:
    """LLVM's name of a dtype in memory: a bool is one byte."""
    return "i8" if dtype.is_bool else scalar_type(dtype)


@cache
def type_name(dtype: DType, lanes: int) -> str:
    """LLVM's name of ``lanes`` values in a register."""
    name = scalar_type(dtype)
    return name if lanes == 1 else f"<{lanes} x {name}>"


def float_bits(value: float, dtype: DType) -> str:
    """LLVM's spelling of a float literal: the bits of the nearest value of ``dtype``, as a double (bf16: its bits)."""
    if dtype.kind is Kind.BFLOAT:
        return str(int(dtype.numpy.type(value).view("uint16")))
    if dtype.bits == 16:
        return "0xH" + struct.pack(">e", dtype.numpy.type(value)).hex().upper()
    rounded = float(dtype.numpy.type(value))
    return "0x" + struct.pack(">d", rounded).hex().upper()


def literal(value: Scalar, dtype: DType, lanes: int = 1) -> Value:
    """``value`` as an operand, in all lanes."""
    if not dtype.is_float:
        return integers((int(value),) * lanes, dtype)
    text = float_bits(float(value), dtype)
    return Value(text if lanes == 1 else f"splat ({scalar_type(dtype)} {text})", dtype, lanes)


def integers(values: tuple[int, ...], dtype: DType) -> Value:
    """Known integers (of bool: 0 or 1) as lanes."""
    wrapped = values if dtype.is_bool else tuple(wrap(value, dtype) for value in values)
    element = scalar_type(dtype)
    texts = ["true" if v else "false" for v in wrapped] if dtype.is_bool else [str(v) for v in wrapped]
    if len(wrapped) == 1:
        text = texts[0]
    elif len(set(wrapped)) == 1:
        text = f"splat ({element} {texts[0]})"
    else:
        text = f"<{', '.join(f'{element} {t}' for t in texts)}>"
    return Value(text, dtype, len(wrapped), 0, wrapped)


@lru_cache(maxsize=4096)
def integer(value: int) -> Value:
    """An index literal."""
    return integers((value,), dtypes.index)


PointerKey = tuple[str, DType, tuple[tuple[str, int], ...]]
"""The start of a buffer, its dtype, and what is added: texts, each with a factor."""


@dataclass(slots=True)
class _Scope:
    """A loop body, a branch, or the whole function: what was written into it so far."""

    label: str
    number: int
    """No other scope of the function has it."""
    lines: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    loads: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    pointers: dict[PointerKey, tuple[Value, int]] = field(default_factory=dict[PointerKey, tuple[Value, int]])


class FunctionText:
    """The body of one function. Scopes nest; a value made in a scope is visible in it and in those within it."""

    def __init__(self, declarations: dict[str, None]) -> None:
        self._declarations = declarations
        self._scopes = [_Scope("entry", 0)]
        self._allocas: list[str] = []
        self._count = 0

    @property
    def depth(self) -> int:
        """How many scopes are open around the next instruction."""
        return len(self._scopes) - 1

    @property
    def scope(self) -> int:
        """The number of the innermost open scope: no other scope of the function has it."""
        return self._scopes[-1].number

    def fresh(self, stem: str = "t") -> str:
        """A new name, without the ``%``."""
        self._count += 1
        return f"{stem}{self._count}"

    def declare(self, text: str) -> None:
        """Ask for a module-level declaration, once."""
        self._declarations[text] = None

    def pure(self, text: str, depth: int) -> str:
        """The name of an instruction without effects, written where its operands (of ``depth``) exist."""
        scope = self._scopes[depth]
        known = scope.known.get(text)
        if known is None:
            self._count += 1
            known = scope.known[text] = f"%t{self._count}"
            scope.lines.append(f"  {known} = {text}")
        return known

    def emit(self, text: str) -> str:
        """An instruction with a result, here and now."""
        self._count += 1
        name = f"%t{self._count}"
        self._scopes[-1].lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        """An instruction without a result, here and now."""
        self._scopes[-1].lines.append(f"  {text}")

    def hint(self, text: str) -> None:
        """An instruction that changes nothing, here unless it is here already."""
        if text not in self._scopes[-1].known:
            self._scopes[-1].known[text] = ""
            self.effect(text)

    def first(self, what: str) -> bool:
        """Whether ``what`` (not the text of an instruction) was not here before: on every way to this place."""
        if any(what in scope.known for scope in self._scopes):
            return False
        self._scopes[-1].known[what] = ""
        return True

    def pointers(self, depth: int) -> dict[PointerKey, tuple[Value, int]]:
        """Pointers, and how they are aligned, that were made in the scope of ``depth``: forgotten where it ends."""
        return self._scopes[depth].pointers

    def alloca(self, text: str) -> str:
        """Stack memory, in the entry block: LLVM promotes it to registers nowhere else."""
        name = f"%{self.fresh('stack')}"
        self._allocas.append(f"  {name} = alloca {text}")
        return name

    def load(self, buffer: str, text: str, constant: bool) -> str:
        """An unconditional load; shared with an earlier one if ``buffer`` was not stored to since."""
        scopes = reversed(self._scopes) if constant else (self._scopes[-1],)
        for scope in scopes:
            known = scope.loads.get(buffer, {}).get(text)
            if known is not None:
                return known
        name = self.emit(text)
        self._scopes[-1].loads.setdefault(buffer, {})[text] = name
        return name

    def forget(self, buffer: str | None) -> None:
        """``buffer`` (None: any) was stored to: loads before are not loads after."""
        for scope in self._scopes:
            if buffer is None:
                scope.loads.clear()
            else:
                scope.loads.pop(buffer, None)

    def open_loop(self, start: str = "0") -> Value:
        """Begin a loop that runs at least once; returns its counter."""
        name = self.fresh("i")
        outer = self._scopes[-1]
        self._scopes.append(_Scope(f"{name}.loop", self._count))
        # The latch's label is known at the end: `close_loop` completes this line.
        self._scopes[-1].lines.append(f"  %{name} = phi i64 [ {start}, %{outer.label} ], ")
        return Value(f"%{name}", dtypes.index, 1, self.depth)

    def close_loop(self, counter: Value, extent: Value, guard: bool) -> None:
        """End the loop after ``extent`` iterations; ``guard`` if that may be zero. ``extent`` exists outside."""
        inner = self._scopes.pop()
        name = counter.text[1:]
        inner.lines[0] += f"[ %{name}.next, %{inner.label} ]"
        inner.lines.append(f"  %{name}.next = add nuw nsw i64 {counter.text}, 1")
        inner.lines.append(f"  %{name}.more = icmp slt i64 %{name}.next, {extent.text}")
        inner.lines.append(f"  br i1 %{name}.more, label %{name}.loop, label %{name}.exit")
        outer = self._scopes[-1]
        if guard:
            outer.lines.append(f"  %{name}.any = icmp sgt i64 {extent.text}, 0")
            outer.lines.append(f"  br i1 %{name}.any, label %{name}.loop, label %{name}.exit")
        else:
            outer.lines.append(f"  br label %{name}.loop")
        outer.lines.append(f"{name}.loop:")
        outer.lines.extend(inner.lines)
        outer.lines.append(f"{name}.exit:")
        outer.label = f"{name}.exit"

    def open_branch(self) -> str:
        """Begin one side of a branch; returns its label."""
        name = self.fresh("side")
        self._scopes.append(_Scope(name, self._count))
        return name

    def close_branch(self) -> tuple[str, list[str]]:
        """End one side: the label to enter it by, and its lines without the final jump."""
        inner = self._scopes.pop()
        return inner.label, inner.lines

    def branch(self, condition: Value, sides: list[tuple[str, list[str]]]) -> None:
        """``sides[0]`` (entry label, lines) where ``condition`` holds, else ``sides[1]`` if given."""
        outer = self._scopes[-1]
        join = self.fresh("join")
        other = sides[1][0] if len(sides) > 1 else join
        outer.lines.append(f"  br i1 {condition.text}, label %{sides[0][0]}, label %{other}")
        for label, lines in sides:
            outer.lines.append(f"{label}:")
            outer.lines.extend(lines)
            outer.lines.append(f"  br label %{join}")
        outer.lines.append(f"{join}:")
        outer.label = join

    def finish(self, signature: str, result: str = "ret void") -> str:
        """The whole function."""
        (scope,) = self._scopes
        return "\n".join([f"{signature} {{", "entry:", *self._allocas, *scope.lines, f"  {result}", "}", ""])
