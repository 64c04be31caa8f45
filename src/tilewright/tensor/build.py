"""Builders of tensor expressions: ``placeholder``, ``compute``, ``var``, ``reduce_axis``.

::

    A, B = te.placeholder((m, l), name="A"), te.placeholder((l, n), name="B")
    k = te.reduce_axis((0, l), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

(TVM, Chen et al., OSDI 2018; reductions and scans as there.) Arguments are checked here, so that errors point to the
user's call.
"""

import inspect
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, overload

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.base.names import fresh_name
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Arithmetic, Const, Expr, ExprLike, Extent, Var, as_expr, cast, const, select
from tilewright.symbolic.sharing import DEEPEST, MOST_NODES, is_small, size_of
from tilewright.symbolic.traversal import free_vars, substitute
from tilewright.tensor.ir import MARK, Compute, Placeholder, Reduction, Tensor, inputs_of, topological_order
from tilewright.tensor.reducers import (
    TupleReduction,
    argmax,
    argmin,
    comm_reducer,
    max,
    max_value,
    min,
    min_value,
    prod,
    sum,
)

__all__ = [
    "argmax",
    "argmin",
    "cast",
    "comm_reducer",
    "compute",
    "const",
    "if_then_else",
    "max",
    "max_value",
    "min",
    "min_value",
    "placeholder",
    "prod",
    "reduce_axis",
    "select",
    "sum",
    "var",
]

UNNAMED = "_"
"""The name of unnamed tensors; lowering names them A, B, C ... in order."""

Shape: TypeAlias = Sequence[int | Arithmetic]
Body: TypeAlias = ExprLike | Reduction | TupleReduction | tuple[ExprLike, ...]

_unnamed_axes = itertools.count()


def var(name: str) -> Extent:
    """A run-time extent, to be used in shapes. Equal names denote equal extents; axes of that name are unrelated."""
    return Extent(_checked_name(name, "a run-time extent"))


def reduce_axis(domain: tuple[ExprLike, ExprLike], name: str | None = None) -> IterVar:
    """The reduction axis ``0 <= k < extent``, for ``domain = (0, extent)``.

    Raises ``BadProgram`` for a domain that starts elsewhere.
    """
    start, extent = domain
    if as_expr(start) != as_expr(0):
        raise BadProgram(
            f"a reduction axis starts at 0, not at {start}; use (0, extent) and add the offset in the body"
        )
    own = f"k{MARK}{next(_unnamed_axes):09}" if name is None else _checked_name(name, "a reduction axis")
    return IterVar(Var(own), _extent(extent, f"reduction axis {name or 'k'}"), IterKind.REDUCE)


def placeholder(shape: Shape, dtype: DType = dtypes.f32, name: str | None = None) -> Tensor:
    """An input of the given shape; dimensions are ints or expressions over ``te.var``."""
    own = name or UNNAMED
    extents = shape_exprs(shape, own)
    return Tensor(Placeholder(own, extents, dtype), 0, own, dtype, extents)


@overload
def compute(
    shape: Shape,
    fcompute: Callable[..., TupleReduction | tuple[ExprLike, ...]],
    name: str | Sequence[str] | None = None,
    dims: Collection[Var] = (),
) -> tuple[Tensor, ...]: ...
@overload
def compute(
    shape: Shape,
    fcompute: Callable[..., ExprLike | Reduction],
    name: str | None = None,
    dims: Collection[Var] = (),
) -> Tensor: ...
def compute(
    shape: Shape, fcompute: Callable[..., Body], name: str | Sequence[str] | None = None, dims: Collection[Var] = ()
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose element at ``i, j, ...`` is ``fcompute(i, j, ...)``.

    The axes have the names of ``fcompute``'s parameters. If it returns a tuple, or a reduction of several values, the
    result is a tuple of tensors that share the axes; ``name`` may then be a sequence of their names. ``dims`` are
    run-time extents that the body may use besides those in shapes of its tensors. Raises ``BadProgram`` with the reason
    for an invalid tensor expression.
    """
    label = UNNAMED if name is None else name if isinstance(name, str) else ", ".join(name)
    extents = shape_exprs(shape, label)
    scratch = tuple(Var(f"{axis}{MARK}") for axis in _axis_names(fcompute, len(extents), label))
    body = fcompute(*scratch)
    is_tuple = isinstance(body, tuple | TupleReduction)
    op = _compute_op(body.reduction if isinstance(body, TupleReduction) else body, scratch, extents, label)
    names = _output_names(name, len(op.values), is_tuple)
    op = Compute(name if isinstance(name, str) else names[0], op.axes, op.bodies, op.reduction)
    _check_variables(op, label, dims)
    outputs = tuple(Tensor(op, i, names[i], value.dtype, extents) for i, value in enumerate(op.values))
    return outputs if is_tuple else outputs[0]


def if_then_else(condition: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """Another name of ``select``, as in TVM: only the chosen side is evaluated."""
    return select(condition, a, b)


def _compute_op(
    body: ExprLike | Reduction | tuple[ExprLike, ...], scratch: tuple[Var, ...], extents: tuple[Expr, ...], label: str
) -> Compute:
    """The operation, with the axes under their final names instead of the temporary ones of the body."""
    if not isinstance(body, Reduction):
        values = _values(body, label)
        _check_size(f"the body of {label}", values)
        axes, renamed = _named_axes(scratch, extents, values)
        return Compute(label, axes, tuple(substitute(value, renamed) for value in values))
    _check_size(f"the body of {label}", (*body.sources, body.condition, *body.reducer.results))
    axes, renamed = _named_axes(scratch, extents, (*body.sources, body.condition), body.axes)
    sources = tuple(substitute(source, renamed) for source in body.sources)
    return Compute(label, axes, (), Reduction(body.reducer, body.axes, sources, substitute(body.condition, renamed)))


def _check_size(label: str, exprs: Sequence[Expr]) -> None:
    """Checks the size of expressions: passes walk them recursively as trees."""
    for expr in exprs:
        if not is_small(expr) and not (size := size_of(expr)).is_allowed:
            raise BadProgram(
                f"{label} is {size} with what it shares written out, and may be {MOST_NODES}, up to {DEEPEST} inside "
                "each other; make parts of it a te.compute of their own"
            )


def _values(body: ExprLike | tuple[ExprLike, ...], label: str) -> tuple[Expr, ...]:
    listed = body if isinstance(body, tuple) else (body,)
    for value in listed:
        if isinstance(value, float):
            raise BadProgram(
                f"{label}: the body is the Python number {value}; give it a dtype: te.const({value}, dtype)"
            )
    return tuple(as_expr(value, dtypes.boolean if isinstance(value, bool) else dtypes.index) for value in listed)


def _axis_names(fcompute: Callable[..., Body], rank: int, label: str) -> list[str]:
    """One name for each dimension: those of the parameters, and ``i0, i1 ...`` for ``*args`` and for built-ins."""
    try:
        parameters = list(inspect.signature(fcompute).parameters.values())
    except ValueError:
        return [f"i{d}" for d in range(rank)]
    names = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        names += [f"i{d}" for d in range(len(names), rank)]
    if len(names) != rank:
        raise BadProgram(f"{label} has {rank} dimensions, but its body takes {len(names)} axes: ({', '.join(names)})")
    return names


def _named_axes(
    scratch: tuple[Var, ...], extents: tuple[Expr, ...], values: Sequence[Expr], reduced: Sequence[IterVar] = ()
) -> tuple[tuple[IterVar, ...], dict[Var, Expr]]:
    """The axes, with the user's names unless something else in the operation has that name."""
    others = (*extents, *values, *(axis.extent for axis in reduced))
    taken = {v.name for expr in others for v in free_vars(expr)} | {axis.name for axis in reduced}
    axes: list[IterVar] = []
    for var, extent in zip(scratch, extents, strict=True):
        name = fresh_name(var.name.removesuffix(MARK), taken)
        taken.add(name)
        axes.append(IterVar(Var(name), extent, IterKind.SPATIAL))
    return tuple(axes), {old: axis.var for old, axis in zip(scratch, axes, strict=True)}


def _output_names(name: str | Sequence[str] | None, count: int, is_tuple: bool) -> list[str]:
    if name is None:
        return [UNNAMED] * count
    if isinstance(name, str):
        return [f"{name}_{i}" for i in range(count)] if is_tuple else [name]
    if len(name) != count:
        raise BadProgram(f"{count} outputs have {len(name)} names: {list(name)}")
    return list(name)


def _check_variables(op: Compute, label: str, dims: Collection[Var]) -> None:
    """Checks that every variable is an axis or a run-time extent: of a tensor that the operation depends on, or in
    ``dims``."""
    condition = (op.reduction.condition,) if op.reduction else ()
    bound = {axis.var for axis in (*op.axes, *op.reduce_axis)}
    extents = {v for axis in (*op.axes, *op.reduce_axis) for v in free_vars(axis.extent)}
    unknown = {v for value in (*op.values, *condition) for v in free_vars(value)} - bound - extents - {*dims}
    if unknown:
        unknown -= _extents_of(inputs_of(op))
    for v in sorted(unknown, key=lambda v: v.name):
        raise BadProgram(
            f"{label}: `{v.name.partition(MARK)[0]}` is no axis, and no extent of a tensor that {label} is made of; "
            "a reduction axis must be listed in `axis=`"
        )


def _extents_of(tensors: Sequence[Tensor]) -> set[Var]:
    """The run-time extents in the shapes of ``tensors`` and of all their transitive inputs."""
    ancestors = {t for op in topological_order(tensors) for t in inputs_of(op)}
    return {v for tensor in (*tensors, *ancestors) for extent in tensor.shape for v in free_vars(extent)}


def shape_exprs(shape: Shape, label: str) -> tuple[Expr, ...]:
    """``shape`` as expressions; ``label`` names its owner in errors."""
    return tuple(_extent(extent, f"dimension {position} of {label}") for position, extent in enumerate(shape))


def _extent(extent: ExprLike, what: str) -> Expr:
    expr = as_expr(extent)
    if expr.dtype != dtypes.index:
        raise BadProgram(f"{what} is {expr} of {expr.dtype}; extents are integers or `index` expressions")
    if not isinstance(expr, Const | Var):
        _check_size(what, (expr,))
    if isinstance(expr, Const) and expr.value < 0:
        raise BadProgram(f"{what} is {expr}; extents are not negative")
    for variable in expr.variables:
        if not isinstance(variable, Extent):
            raise BadProgram(f"{what} is {expr}, but {variable} is no run-time extent; make those with te.var")
    return expr


def _checked_name(name: str, what: str) -> str:
    if not name.isidentifier():
        raise BadProgram(f"{name!r} can't name {what}; use letters, digits and underscores")
    return name
