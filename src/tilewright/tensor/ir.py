"""Tensor expressions: what is computed, not how.

Grammar
-------
::

    tensor    = Tensor(op, output)                      one output of an operation
    operation = Placeholder(name, shape, dtype)
              | Compute(name, axes, bodies)             every body a scalar expression over the axes,
                                                        or all bodies together one Reduction
              | Scan(name, init, update, state)         a recurrence along the first dimension
              | Extern(name, inputs, outputs, body)     an opaque loop program
    reduction = Reduction(reducer, axes, sources, condition)
    reducer   = Reducer(name, left, right, results, identities)

Meaning
-------
- A tensor is a total function from its index box to scalars; dimensions are integers or ``index`` expressions over
  run-time extents. Operations have no effects and share nothing but values.
- ``Compute``: output ``o`` at ``axes`` is ``bodies[o]``. With a reduction, outputs start as the reducer's identities
  and are combined with the sources for every point of the reduction axes at which ``condition`` holds. The reducer is
  associative and commutative, so the order is free (floats: as free as the numerics policy says).
- ``Scan``: ``state[i]`` is a placeholder for the whole result ``i``, of shape ``(steps, ...)``. Rows ``0 .. k-1`` are
  ``init[i]`` (``k`` is its first extent, at least 1); row ``t >= k`` is row ``t`` of ``update[i]``, which may read
  ``state`` at rows below ``t`` only.
- ``Extern``: the outputs are what ``body`` (a statement of loop IR over the inputs' and outputs' buffers) stores.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import Arithmetic, Expr, ExprLike, Read, Source, Var, as_expr
from tilewright.symbolic.sizes import check_size
from tilewright.symbolic.traversal import reads_in

MARK = "@"
"""Separator before a suffix that makes variables' names unique.

No name of a user contains it.
"""


class Opaque:
    """Marker for an extern's body: loop IR, which is one layer up."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Placeholder:
    """An input."""

    name: str
    shape: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True)
class Reducer:
    """Combines two partial results: ``results`` over the variables ``left`` and ``right``, all tuples."""

    name: str
    left: tuple[Var, ...]
    right: tuple[Var, ...]
    results: tuple[Expr, ...]
    identities: tuple[Expr, ...]


@dataclass(frozen=True)
class Reduction(Arithmetic):
    """``reducer`` over ``axes`` of ``sources``, at the points where ``condition`` holds."""

    reducer: Reducer
    axes: tuple[IterVar, ...]
    sources: tuple[Expr, ...]
    condition: Expr

    def as_expr(self) -> Expr:
        """Raises ``BadProgram``: a reduction is not a scalar expression, so it can't be part of one."""
        raise BadProgram(
            f"`{self.reducer.name}(...)` is used inside an expression; a reduction must be the whole body of a "
            "te.compute: split into two computes, and use the first one's result in the second"
        )


@dataclass(frozen=True, eq=False)
class Compute:
    """Elementwise or reducing computation; several outputs share the axes."""

    name: str
    axes: tuple[IterVar, ...]
    bodies: tuple[Expr, ...]
    """One expression for each output; empty if ``reduction`` is given."""
    reduction: Reduction | None = None

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The spatial axes (TVM's ``C.op.axis``)."""
        return self.axes

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes (TVM's ``C.op.reduce_axis``)."""
        return self.reduction.axes if self.reduction else ()

    @property
    def values(self) -> tuple[Expr, ...]:
        """The scalar expressions evaluated at each point."""
        return self.reduction.sources if self.reduction else self.bodies


@dataclass(frozen=True, eq=False)
class Scan:
    """A recurrence along the first dimension."""

    name: str
    init: tuple["Tensor", ...]
    update: tuple["Tensor", ...]
    state: tuple["Tensor", ...]


@dataclass(frozen=True, eq=False)
class Extern:
    """An opaque loop program from ``inputs`` to outputs; ``body`` names the buffers by the tensors' names."""

    name: str
    inputs: tuple["Tensor", ...]
    output_names: tuple[str, ...]
    output_shapes: tuple[tuple[Expr, ...], ...]
    output_dtypes: tuple[DType, ...]
    body: Opaque


Operation: TypeAlias = Placeholder | Compute | Scan | Extern


@dataclass(frozen=True, eq=False, repr=False)
class Tensor(Source):
    """One output of an operation. Two tensors are equal only if they are the same object."""

    op: Operation
    output: int
    name: str
    dtype: DType
    shape: tuple[Expr, ...]

    def __post_init__(self) -> None:
        check_size(self.name, self.dtype, self.shape)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Expr:
        """The element at ``indices`` (for a tensor of rank 0: ``t[()]``)."""
        listed = indices if isinstance(indices, tuple) else (indices,)
        if len(listed) != len(self.shape):
            raise BadProgram(f"{self.name} has {len(self.shape)} dimensions, but is read with {len(listed)} indices")
        exprs = tuple(as_expr(i) for i in listed)
        for position, expr in enumerate(exprs):
            if not expr.dtype.is_int:
                raise BadProgram(f"index {position} of {self.name} is {expr.dtype}: {expr}; indices are integers")
        return Read(self, tuple(e.astype(as_expr(0).dtype) for e in exprs))

    @property
    def ndim(self) -> int:
        return len(self.shape)


def inputs_of(op: Operation) -> tuple[Tensor, ...]:
    """The tensors that ``op`` reads, each once, in order of first use."""
    match op:
        case Placeholder():
            return ()
        case Compute():
            return tuple(dict.fromkeys(tensor for tensor, _ in reads_of(op)))
        case Scan():
            return tuple(dict.fromkeys((*op.init, *op.update)))
        case Extern():
            return op.inputs


def reads_of(op: Compute) -> Iterator[tuple[Tensor, tuple[Expr, ...]]]:
    """The reads of ``op`` in order of use: those of its values, then those of its reduction's condition."""
    condition = (op.reduction.condition,) if op.reduction else ()
    for read in (read for expr in (*op.values, *condition) for read in reads_in(expr)):
        if isinstance(read.source, Tensor):
            yield read.source, read.indices


def topological_order(outputs: Iterable[Tensor]) -> list[Operation]:
    """All operations that ``outputs`` need, producers before consumers."""
    order: list[Operation] = []
    seen: set[int] = set()
    stack: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(list(outputs))]
    while stack:
        op, done = stack.pop()
        if done:
            order.append(op)
        elif id(op) not in seen:
            seen.add(id(op))
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(inputs_of(op)))
    return order
