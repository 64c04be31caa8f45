"""Tensor expressions and their schedules, in the notation of TVM (OSDI 2018).

In: tensors made by ``placeholder``, ``compute``, ``sum`` ... Out: a loop program. The schedule is eager: every line
rewrites the program, which ``print(s)`` shows, and invalid steps are refused at that line. A new primitive is one
method of ``schedule.Schedule``, and, if TVM has a notation for it, one method of ``Stage``. ::

    A, B = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
    k = te.reduce_axis((0, 1024), name="k")
    C = te.compute((1024, 1024), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    s = te.create_schedule(C)
    yo, xo, yi, xi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    s[C].reorder(yo, xo, k, yi, xi)
    s[C].vectorize(xi)
    f = te.build(s)     # f(a, b), f.check(), f.time(), f.llvm, f.asm, f.save(path)

    stage        schedules: TeSchedule, Stage
    values       what tensors and schedules compute, in NumPy
    kernel       schedules as native code
    accelerated  schedules as programs of the accelerator
    automatic    schedules that nobody writes

``docs/te.md`` takes a matrix product to the machine's peak. A dtype may be given by its name: ``"float32"``, ``"f32"``.
"""

from collections.abc import Mapping, Sequence

from tilewright.backend.cpu.register_code import check_implementations
from tilewright.backend.cpu.trial import check_by_trial
from tilewright.base import dtypes
from tilewright.base.arguments import checked
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.kernels.dot_products import dot_products as _dot_products
from tilewright.kernels.tile_products import tile_product as _tile_product
from tilewright.loops.extern import ExternBody
from tilewright.loops.extern import extern as _extern
from tilewright.loops.program import Program
from tilewright.loops.reader import format_loops as _format_loops
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic
from tilewright.schedule.intrinsics import decl_tensor_intrin as _decl_tensor_intrin
from tilewright.symbolic import expr
from tilewright.symbolic.check import checked_index as _checked_index
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import Const, Expr, ExprLike
from tilewright.symbolic.folding import Scalar
from tilewright.te.accelerated import Accelerated, accelerate
from tilewright.te.automatic import autoschedule
from tilewright.te.kernel import Kernel, build
from tilewright.te.stage import Stage, TeSchedule, create_schedule
from tilewright.te.values import evaluate, run_on_reference
from tilewright.tensor import build as _build
from tilewright.tensor import functions, reducers
from tilewright.tensor import scan as _recurrences
from tilewright.tensor.ir import Tensor

__all__ = [
    "Accelerated",
    "Expr",
    "IntrinsicSet",
    "IterVar",
    "Kernel",
    "Stage",
    "TeSchedule",
    "Tensor",
    "TensorIntrinsic",
    "abs",
    "accelerate",
    "acos",
    "acosh",
    "all",
    "any",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "autoschedule",
    "build",
    "cast",
    "ceil",
    "checked_index",
    "clip",
    "comm_reducer",
    "compute",
    "const",
    "cos",
    "cosh",
    "create_schedule",
    "decl_tensor_intrin",
    "dot_products",
    "erf",
    "evaluate",
    "exp",
    "exp2",
    "expm1",
    "extern",
    "floor",
    "fmod",
    "format_loops",
    "if_then_else",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "lower",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "placeholder",
    "power",
    "prod",
    "reduce_axis",
    "round",
    "rsqrt",
    "run_on_reference",
    "scan",
    "select",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "tile_product",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]

# These functions check the arguments of users; the compiler calls the unchecked ones.
_public = checked(BadProgram)

argmax, argmin = _public(reducers.argmax), _public(reducers.argmin)
checked_index = _public(_checked_index)
comm_reducer = _public(reducers.comm_reducer)
compute = _public(_build.compute)
dot_products = _public(_dot_products)
tile_product = _public(_tile_product)
if_then_else, select = _public(_build.if_then_else), _public(expr.select)
all, any, max, min = _public(reducers.all), _public(reducers.any), _public(reducers.max), _public(reducers.min)
prod, sum = _public(reducers.prod), _public(reducers.sum)
reduce_axis = _public(_build.reduce_axis)
scan = _public(_recurrences.scan)
var = _public(_build.var)
format_loops = _public(_format_loops)

abs, acos, acosh, asin, asinh = map(
    _public, (functions.abs, functions.acos, functions.acosh, functions.asin, functions.asinh)
)
atan, atanh, ceil, cos, cosh = map(
    _public, (functions.atan, functions.atanh, functions.ceil, functions.cos, functions.cosh)
)
erf, exp, exp2, expm1, floor = map(
    _public, (functions.erf, functions.exp, functions.exp2, functions.expm1, functions.floor)
)
isfinite, isinf, isnan, log, log1p = map(
    _public, (functions.isfinite, functions.isinf, functions.isnan, functions.log, functions.log1p)
)
round, rsqrt, sigmoid, sin, sinh = map(
    _public, (functions.round, functions.rsqrt, functions.sigmoid, functions.sin, functions.sinh)
)
sqrt, tan, tanh, trunc = map(_public, (functions.sqrt, functions.tan, functions.tanh, functions.trunc))
atan2, fmod, power = map(_public, (functions.atan2, functions.fmod, functions.power))
truncdiv, truncmod = map(_public, (functions.truncdiv, functions.truncmod))
clip = _public(functions.clip)
maximum, minimum = _public(expr.maximum), _public(expr.minimum)


@_public
def placeholder(shape: _build.Shape, dtype: DType | str = dtypes.f32, name: str | None = None) -> Tensor:
    """An input of the given shape; dimensions are ints or expressions over ``te.var``."""
    return _build.placeholder(shape, dtypes.named(dtype), name)


@_public
def cast(value: ExprLike, dtype: DType | str) -> Expr:
    """``value`` converted to ``dtype`` (rules in ``symbolic.expr``)."""
    return expr.cast(value, dtypes.named(dtype))


@_public
def const(value: Scalar, dtype: DType | str = dtypes.index) -> Const:
    """The literal ``value`` of type ``dtype``. Raises ``BadProgram`` if an integer type can't hold it."""
    return expr.const(value, dtypes.named(dtype))


@_public
def min_value(dtype: DType | str) -> Expr:
    """The smallest value of ``dtype``; minus infinity for floats."""
    return reducers.min_value(dtypes.named(dtype))


@_public
def max_value(dtype: DType | str) -> Expr:
    """The largest value of ``dtype``; infinity for floats."""
    return reducers.max_value(dtypes.named(dtype))


@_public
def extern(
    shapes: Sequence[_build.Shape],
    inputs: Sequence[Tensor],
    body: ExternBody,
    dtype: Sequence[DType | str],
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """The tensors that ``body(input_buffers, output_buffers)`` stores: see ``loops.extern``."""
    return _extern(shapes, inputs, body, tuple(map(dtypes.named, dtype)), name)


@_public
def decl_tensor_intrin(
    output: Tensor,
    name: str,
    *,
    reset: str | None = None,
    update: str | None = None,
    implementations: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
) -> TensorIntrinsic:
    """Declare the intrinsic that computes ``output`` from its placeholders: see ``schedule.intrinsics``.

    Implementations are tested in a separate process. Raises ``BadProgram`` if one is not valid LLVM IR, has other types
    than the declaration, needs more ``features``, or computes other values.
    """
    declared = _decl_tensor_intrin(
        output, name, reset=reset, update=update, implementations=implementations, features=features
    )
    check_implementations(declared)
    for form in (declared.compute, declared.reset, declared.update):
        if form is not None and form.implementation:
            check_by_trial(form)
    return declared


@_public
def lower(schedule: TeSchedule) -> Program:
    """The loop program of ``schedule``."""
    return schedule.program
