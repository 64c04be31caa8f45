"""Reads the text of loop programs (``printer.py`` has the notation) back into an equal program.

Comments go from ``#`` to the end of the line; a line goes on while a bracket is open. The result is well-formed; the
verifier checks whether it is legal.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from tilewright.base.errors import ParseError
from tilewright.loops.ir import (
    NOTHING,
    Alloc,
    Annotations,
    Barrier,
    Block,
    Buffer,
    Call,
    Callee,
    If,
    Loop,
    Range,
    Region,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.memory import GLOBAL, MEMORIES, Memory
from tilewright.loops.printer import LOOP_WORDS
from tilewright.loops.program import Dim, Intrinsic, Program
from tilewright.loops.tokens import Line, known_buffer, logical_lines, parse_dtype, parse_expr, parse_list, variable
from tilewright.loops.visit import seq, walk
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, TRUE, ZERO, Expr

MOST_NESTED = 128
"""Maximum nesting of suites: passes take up to four Python frames per level."""

_LOOP_KINDS = {word: kind for kind, word in LOOP_WORDS.items()}
_CALLEES = {kind.value: kind for kind in Callee}


def parse_program(text: str, intrinsics: Iterable[Intrinsic] = (), memories: Iterable[Memory] = ()) -> Program:
    """The program written in ``text``, with those of ``intrinsics`` that it calls.

    ``memories``: known memories besides ``MEMORIES``.

    Raises ``ParseError`` with line and column.
    """
    lines = logical_lines(text)
    if not lines:
        raise ParseError("line 1, column 1: expected `program`, found nothing")
    return _Parser(lines, memories).program(intrinsics)


class _Parser:
    def __init__(self, lines: list[Line], memories: Iterable[Memory]) -> None:
        self._lines = lines
        self._memories = MEMORIES | {memory.name: memory for memory in memories}
        self._next = 0
        self._depth = 0

    # Lines

    def _peek(self, indent: int) -> Line | None:
        """The next line of the suite at ``indent``, if there is one."""
        if self._next == len(self._lines):
            return None
        line = self._lines[self._next]
        if line.indent > indent:
            line.fail(f"unexpected indentation: {line.indent} spaces in a suite of {indent}")
        return line if line.indent == indent else None

    def _take(self) -> Line:
        self._next += 1
        return self._lines[self._next - 1]

    def _indented(self, header: Line) -> int:
        """The indentation of the suite under ``header``, whose colon was read."""
        header.end()
        if self._next == len(self._lines) or self._lines[self._next].indent <= header.indent:
            header.fail("expected an indented line after this one")
        return self._lines[self._next].indent

    # The program

    def program(self, intrinsics: Iterable[Intrinsic]) -> Program:
        line = self._take()
        line.expect("program")
        name = line.name("the program's name")
        dims = self._dims(line) if line.accept("[") else ()
        line.expect("(")
        inputs = self._params(line)
        line.expect("->")
        line.expect("(")
        outputs = self._params(line)
        line.expect(":")
        params = (*inputs, *outputs)
        indent = self._indented(line)
        annotations = self._annotations(indent)
        body = self._suite(indent, {param.name: param for param in params})
        if self._next < len(self._lines):
            self._lines[self._next].fail("unexpected indentation: the program ended before this line")
        called = {node.callee for node in walk(body) if isinstance(node, Call) and node.kind is Callee.INTRINSIC}
        used = tuple(intrinsic for intrinsic in intrinsics if intrinsic.name in called)
        return Program(name, params, body, dims, len(outputs), used, annotations)

    def _dims(self, line: Line) -> tuple[Dim, ...]:
        found: list[Dim] = []
        while not line.accept("]"):
            if found:
                line.expect(",")
            var = line.extent()
            found.append(Dim(var, self._number(line) if line.accept("<=") else None))
        extents = {dim.var.name: dim.var for dim in found}
        for each in self._lines:
            each.extents = extents
        return tuple(found)

    def _number(self, line: Line) -> int:
        if not line.text.isdecimal():
            line.fail(f"expected a number, found `{line.text}`")
        return int(line.take())

    def _params(self, line: Line) -> tuple[Buffer, ...]:
        found: list[Buffer] = []
        while not line.accept(")"):
            if found:
                line.expect(",")
            found.append(self._declaration(line))
        return tuple(found)

    def _declaration(self, line: Line) -> Buffer:
        name = line.name("a buffer's name")
        line.expect(":")
        dtype = parse_dtype(line)
        line.expect("[")
        shape = parse_list(line, {}, "]")
        return Buffer(name, dtype, shape, self._memory(line) if line.accept("in") else GLOBAL)

    def _memory(self, line: Line) -> Memory:
        found = self._memories.get(line.text)
        if found is None:
            line.fail(f"expected a memory ({', '.join(self._memories)}), found `{line.text}`")
        line.take()
        return found

    def _annotations(self, indent: int) -> Annotations:
        line = self._peek(indent)
        if line is None or not line.accept("annotate"):
            return ()
        self._take()
        found: list[tuple[str, int | str]] = []
        while not found or line.accept(","):
            key = line.name("an annotation's name")
            line.expect("=")
            if line.kind == "string":
                found.append((key, json.loads(line.take())))
            else:
                sign = -1 if line.accept("-") else 1
                found.append((key, sign * self._number(line)))
        line.end()
        return tuple(found)

    # Statements

    def _suite(self, indent: int, buffers: Mapping[str, Buffer]) -> Stmt:
        self._depth += 1
        known = dict(buffers)
        outside: list[tuple[list[Stmt], Buffer]] = []
        found: list[Stmt] = []
        while (line := self._peek(indent)) is not None:
            self._take()
            if self._depth > MOST_NESTED:
                line.fail(f"more than {MOST_NESTED} statements are inside each other")
            if line.accept("alloc"):
                buffer = self._declaration(line)
                if line.accept(":"):  # for the indented lines
                    found.append(Alloc(buffer, self._suite(self._indented(line), {**known, buffer.name: buffer})))
                    continue
                line.end()  # for the rest of the suite
                outside.append((found, buffer))
                found, known[buffer.name] = [], buffer
            else:
                found.append(self._statement(line, known))
        self._depth -= 1
        result = seq(*found)
        for before, buffer in reversed(outside):
            result = seq(*before, Alloc(buffer, result))
        return result

    def _statement(self, line: Line, buffers: Mapping[str, Buffer]) -> Stmt:
        known: dict[str, Callable[[Line, Mapping[str, Buffer]], Stmt]] = {
            "for": self._loop,
            "if": self._if,
            "block": self._block,
            "intrinsic": self._call,
            "kernel": self._call,
        }
        if line.text in known:
            return known[line.text](line, buffers)
        if line.accept("barrier"):
            line.end()
            return Barrier()
        if line.accept("pass"):
            line.end()
            return NOTHING
        return self._stores(line, buffers)

    def _loop(self, line: Line, buffers: Mapping[str, Buffer]) -> Stmt:
        line.expect("for")
        var = variable(line.name("a loop variable"))
        line.expect("in")
        kind = _LOOP_KINDS.get(line.text)
        if kind is None:
            line.fail(f"expected a kind of loop ({', '.join(_LOOP_KINDS)}), found `{line.text}`")
        line.take()
        line.expect("(")
        extent = parse_expr(line, buffers)
        line.expect(")")
        line.expect(":")
        return Loop(var, extent, self._suite(self._indented(line), buffers), kind)

    def _if(self, line: Line, buffers: Mapping[str, Buffer]) -> Stmt:
        line.expect("if")
        condition = parse_expr(line, buffers)
        line.expect(":")
        then = self._suite(self._indented(line), buffers)
        other = self._peek(line.indent)
        if other is None or not other.accept("else"):
            return If(condition, then)
        self._take()
        other.expect(":")
        return If(condition, then, self._suite(self._indented(other), buffers))

    def _stores(self, line: Line, buffers: Mapping[str, Buffer]) -> Stmt:
        targets: list[tuple[Buffer, tuple[Expr, ...]]] = []
        while not targets or line.accept(","):
            start = line.position
            name = line.name("a statement")
            line.expect("[")
            indices = parse_list(line, buffers, "]")
            targets.append((known_buffer(line, start, name, buffers, len(indices)), indices))
        line.expect("=")
        values: list[Expr] = []
        while not values or line.accept(","):
            values.append(parse_expr(line, buffers))
        line.end()
        if len(values) != len(targets):
            line.fail(f"{len(targets)} elements are assigned {len(values)} values")
        stores = tuple(Store(buffer, at, value) for (buffer, at), value in zip(targets, values, strict=True))
        return stores[0] if len(stores) == 1 else Stores(stores)

    def _call(self, line: Line, buffers: Mapping[str, Buffer]) -> Stmt:
        kind = _CALLEES[line.take()]
        callee = line.name("the name of what is called")
        line.expect("(")
        args: list[Region] = []
        first_output: int | None = None
        while not line.accept(")"):
            if first_output is None and line.accept("->"):
                first_output = len(args)
                continue
            if args and len(args) != first_output:
                line.expect(",")
            args.append(self._region(line, buffers))
        line.end()
        return Call(kind, callee, tuple(args), 1 if first_output is None else len(args) - first_output)

    # Blocks

    def _block(self, line: Line, buffers: Mapping[str, Buffer]) -> Stmt:
        line.expect("block")
        name = line.name("the block's name")
        line.expect("(")
        axes: list[IterVar] = []
        bindings: list[Expr] = []
        while not line.accept(")"):
            if axes:
                line.expect(",")
            var = variable(line.name("an axis"))
            line.expect("=")
            bindings.append(parse_expr(line, buffers))
            line.expect(":")
            kind = self._iter_kind(line)
            axes.append(IterVar(var, parse_expr(line, buffers), kind))
        predicate = parse_expr(line, buffers) if line.accept("where") else TRUE
        line.expect(":")
        indent = self._indented(line)
        reads, writes = self._regions("reads", indent, buffers), self._regions("writes", indent, buffers)
        annotations = self._annotations(indent)
        init = self._init(indent, buffers)
        body = self._suite(indent, buffers)
        return Block(name, tuple(axes), tuple(bindings), reads, writes, body, init, predicate, annotations)

    def _iter_kind(self, line: Line) -> IterKind:
        for kind in IterKind:
            if line.accept(kind.value):
                return kind
        line.fail(f"expected a kind of axis ({', '.join(kind.value for kind in IterKind)}), found `{line.text}`")

    def _init(self, indent: int, buffers: Mapping[str, Buffer]) -> Stmt | None:
        line = self._peek(indent)
        if line is None or not line.accept("init"):
            return None
        self._take()
        line.expect(":")
        return self._suite(self._indented(line), buffers)

    def _regions(self, word: str, indent: int, buffers: Mapping[str, Buffer]) -> tuple[Region, ...]:
        line = self._peek(indent)
        if line is None or not line.accept(word):
            return ()
        self._take()
        found = [self._region(line, buffers)]
        while line.accept(","):
            found.append(self._region(line, buffers))
        line.end()
        return tuple(found)

    def _region(self, line: Line, buffers: Mapping[str, Buffer]) -> Region:
        start = line.position
        name = line.name("a buffer")
        buffer = known_buffer(line, start, name, buffers)
        if not line.accept("["):
            return Region(buffer, tuple((ZERO, extent) for extent in buffer.shape))
        ranges: list[Range] = []
        while not line.accept("]"):
            if ranges:
                line.expect(",")
            size = buffer.shape[len(ranges)] if len(ranges) < len(buffer.shape) else ONE
            ranges.append(self._range(line, buffers, size))
        known_buffer(line, start, name, buffers, len(ranges))
        return Region(buffer, tuple(ranges))

    def _range(self, line: Line, buffers: Mapping[str, Buffer], size: Expr) -> Range:
        if line.accept(":"):
            return ZERO, size
        start = parse_expr(line, buffers)
        return (start, parse_expr(line, buffers)) if line.accept("+:") else (start, ONE)
