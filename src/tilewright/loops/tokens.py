"""Splits the text of loop programs into logical lines of tokens, and parses expressions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import isnan
from typing import NoReturn

from tilewright.base import dtypes
from tilewright.base.errors import BadProgram, ParseError, UnsupportedDType
from tilewright.base.exact import from_float_bits
from tilewright.base.names import RESERVED, unquoted
from tilewright.loops.ir import Buffer
from tilewright.symbolic.check import CHECK, CHECK_FROM_END, Check, Origin
from tilewright.symbolic.expr import (
    FALSE,
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    Extent,
    Read,
    Select,
    Unary,
    Var,
    binary,
    const,
    select,
    unary,
)
from tilewright.symbolic.operations import PRECEDENCE, BinaryOp, UnaryOp
from tilewright.symbolic.sharing import size_of

_TOKEN = re.compile(
    r"""(?P<space>[ ]+|\#.*)
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_][\w.]*)
      | (?P<quoted>`(?:[^`"\\]|\\.)*`)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<operator>\+:|->|//|<<|>>|<=|>=|==|!=|[-+*/%<>&|^()\[\],:=])""",
    re.VERBOSE,
)

DEEPEST = 160
"""Maximum nesting of expressions: larger than that of written ones, as schedules add to indices."""

_INFIX = {op.value: op for op in PRECEDENCE}
_UNARY = {op.value: op for op in UnaryOp}
_BINARY = {op.value: op for op in BinaryOp if op not in PRECEDENCE}
_DTYPES = {str(dtype): dtype for dtype in dtypes.ALL}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text and its position; lines and columns count from 1."""

    text: str
    kind: str
    line: int
    column: int


@dataclass(slots=True)
class Line:
    """A logical line (brackets may go over several lines), read from left to right."""

    indent: int
    tokens: list[Token]
    position: int = 0
    extents: Mapping[str, Extent] = field(default_factory=dict[str, Extent])
    """The names of run-time extents that the program declares, whatever the names of loops."""
    depth: int = 0
    """Nesting depth of the next token."""

    @property
    def text(self) -> str:
        """The next token's text; empty at the end of the line."""
        return self.tokens[self.position].text if self.position < len(self.tokens) else ""

    @property
    def kind(self) -> str:
        """The next token's kind."""
        return self.tokens[self.position].kind if self.position < len(self.tokens) else "end"

    def fail(self, message: str) -> NoReturn:
        """Raise ``ParseError`` at the next token."""
        token = self.tokens[min(self.position, len(self.tokens) - 1)]
        shift = 0 if self.position < len(self.tokens) else len(token.text)
        raise ParseError(f"line {token.line}, column {token.column + shift}: {message}")

    def take(self) -> str:
        """The next token's text, which is consumed."""
        text = self.text
        self.position += 1
        return text

    def accept(self, text: str) -> bool:
        """Consume the next token if it is ``text``."""
        if self.text != text or self.kind == "string":
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> None:
        """Consume ``text``, or fail."""
        if not self.accept(text):
            self.fail(f"expected `{text}`, found `{self.text or 'end of line'}`")

    def name(self, what: str) -> str:
        """Consume a name, or fail."""
        if self.kind != "name" or self.text in RESERVED:
            self.fail(f"expected {what}, found `{self.text or 'end of line'}`")
        return self.take()

    def extent(self) -> Extent:
        """Consume the name of a run-time extent, or fail."""
        if self.kind != "quoted":
            return Extent(self.name("a run-time extent"))
        try:
            name = unquoted(self.text)
        except ValueError as error:
            self.fail(f"{error}: one in back quotes is written as a JSON string, and only if it is no word")
        self.position += 1
        return Extent(name)

    def end(self) -> None:
        """Fail unless everything is consumed."""
        if self.kind != "end":
            self.fail(f"unexpected `{self.text}`")


def logical_lines(text: str) -> list[Line]:
    """``text`` as non-empty lines of tokens. Raises ``ParseError`` for a character that starts no token."""
    lines: list[Line] = []
    depth = 0
    for number, source in enumerate(text.splitlines(), start=1):
        tokens = _tokens(source, number)
        if not tokens:
            continue
        if depth:
            lines[-1].tokens.extend(tokens)
        else:
            lines.append(Line(len(source) - len(source.lstrip(" ")), tokens))
        depth += sum((t.text in ("(", "[")) - (t.text in (")", "]")) for t in tokens if t.kind == "operator")
    return lines


def _tokens(source: str, number: int) -> list[Token]:
    found: list[Token] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None or match.lastgroup is None:
            raise ParseError(f"line {number}, column {position + 1}: unexpected character {source[position]!r}")
        if match.lastgroup != "space":
            found.append(Token(match.group(), match.lastgroup, number, position + 1))
        position = match.end()
    return found


def parse_expr(line: Line, buffers: Mapping[str, Buffer], precedence: int = 0) -> Expr:
    """The expression that starts at the next token; stops at operators that bind weaker than ``precedence``."""
    line.depth += 1
    if line.depth > DEEPEST:
        line.fail(f"more than {DEEPEST} expressions are inside each other")
    left = _parsed(line, buffers, precedence)
    line.depth -= 1
    if not line.depth and size_of(left).depth > DEEPEST:
        line.fail(f"more than {DEEPEST} operations are inside each other")
    return left


def _parsed(line: Line, buffers: Mapping[str, Buffer], precedence: int) -> Expr:
    left = _operand(line, buffers)
    while line.kind == "operator" and (op := _INFIX.get(line.text)) is not None and PRECEDENCE[op] >= precedence:
        start = line.position
        line.take()
        right = parse_expr(line, buffers, PRECEDENCE[op] + 1)
        left = _checked_binary(line, start, op, left, right)
    return left


def parse_list(line: Line, buffers: Mapping[str, Buffer], closing: str) -> tuple[Expr, ...]:
    """Expressions separated by commas, up to and with ``closing``."""
    found: list[Expr] = []
    while not line.accept(closing):
        if found:
            line.expect(",")
        found.append(parse_expr(line, buffers))
    return tuple(found)


def _checked_binary(line: Line, start: int, op: BinaryOp, a: Expr, b: Expr) -> Expr:
    """The node itself, without folding: the text is read back as it was written."""
    try:
        binary(op, a, b)
    except BadProgram as error:
        line.position = start
        line.fail(str(error))
    return Binary(op, a, b)


@lru_cache(maxsize=4096)
def variable(name: str) -> Var:
    """The loop or axis of a name: one object each, which makes comparisons fast."""
    return Var(name)


def _operand(line: Line, buffers: Mapping[str, Buffer]) -> Expr:
    start = line.position
    if line.accept("("):
        inner = parse_expr(line, buffers)
        line.expect(")")
        return inner
    if line.kind == "number" or line.text == "-":
        return _integer(line)
    if line.text in ("True", "False"):
        return TRUE if line.take() == "True" else FALSE
    if line.kind == "quoted":
        return _extent(line)
    if line.text == "select":
        line.take()
    word = "select" if line.position > start else line.name("an expression")
    if line.accept("["):
        return _read(line, start, word, buffers)
    if line.accept("("):
        return _call(line, start, word, buffers)
    known = line.extents.get(word)
    return variable(word) if known is None else known


def _extent(line: Line) -> Extent:
    start = line.position
    found = line.extent()
    if found.name not in line.extents:
        line.position = start
        line.fail(f"the program declares no run-time extent {found.token}")
    return line.extents[found.name]


def _integer(line: Line) -> Expr:
    sign = -1 if line.accept("-") else 1
    if not line.text.isdecimal():
        line.fail("expected an integer; floats are written with their dtype: f32(0.5), and -x is neg(x)")
    value = sign * int(line.text)
    if not dtypes.index.min <= value <= dtypes.index.max:
        line.fail(f"{value} does not fit in {dtypes.index}")
    line.take()
    return const(value)


def _read(line: Line, start: int, name: str, buffers: Mapping[str, Buffer]) -> Expr:
    indices = parse_list(line, buffers, "]")
    return Read(known_buffer(line, start, name, buffers, len(indices)), indices)


def known_buffer(line: Line, start: int, name: str, buffers: Mapping[str, Buffer], rank: int | None = None) -> Buffer:
    """The buffer ``name``, which occurs at token ``start``; fails if there is none of that rank."""
    buffer = buffers.get(name)
    if buffer is None:
        line.position = start
        line.fail(f"there is no buffer {name} here; known: {', '.join(buffers) or 'none'}")
    if rank is not None and rank != len(buffer.shape):
        line.position = start
        line.fail(f"{name} has {len(buffer.shape)} dimensions, but {rank} indices")
    return buffer


def _call(line: Line, start: int, name: str, buffers: Mapping[str, Buffer]) -> Expr:
    if name in _DTYPES:
        literal = _literal(line, name)
        if literal is not None:
            return literal
    arguments = parse_list(line, buffers, ")")
    try:
        return _applied(name, arguments)
    except BadProgram as error:
        line.position = start
        line.fail(str(error))


def _applied(name: str, arguments: tuple[Expr, ...]) -> Expr:
    """The node of a function; the builders check it, but may fold, so the node is built directly."""
    match arguments:
        case (a,) if name in _DTYPES:
            return Cast(a, _DTYPES[name])
        case (a,) if name in _UNARY:
            unary(_UNARY[name], a)
            return Unary(_UNARY[name], a)
        case (a, b) if name in _BINARY:
            binary(_BINARY[name], a, b)
            return Binary(_BINARY[name], a, b)
        case (condition, a, b) if name == "select":
            select(condition, a, b)
            return Select(condition, a, b)
        case (index, extent, Var(origin)) if name in (CHECK, CHECK_FROM_END) and (known := Origin.parse(origin)):
            if index.dtype != dtypes.index or extent.dtype != dtypes.index:
                raise BadProgram(f"{name} takes an {dtypes.index} and an extent, not {index.dtype} and {extent.dtype}")
            return Check(index, extent, known, name == CHECK_FROM_END)
        case _:
            raise BadProgram(f"there is no function {name} of {len(arguments)} arguments")


def _literal(line: Line, name: str) -> Const | None:
    """``0.5)`` after ``f32(``: a literal of that dtype. None, with nothing consumed, for other tokens."""
    start, dtype = line.position, _DTYPES[name]
    if dtype.is_float and line.accept("nan") and line.accept(":"):
        bits = int(line.take()) if line.text.isdecimal() else -1
        if line.accept(")") and 0 <= bits < 1 << 64 and isnan(from_float_bits(bits)):
            return Const(from_float_bits(bits), dtype)
        line.position = start
        line.fail("expected the bits of a NaN of 64 bits after `nan:`, as a decimal number")
    line.position = start
    negative = line.accept("-")
    text, is_number = line.text, line.kind == "number" or line.text in ("inf", "nan")
    line.position += 1
    if is_number and line.accept(")"):
        if dtype.is_float and not text.isdecimal():
            return Const(-float(text) if negative else float(text), dtype)
        if dtype.is_int and text.isdecimal() and dtype != dtypes.index:
            value = -int(text) if negative else int(text)
            if dtype.min <= value <= dtype.max:
                return Const(value, dtype)
            line.position = start
            line.fail(f"{value} does not fit in {dtype}")
    line.position = start
    return None


def parse_dtype(line: Line) -> dtypes.DType:
    """A dtype's name."""
    try:
        found = dtypes.parse(line.text)
    except UnsupportedDType as error:
        line.fail(str(error))
    line.take()
    return found
