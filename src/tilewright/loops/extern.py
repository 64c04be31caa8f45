"""``te.extern``: operators without a functional form (sort, scatter, top-k), written as loops; and their builders.

::

    def body(ins, outs):
        (x,), (y,) = ins, outs
        return for_range(n, lambda i: store(y, i, x[n - 1 - i]))

    flipped = te.extern([(n,)], [X], body, dtype=[f32], name="flip")
"""

import itertools
from collections.abc import Callable, Sequence

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.base.names import fresh_name, identifier
from tilewright.loops.ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    Call,
    If,
    Loop,
    LoopKind,
    Seq,
    Stmt,
    Store,
    Stores,
)
from tilewright.loops.memory import LOCAL, Memory
from tilewright.loops.visit import seq
from tilewright.symbolic.expr import Expr, ExprLike, Var, as_expr
from tilewright.tensor.build import UNNAMED, Shape, shape_exprs
from tilewright.tensor.ir import MARK, Extern, Tensor

__all__ = ["alloc", "extern", "for_range", "if_then", "local_buffers", "seq", "statement_of", "store"]

_loops = itertools.count()

ExternBody = Callable[[tuple[Buffer, ...], tuple[Buffer, ...]], Stmt]


def extern(
    shapes: Sequence[Shape],
    inputs: Sequence[Tensor],
    body: ExternBody,
    dtype: Sequence[DType],
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """The tensors that ``body(input_buffers, output_buffers)`` stores, one for each of ``shapes`` and ``dtype``.

    It is opaque to fusion and to schedules, but checked, interpreted and compiled like any operation.
    """
    own = name or UNNAMED
    if len(shapes) != len(dtype):
        raise BadProgram(
            f"extern {own} has {len(shapes)} shapes and {len(dtype)} dtypes; it needs one of each per output"
        )
    extents = tuple(shape_exprs(shape, own) for shape in shapes)
    names = (own,) if len(shapes) == 1 or own == UNNAMED else tuple(f"{own}_{i}" for i in range(len(shapes)))
    names = names if len(names) == len(shapes) else names * len(shapes)
    signature = Extern(own, tuple(inputs), names, extents, tuple(dtype), Seq(()))
    statement = body(*local_buffers(signature))
    op = Extern(own, signature.inputs, names, extents, signature.output_dtypes, statement)
    return tuple(Tensor(op, i, names[i], dtype[i], extents[i]) for i in range(len(shapes)))


def local_buffers(op: Extern) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """The buffers of the body of ``op``: of the inputs and of the outputs."""
    taken: set[str] = set()

    def buffer(name: str, dtype: DType, shape: tuple[Expr, ...]) -> Buffer:
        own = fresh_name(identifier(name), taken)
        taken.add(own)
        return Buffer(own, dtype, shape)

    inputs = tuple(buffer(t.name, t.dtype, t.shape) for t in op.inputs)
    results = zip(op.output_names, op.output_dtypes, op.output_shapes, strict=True)
    return inputs, tuple(buffer(*result) for result in results)


def statement_of(op: Extern) -> Stmt:
    """The body of ``op``."""
    if not isinstance(op.body, Store | Stores | Seq | If | Loop | Alloc | Block | Call | Barrier):
        raise BadProgram(f"the body of extern {op.name} is {op.body!r}, not a statement of loop IR")
    return op.body


def for_range(extent: ExprLike, body: Callable[[Var], Stmt], name: str = "i", kind: LoopKind = LoopKind.SERIAL) -> Stmt:
    """``for name in range(extent)``, with a new variable, which lowering renames if its name is taken."""
    var = Var(f"{name}{MARK}{next(_loops):09}")
    return Loop(var, as_expr(extent), body(var), kind)


def store(buffer: Buffer, indices: ExprLike | tuple[ExprLike, ...], value: ExprLike) -> Stmt:
    """``buffer[indices] = value``; a Python number takes the buffer's dtype."""
    listed = indices if isinstance(indices, tuple) else (indices,)
    return Store(buffer, tuple(map(as_expr, listed)), as_expr(value, buffer.dtype))


def if_then(condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """``then`` where ``condition`` holds, else ``otherwise``."""
    return If(condition, then, otherwise)


def alloc(
    shape: Shape, dtype: DType, body: Callable[[Buffer], Stmt], name: str = "local", memory: Memory = LOCAL
) -> Stmt:
    """A buffer with undefined contents, allocated around ``body``."""
    buffer = Buffer(name, dtype, shape_exprs(shape, name), memory)
    return Alloc(buffer, body(buffer))
