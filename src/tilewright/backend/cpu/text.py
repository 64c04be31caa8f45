"""The text of one function under construction.

``FunctionText`` does loop-invariant code motion, common-subexpression elimination and store-to-load forwarding by
construction: a pure instruction is emitted once, into the outermost open scope in which its operands exist. So kernels
need no middle-end passes beyond the promotion of allocas (``docs/decisions.md``, "LLVM does little").
"""

from dataclasses import dataclass, field

from tilewright.backend.cpu.registers import Registers
from tilewright.backend.cpu.values import Value
from tilewright.base import dtypes


@dataclass(slots=True)
class _Scope:
    """A loop body, a branch, or the whole function: the lines emitted so far."""

    label: str
    number: int
    """Unique within the function."""
    lines: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    loads: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    registers: Registers = field(default_factory=Registers)


class FunctionText:
    """The body of one function. Scopes nest; a value defined in a scope is visible in it and in nested ones."""

    def __init__(self, declarations: dict[str, None]) -> None:
        self._declarations = declarations
        self._scopes = [_Scope("entry", 0)]
        self._allocas: list[str] = []
        self._count = 0
        self._leaves = False

    @property
    def depth(self) -> int:
        """The number of open scopes at the next instruction."""
        return len(self._scopes) - 1

    @property
    def scope(self) -> int:
        """The unique number of the innermost open scope."""
        return self._scopes[-1].number

    def fresh(self, stem: str = "t") -> str:
        """A new name, without the ``%``."""
        self._count += 1
        return f"{stem}{self._count}"

    def declare(self, text: str) -> None:
        """Add a module-level declaration, once."""
        self._declarations[text] = None

    def pure(self, text: str, depth: int) -> str:
        """The name of an instruction without effects, emitted in the scope of its operands (at ``depth``)."""
        scope = self._scopes[depth]
        known = scope.known.get(text)
        if known is None:
            self._count += 1
            known = scope.known[text] = f"%t{self._count}"
            scope.lines.append(f"  {known} = {text}")
        return known

    def emit(self, text: str) -> str:
        """An instruction with a result, emitted here."""
        self._count += 1
        name = f"%t{self._count}"
        self._scopes[-1].lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        """An instruction without a result, emitted here."""
        self._scopes[-1].lines.append(f"  {text}")

    def hint(self, text: str) -> None:
        """An idempotent instruction, emitted here unless it was already."""
        if text not in self._scopes[-1].known:
            self._scopes[-1].known[text] = ""
            self.effect(text)

    def first(self, what: str) -> bool:
        """Whether ``what`` (a key) is new: it was not recorded on every path to this place."""
        if any(what in scope.known for scope in self._scopes):
            return False
        self._scopes[-1].known[what] = ""
        return True

    def alloca(self, text: str) -> str:
        """Stack memory, in the entry block: LLVM promotes it to registers only there."""
        name = f"%{self.fresh('stack')}"
        self._allocas.append(f"  {name} = alloca {text}")
        return name

    def load(self, buffer: str, text: str, constant: bool, depth: int) -> str:
        """An unconditional load; shared with an earlier one if ``buffer`` was not stored to since. ``depth``: of the
        next instruction, or of a scope around, if it may be there."""
        if depth < self.depth:
            return self.pure(text, depth)
        scopes = reversed(self._scopes) if constant else (self._scopes[-1],)
        for scope in scopes:
            known = scope.loads.get(buffer, {}).get(text)
            if known is not None:
                return known
        name = self.emit(text)
        self._scopes[-1].loads.setdefault(buffer, {})[text] = name
        return name

    @property
    def registers(self) -> Registers:
        """Known contents of private buffers here."""
        return self._scopes[-1].registers

    def store_private(self, buffer: str, offset: int, value: Value, text: str) -> None:
        """Store ``value`` to elements of a private buffer, from ``offset`` on, by ``text``."""
        *outer, inner = self._scopes
        needless = inner.registers.stored(buffer, offset, value, len(inner.lines))
        if needless is not None:
            inner.lines[needless] = ""
        inner.lines.append(f"  {text}")
        for scope in outer:
            scope.registers.forget(buffer)
        self._forget_loads(buffer)

    def forget(self, buffer: str | None) -> None:
        """Invalidate loads of ``buffer`` (None: any), after a store."""
        for scope in self._scopes:
            scope.registers.forget(buffer)
        self._forget_loads(buffer)

    def _forget_loads(self, buffer: str | None) -> None:
        for scope in self._scopes:
            if buffer is None:
                scope.loads.clear()
            else:
                scope.loads.pop(buffer, None)

    def _open(self, label: str) -> _Scope:
        """Open a scope."""
        self._scopes[-1].registers.keep()
        self._scopes.append(_Scope(label, self._count))
        return self._scopes[-1]

    def open_loop(self, start: str = "0") -> Value:
        """Open a loop that runs at least once; returns its counter."""
        name = self.fresh("i")
        outer = self._scopes[-1]
        inner = self._open(f"{name}.loop")
        # The latch's label is known only at the end: `close_loop` completes this line.
        inner.lines.append(f"  %{name} = phi i64 [ {start}, %{outer.label} ], ")
        return Value(f"%{name}", dtypes.index, 1, self.depth)

    def close_loop(self, counter: Value, extent: Value, guard: bool) -> None:
        """Close the loop after ``extent`` iterations; ``guard`` if that may be zero. ``extent`` is defined outside."""
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
        """Open one side of a branch; returns its label."""
        name = self.fresh("side")
        self._open(name)
        return name

    def close_branch(self) -> tuple[str, list[str]]:
        """Close one side: returns its entry label, and its lines without the final jump."""
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

    def leave_if(self, condition: str, question: str) -> None:
        """Where ``condition`` holds, run the instruction ``question``; return from the function if it gives true."""
        scope = self._scopes[-1]
        ask, go, answer = (self.fresh(stem) for stem in ("ask", "go", "yes"))
        scope.lines.append(f"  br i1 {condition}, label %{ask}, label %{go}")
        scope.lines += [f"{ask}:", f"  %{answer} = {question}"]
        scope.lines += [f"  br i1 %{answer}, label %leave, label %{go}", f"{go}:"]
        scope.label = go
        self._leaves = True

    def finish(self, signature: str, *results: str) -> str:
        """The whole function; it ends with ``results``, which are independent of its values, or with ``ret void``."""
        (scope,) = self._scopes
        lines = filter(None, scope.lines)  # dead stores are empty lines
        end = [f"  {line}" for line in results or ("ret void",)]
        if self._leaves:
            end = ["  br label %leave", "leave:", *end]
        return "\n".join([f"{signature} {{", "entry:", *self._allocas, *lines, *end, "}", ""])
