"""The exact text of a loop program: ``parser.py`` reads it back to an equal program.

::

    program matmul[n <= 512](A: f32[n, 64], B: f32[64, 32]) -> (C: f32[n, 32]):
      for i in parallel(n):
        for j in range(32):
          for k in range(64):
            block C(vi = i: spatial n, vj = j: spatial 32, vk = k: reduce 64):
              reads C[vi, vj], A[vi, vk], B[vk, vj]
              writes C[vi, vj]
              init:
                C[vi, vj] = f32(0.0)
              C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

Other lines: ``A[i], B[i] = x, y`` stores at once; ``if c:`` / ``else:``; ``alloc T: f32[8] in local`` for the rest of
the suite, or with a colon for what is indented under it; ``block ... where condition:``; ``annotate key = 1``;
``intrinsic dot(A[i, 0 +: 8], T)`` and ``kernel conv(A, B)`` write their last argument, ``kernel top(A -> V, I)`` the
last two; ``barrier``; ``pass``. A region's range is ``start +: extent``, or ``start`` for one element, or ``:`` for the
whole dimension; a buffer without brackets is taken whole. Run-time extents are declared in the header; names that are
not words are JSON strings in back quotes: ``[`2*n`]``. (``reader.py`` has the form for people, without blocks.)
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.loops.ir import (
    Alloc,
    Annotations,
    Barrier,
    Block,
    Buffer,
    Call,
    If,
    Loop,
    LoopKind,
    Region,
    Seq,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.memory import GLOBAL
from tilewright.loops.visit import seq_items
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import (
    ONE,
    TRUE,
    ZERO,
    Binary,
    Const,
    Expr,
    Extent,
    Read,
    format_const,
    format_expr,
    given_name,
)
from tilewright.symbolic.operations import BinaryOp

INDENT = "  "
_WIDTH = 100
"""Maximum width of a header; longer ones are broken, with one axis or parameter on each line."""

LOOP_WORDS: dict[LoopKind, str] = {kind: kind.value for kind in LoopKind} | {LoopKind.SERIAL: "range"}


@dataclass(frozen=True, slots=True)
class _Style:
    """The notation of expressions and stores."""

    literal: Callable[[Const], str] = format_const
    shorthand: bool = False

    def text(self, expr: Expr, precedence: int = 0) -> str:
        return format_expr(expr, precedence, self.literal)


_EXACT = _Style()


def format_program(
    name: str,
    params: Sequence[Buffer],
    outputs: int,
    dims: Sequence[tuple[Extent, int | None]],
    body: Stmt,
    annotations: Annotations = (),
) -> str:
    """The text of a whole program; it ends with a newline."""
    extents = ", ".join(var.token if bound is None else f"{var.token} <= {bound}" for var, bound in dims)
    declared = [f"{_declaration(param)}" for param in params]
    first = len(params) - outputs
    head = f"program {name}[{extents}]" if extents else f"program {name}"
    labels = [f"# {var.token}: {given_name(var)}" for var, _ in dims if var.label]
    lines = [*labels, *_header(head, declared[:first], f" -> ({', '.join(declared[first:])}):")]
    inside = [*_annotations(annotations), *_suite(body, _EXACT)]
    return "\n".join([*lines, *(INDENT + line for line in inside)]) + "\n"


def format_stmt(stmt: Stmt, literal: Callable[[Const], str] = format_const, shorthand: bool = False) -> str:
    """The text of a statement, without a newline at its end.

    ``literal`` writes literals; ``shorthand`` allows ``C[i] += x``. Text with the defaults can be read back.
    """
    return "\n".join(_suite(stmt, _Style(literal, shorthand)))


def format_region(region: Region) -> str:
    """``A[i, 0 +: 8, :]``; without brackets if it is the whole buffer."""
    if all(start == ZERO and extent == size for (start, extent), size in _ranges(region)):
        return region.buffer.name
    parts = (_range(start, extent, size) for (start, extent), size in _ranges(region))
    return f"{region.buffer.name}[{', '.join(parts)}]"


def _regions(regions: Sequence[Region]) -> str:
    return ", ".join(map(format_region, regions))


def _ranges(region: Region) -> Iterator[tuple[tuple[Expr, Expr], Expr]]:
    return zip(region.ranges, region.buffer.shape, strict=True)


def _range(start: Expr, extent: Expr, size: Expr) -> str:
    if extent == ONE:
        return format_expr(start)
    return ":" if start == ZERO and extent == size else f"{format_expr(start)} +: {format_expr(extent)}"


def _declaration(buffer: Buffer) -> str:
    text = f"{buffer.name}: {buffer.dtype}[{', '.join(map(format_expr, buffer.shape))}]"
    return text if buffer.memory == GLOBAL else f"{text} in {buffer.memory.name}"


def _header(head: str, items: Sequence[str], tail: str) -> list[str]:
    line = f"{head}({', '.join(items)}){tail}"
    if len(line) <= _WIDTH or not items:
        return [line]
    inner = [f"{INDENT}{INDENT}{item}," for item in items[:-1]]
    return [f"{head}(", *inner, f"{INDENT}{INDENT}{items[-1]}){tail}"]


def _annotations(annotations: Annotations) -> list[str]:
    listed = ", ".join(f"{key} = {json.dumps(value)}" for key, value in annotations)
    return [f"annotate {listed}"] if annotations else []


def _suite(stmt: Stmt, style: _Style) -> list[str]:
    """The lines of ``stmt`` as a suite."""
    lines: list[str] = []
    while items := seq_items(stmt):
        lines += [line for item in items[:-1] for line in _statement(item, style)]
        last = items[-1]
        if not isinstance(last, Alloc):
            return [*lines, *_statement(last, style)]
        lines.append(f"alloc {_declaration(last.buffer)}")
        stmt = last.body
    return [*lines, "pass"]


def _indented(stmt: Stmt, style: _Style) -> list[str]:
    return [INDENT + line for line in _suite(stmt, style)]


def _statement(stmt: Stmt, style: _Style) -> list[str]:
    text = style.text
    match stmt:
        case Store():
            return [_store(stmt, style)]
        case Stores(stores):
            targets = ", ".join(_target(store, style) for store in stores)
            return [f"{targets} = {', '.join(text(store.value) for store in stores)}"]
        case Seq():
            return _suite(stmt, style)
        case If(condition, then, otherwise):
            lines = [f"if {text(condition)}:", *_indented(then, style)]
            return lines if otherwise is None else [*lines, "else:", *_indented(otherwise, style)]
        case Loop(var, extent, body, kind):
            return [f"for {var.name} in {LOOP_WORDS[kind]}({text(extent)}):", *_indented(body, style)]
        case Alloc(buffer, body):
            return [f"alloc {_declaration(buffer)}:", *_indented(body, style)]
        case Block():
            return [*_block_header(stmt), *(INDENT + line for line in _block_inside(stmt, style))]
        case Call(kind, callee, args, outputs):
            first = len(args) if outputs == 1 else len(args) - outputs
            arrow = "" if outputs == 1 else " -> "
            return [f"{kind.value} {callee}({_regions(args[:first])}{arrow}{_regions(args[first:])})"]
        case Barrier():
            return ["barrier"]


def _store(store: Store, style: _Style) -> str:
    match store.value:
        case Binary(BinaryOp.ADD | BinaryOp.MUL as op, Read(source, indices), b) if style.shorthand:
            if source == store.buffer and indices == store.indices:
                return f"{_target(store, style)} {op.value}= {style.text(b)}"
        case _:
            pass
    return f"{_target(store, style)} = {style.text(store.value)}"


def _target(store: Store, style: _Style) -> str:
    return f"{store.buffer.name}[{', '.join(map(style.text, store.indices))}]"


def _block_header(block: Block) -> list[str]:
    axes = [_axis(axis, binding) for axis, binding in zip(block.axes, block.bindings, strict=True)]
    where = "" if block.predicate == TRUE else f" where {format_expr(block.predicate)}"
    return _header(f"block {block.name}", axes, f"{where}:")


def _axis(axis: IterVar, binding: Expr) -> str:
    return f"{axis.name} = {format_expr(binding)}: {axis.kind.value} {format_expr(axis.extent)}"


def _block_inside(block: Block, style: _Style) -> Iterator[str]:
    for word, declared in (("reads", block.reads), ("writes", block.writes)):
        if declared:
            yield f"{word} {', '.join(map(format_region, declared))}"
    yield from _annotations(block.annotations)
    if block.init is not None:
        yield "init:"
        yield from _indented(block.init, style)
    yield from _suite(block.body, style)
