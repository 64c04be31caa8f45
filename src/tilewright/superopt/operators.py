"""What the generator combines: operations (compositions of graph operators) and the inputs they are applied to.

A family is a set of operations and of inputs that fit each other; rules are generated for each family on its own. The
first is the set of Jia et al. (TASO, section 3), whose operators that a graph here has not are compositions: a kernel
that is enlarged is padded, a convolution with an activation is two operators.

To add an operation, write a function that makes its term, and one that says which extents must be equal; whatever else
is to be known of it (its meaning, its shape) follows from the operators it is composed of.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.rules.terms import Apply, Number, Term
from tilewright.superopt.extents import (
    Extent,
    Mismatch,
    Shape,
    Solver,
    as_attribute,
    as_shape,
    difference,
    literal,
    size_of,
)
from tilewright.symbolic.expr import Expr

Typing: TypeAlias = Callable[[Solver, Sequence[Shape]], Shape]
"""From the shapes of the operands to that of the result. Raises ``Mismatch`` for operands that do not fit."""
Building: TypeAlias = Callable[[Sequence[Term], Sequence[Shape], Shape], Term]
"""From the operands, their shapes and the result's to a term."""
Constant: TypeAlias = Callable[[Shape], Term]


class Role(Enum):
    """What an operand may be."""

    ANY = "any"
    DATA = "data"
    """What depends on a variable that is no weight."""
    WEIGHT = "weight"
    """What depends on weights and constants only: a convolution's weights are known when a model is compiled."""


@dataclass(frozen=True, slots=True)
class Operation:
    """``arity`` operands, which are of ``roles``; if it ``commutes``, their order is free."""

    name: str
    typing: Typing
    building: Building
    roles: tuple[Role, ...]
    commutes: bool = False
    elementwise: bool = False
    """Each element of the result follows from those in its place, or from a scalar."""
    second_half: str | None = None
    """The operation that makes what this one leaves of its operand."""

    @property
    def arity(self) -> int:
        return len(self.roles)


@dataclass(frozen=True, slots=True)
class Input:
    """A variable, or a constant whose term follows from its shape.

    ``shape`` names dimensions of the family, or gives numbers; equal names are equal extents in one input only.
    """

    name: str
    shape: tuple[str | int, ...]
    is_weight: bool = False
    constant: Constant | None = None

    def typed(self, solver: Solver, extents: Mapping[str, int]) -> Shape:
        """The shape, with a symbol for each name; a variable has them for numbers, too, until they are needed."""
        if self.constant is None:
            return tuple(solver.fresh(size_of(extent)) for extent in self.concrete(extents))
        symbols = {name: solver.fresh(extents[name]) for name in self.shape if isinstance(name, str)}
        return tuple(literal(extent) if isinstance(extent, int) else symbols[extent] for extent in self.shape)

    def concrete(self, extents: Mapping[str, int]) -> Shape:
        """The shape, in numbers."""
        return tuple(literal(extent if isinstance(extent, int) else extents[extent]) for extent in self.shape)


@dataclass(frozen=True, slots=True)
class Family:
    """Operations and the inputs of all their terms. ``extents``: of the named dimensions, once for discovery, then to
    filter; all are even, so that they can be halved."""

    name: str
    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    extents: tuple[Mapping[str, int], ...]

    def first_of_kind(self, number: int) -> int:
        """The first input that an input could be exchanged with."""
        made = self.inputs[number]
        kinds = [(other.shape, other.is_weight, other.constant is None) for other in self.inputs]
        return kinds.index((made.shape, made.is_weight, made.constant is None))

    @property
    def digest(self) -> str:
        """Changes whenever a term can be another one."""
        lines = [f"{self.name} {self.extents}"]
        lines += [f"{i.name} {i.shape} {i.is_weight}" for i in self.inputs]
        lines += [f"{o.name} {[role.value for role in o.roles]} {o.commutes}" for o in self.operations]
        return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def apply(name: str, *operands: Term, **attributes: Attribute) -> Apply:
    """The term of one operator."""
    return Apply(require(name), operands, tuple(attributes.items()))


# Which extents are equal


def _same(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    for other in shapes[1:]:
        solver.unify_shapes(shapes[0], other)
    return shapes[0]


def _of_rank(rank: int, typing: Typing) -> Typing:
    """``typing`` for operands of ``rank`` only."""

    def typed(solver: Solver, shapes: Sequence[Shape]) -> Shape:
        if any(len(shape) != rank for shape in shapes):
            raise Mismatch
        return typing(solver, shapes)

    return typed


def _product(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """Of matrices, or of a batch of them by one of matrices or as large a batch."""
    a, b = shapes
    if len(b) < 2 or len(a) < len(b):
        raise Mismatch
    solver.unify(a[-1], b[-2])
    for x, y in zip(a[len(a) - len(b) : -2], b[:-2], strict=True):
        solver.unify(x, y)
    return (*a[:-1], b[-1])


def _convolved(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    x, weight = shapes
    _pin_kernel(solver, x, weight)
    solver.unify(x[1], weight[1])
    return (x[0], weight[0], *x[2:])


def _convolved_by_channel(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    x, weight = shapes
    _pin_kernel(solver, x, weight)
    solver.unify(x[1], weight[0])
    solver.unify(weight[1], literal(1))
    return x


def _pin_kernel(solver: Solver, x: Shape, weight: Shape) -> None:
    """Kernels are of odd extents that are numbers: then padding keeps the size."""
    if len(x) != 4 or len(weight) != 4 or any(size_of(extent) % 2 == 0 for extent in weight[2:]):
        raise Mismatch
    for extent in weight[2:]:
        solver.pin(extent)


def _scaled(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    if not shapes[0] or shapes[1]:
        raise Mismatch
    return shapes[0]


def _joined(axis: int, solver: Solver, shapes: Sequence[Shape]) -> Shape:
    first = shapes[0]
    if not -len(first) <= axis < len(first):
        raise Mismatch
    at = axis % len(first)
    for other in shapes[1:]:
        solver.unify_shapes(first, other, but=at)
    joined = tuple(part for shape in shapes for part in shape[at])
    return (*first[:at], joined, *first[at + 1 :])


def _half(axis: int, which: int, solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if not -len(x) <= axis < len(x):
        raise Mismatch
    at = axis % len(x)
    return (*x[:at], solver.halves(x[at])[which], *x[at + 1 :])


def _permuted(perm: tuple[int, ...], solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if len(x) != len(perm):
        raise Mismatch
    return tuple(x[p] for p in perm)


def _image(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    if len(shapes[0]) != 4:
        raise Mismatch
    return shapes[0]


def _enlarged(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (weight,) = shapes
    if len(weight) != 4 or tuple(map(size_of, weight[2:])) not in {(1, 3), (3, 1), (1, 1)}:
        raise Mismatch
    for extent in weight[2:]:
        solver.pin(extent)
    return (*weight[:2], literal(3), literal(3))


def _broadcast_last(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A vector for each row."""
    x, v = shapes
    if len(v) != 1 or len(x) < 2:
        raise Mismatch
    solver.unify(x[-1], v[0])
    return x


def _broadcast_rows(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A number for each row."""
    x, v = shapes
    if len(x) != len(v) or len(x) < 2:
        raise Mismatch
    solver.unify_shapes(x, v, but=len(x) - 1)
    solver.unify(v[-1], literal(1))
    if size_of(x[-1]) == 1:
        raise Mismatch
    return x


def _row(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    (x,) = shapes
    if len(x) < 2 or size_of(x[-1]) == 1:
        raise Mismatch
    return (*x[:-1], literal(1))


def _row_of_one(solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A number for each row already: such as its variance."""
    (x,) = shapes
    if len(x) < 2:
        raise Mismatch
    solver.unify(x[-1], literal(1))
    return x


def _along(axis: int, solver: Solver, shapes: Sequence[Shape]) -> Shape:
    """A number for each place along ``axis`` of four dimensions."""
    x, v = shapes
    if len(x) != 4 or len(v) != 4:
        raise Mismatch
    for at, extent in enumerate(v):
        solver.unify(extent, x[axis] if at == axis else literal(1))
    return x


# Terms


def _by_name(name: str, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply(name, *operands)


def _pads(weight: Shape) -> tuple[int, ...]:
    around = tuple(size_of(extent) // 2 for extent in weight[2:])
    return (*around, *around)


def _convolution(operands: Sequence[Term], shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Conv", *operands, pads=_pads(shapes[1]))


def _convolution_relu(operands: Sequence[Term], shapes: Sequence[Shape], result: Shape) -> Term:
    return apply("Relu", _convolution(operands, shapes, result))


def _depthwise(operands: Sequence[Term], shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Conv", *operands, pads=_pads(shapes[1]), group=as_attribute(shapes[1][0]))


def _pooled(name: str, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    """Windows of 3 x 3; the mean is of all nine, as a convolution's is."""
    whole: dict[str, Attribute] = {"count_include_pad": True} if name == "AveragePool" else {}
    return apply(name, *operands, kernel_shape=(3, 3), pads=(1, 1, 1, 1), **whole)


def _padded_kernel(operands: Sequence[Term], shapes: Sequence[Shape], _result: Shape) -> Term:
    around = tuple((3 - size_of(extent)) // 2 for extent in shapes[0][2:])
    return apply("Pad", *operands, before=(0, 0, *around), after=(0, 0, *around))


def _concatenation(axis: int, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Concat", *operands, axis=axis)


def _slice(axis: int, which: int, operands: Sequence[Term], shapes: Sequence[Shape], result: Shape) -> Term:
    whole, part = shapes[0][axis], result[axis]
    start, end = _cut(whole, part, which)
    return apply("Slice", *operands, axes=(axis,), starts=(start,), ends=(end,))


def _cut(whole: Extent, part: Extent, which: int) -> tuple[int | Expr, int | Expr]:
    """Where the half begins and ends."""
    end = as_attribute(whole)
    return (0, as_attribute(part)) if which == 0 else (difference(whole, part), end)


def _transposition(perm: tuple[int, ...], operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Transpose", *operands, perm=perm)


def _reduction(name: str, operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply(name, *operands, axes=(-1,))


def _inverse_root(operands: Sequence[Term], _shapes: Sequence[Shape], _result: Shape) -> Term:
    return apply("Div", Number(1.0), apply("Sqrt", *operands))


# Constants


def _ones(shape: Shape) -> Term:
    return apply("Expand", Number(1.0), shape=as_shape(shape))


def _identity(shape: Shape) -> Term:
    return apply("EyeLike", apply("Expand", Number(0.0), shape=as_shape(shape)))


def _identity_kernel(shape: Shape) -> Term:
    around = tuple(size_of(extent) // 2 for extent in shape[2:])
    kernel = apply("Unsqueeze", _identity(shape[:2]), axes=(2, 3))
    return apply("Pad", kernel, before=(0, 0, *around), after=(0, 0, *around))


def _mean_kernel(shape: Shape) -> Term:
    return apply("Div", _ones(shape), Number(float(size_of(shape[2]) * size_of(shape[3]))))


# Families

_ANY, _DATA, _WEIGHT = Role.ANY, Role.DATA, Role.WEIGHT
_TWO = ("Add", "Mul")
_FOUR = ("Add", "Sub", "Mul", "Div")


def _elementwise(name: str) -> Operation:
    return Operation(name, _same, partial(_by_name, name), (_ANY, _ANY), name in ("Add", "Mul"), elementwise=True)


def _unary(name: str) -> Operation:
    return Operation(name, _same, partial(_by_name, name), (_ANY,), elementwise=True)


def _concat(axis: int, rank: int) -> Operation:
    typing = _of_rank(rank, partial(_joined, axis))
    return Operation(f"Concat{axis} of rank {rank}", typing, partial(_concatenation, axis), (_ANY, _ANY))


def _split(axis: int, which: int, rank: int) -> Operation:
    first, second = (f"Split{axis}.{half} of rank {rank}" for half in (0, 1))
    typing, building = _of_rank(rank, partial(_half, axis, which)), partial(_slice, axis, which)
    if which == 0:
        return Operation(first, typing, building, (_ANY,), second_half=second)
    return Operation(second, typing, building, (_ANY,))


_MATMUL = Operation("MatMul", _of_rank(2, _product), partial(_by_name, "MatMul"), (_ANY, _ANY))
_BATCHED = Operation("MatMul", _product, partial(_by_name, "MatMul"), (_ANY, _ANY))
_ADD, _SUB, _MUL, _DIV = map(_elementwise, ("Add", "Sub", "Mul", "Div"))
_RELU, _EXP = map(_unary, ("Relu", "Exp"))
_SCALE = Operation("Scale", _scaled, partial(_by_name, "Mul"), (_ANY, _ANY), elementwise=True)
_TRANSPOSE = Operation("Transpose", partial(_permuted, (1, 0)), partial(_transposition, (1, 0)), (_ANY,))
_CONV = Operation("Conv", _convolved, _convolution, (_DATA, _WEIGHT))
_CONV_RELU = Operation("ConvRelu", _convolved, _convolution_relu, (_DATA, _WEIGHT))
_DEPTHWISE = Operation("Depthwise", _convolved_by_channel, _depthwise, (_DATA, _WEIGHT))
_POOLS = tuple(Operation(name, _image, partial(_pooled, name), (_DATA,)) for name in ("AveragePool", "MaxPool"))
_ENLARGE = Operation("Enlarge", _enlarged, _padded_kernel, (_WEIGHT,))
_MATRIX = (*(_concat(axis, 2) for axis in (0, 1)), *(_split(axis, which, 2) for axis in (0, 1) for which in (0, 1)))
_IMAGE = (*(_concat(axis, 4) for axis in (0, 1)), *(_split(axis, which, 4) for axis in (0, 1) for which in (0, 1)))


def _inputs(names: str, shape: tuple[str | int, ...], *, weight: bool = False) -> tuple[Input, ...]:
    return tuple(Input(name, shape, weight) for name in names.split())


TASO = Family(
    "taso",
    (
        *_inputs("x1 x2 x3", ("m", "k")),
        *_inputs("w1 w2 w3", ("k", "k2"), weight=True),
        *_inputs("i1 i2 i3", ("n", "c", "h", "w")),
        *_inputs("u1 u2 u3", ("c", "c2", 3, 3), weight=True),
        *_inputs("v1 v2 v3", ("c", "c2", 1, 3), weight=True),
        *_inputs("d1", ("c", 1, 3, 3), weight=True),
        *_inputs("s1", (), weight=True),
        Input("Cpool", ("c", 1, 3, 3), True, _mean_kernel),
        Input("Iconv", ("c", "c", 3, 3), True, _identity_kernel),
        Input("Imm", ("k", "k"), True, _identity),
        Input("One", ("n", "c", "h", "w"), True, _ones),
    ),
    (
        _MATMUL,
        _ADD,
        _MUL,
        _CONV,
        _CONV_RELU,
        _DEPTHWISE,
        *_POOLS,
        _ENLARGE,
        _SCALE,
        _RELU,
        *_MATRIX,
        *_IMAGE,
        _TRANSPOSE,
    ),
    (
        {"m": 2, "k": 4, "k2": 4, "n": 2, "c": 4, "c2": 4, "h": 4, "w": 5},
        {"m": 4, "k": 6, "k2": 6, "n": 4, "c": 2, "c2": 2, "h": 5, "w": 3},
        {"m": 6, "k": 2, "k2": 2, "n": 2, "c": 6, "c2": 6, "h": 2, "w": 5},
    ),
)

_LAST_TWO = (0, 2, 1)
TRANSFORMER = Family(
    "transformer",
    (
        *_inputs("t1 t2 t3", ("b", "m", "k")),
        *_inputs("w1 w2", ("k", "k2"), weight=True),
        *_inputs("v1 v2", ("k",), weight=True),
        *_inputs("r1", ("b", "m", 1)),
        *_inputs("s1", (), weight=True),
    ),
    (
        _BATCHED,
        _ADD,
        _SUB,
        _MUL,
        _DIV,
        _EXP,
        _SCALE,
        Operation("InverseRoot", _row_of_one, _inverse_root, (_DATA,)),
        *(Operation(name, _row, partial(_reduction, name), (_DATA,)) for name in ("ReduceSum", "ReduceMean")),
        *(Operation(f"{name} of rows", _broadcast_rows, partial(_by_name, name), (_ANY, _ANY)) for name in _FOUR),
        *(Operation(f"{name} of a vector", _broadcast_last, partial(_by_name, name), (_ANY, _ANY)) for name in _TWO),
        Operation("Transpose of matrices", partial(_permuted, _LAST_TWO), partial(_transposition, _LAST_TWO), (_ANY,)),
        _concat(2, 3),
        _split(2, 0, 3),
        _split(2, 1, 3),
        _concat(1, 2),
        _split(1, 0, 2),
        _split(1, 1, 2),
    ),
    (
        {"b": 2, "m": 4, "k": 6, "k2": 6},
        {"b": 2, "m": 6, "k": 4, "k2": 4},
        {"b": 4, "m": 2, "k": 4, "k2": 4},
    ),
)
"""Batches of matrices, what is reduced over their rows, and what is broadcast to these."""

_SWAP = (1, 0, 2, 3)
NORMALIZATION = Family(
    "normalization",
    (
        *_inputs("i1 i2", ("n", "c", "h", "w")),
        *_inputs("u1 u2", ("c", "c2", 3, 3), weight=True),
        *_inputs("b1 b2", (1, "c", 1, 1), weight=True),
    ),
    (
        _CONV,
        *(
            Operation(f"{name} by channel", partial(_along, 1), partial(_by_name, name), (_DATA, _WEIGHT))
            for name in _TWO
        ),
        Operation("Mul by filter", partial(_along, 0), partial(_by_name, "Mul"), (_WEIGHT, _WEIGHT)),
        Operation("Mul by input channel", partial(_along, 1), partial(_by_name, "Mul"), (_WEIGHT, _WEIGHT)),
        Operation("Swap", partial(_permuted, _SWAP), partial(_transposition, _SWAP), (_WEIGHT,)),
        _ADD,
        _MUL,
    ),
    (
        {"n": 2, "c": 4, "c2": 4, "h": 4, "w": 5},
        {"n": 4, "c": 6, "c2": 6, "h": 5, "w": 3},
        {"n": 2, "c": 2, "c2": 2, "h": 2, "w": 5},
    ),
)
"""Convolutions, and a factor and a summand of each channel: what a normalization is when a model is compiled."""

FAMILIES = (TASO, TRANSFORMER, NORMALIZATION)
