"""The built-in families: sets of operations and inputs for which rules are generated.

The first is the set of Jia et al. (TASO, section 3). Its operators that this graph IR lacks are compositions: enlarging
a kernel is padding, a convolution with an activation is two operators.

To add an operation, write a function that returns its term, and one that states which extents must be equal
(``well_typed``). Its semantics and shapes follow from the operators that it is composed of.
"""

from collections.abc import Sequence
from functools import partial

from tilewright.ops import Attribute, Trait
from tilewright.ops.operator import require
from tilewright.passes.rules.terms import Number, Term
from tilewright.superopt.generate.extents import Extent, Shape, as_attribute, as_shape, difference, size_of
from tilewright.superopt.generate.operations import Family, Input, Operation, Role, apply
from tilewright.superopt.generate.well_typed import (
    along,
    broadcast_to_rows,
    convolved,
    convolved_by_channel,
    enlarged,
    half,
    image,
    joined,
    number_of_each_row,
    of_rank,
    permuted,
    product_of_matrices,
    reduced_rows,
    rows_of_one,
    same_shape,
    scaled,
)
from tilewright.symbolic.expr import Expr

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
    """Pooling with windows of 3 x 3; the mean includes padding, as in a convolution."""
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
    """The start and the end of half number ``which`` of ``whole``."""
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


def elementwise(name: str) -> Operation:
    """An operation with two operands of the same shape."""
    commutes = require(name).has(Trait.COMMUTATIVE)
    return Operation(name, same_shape, partial(_by_name, name), (_ANY, _ANY), commutes, elementwise=True)


def unary(name: str) -> Operation:
    """An elementwise operation with one operand."""
    return Operation(name, same_shape, partial(_by_name, name), (_ANY,), elementwise=True)


def _concat(axis: int, rank: int) -> Operation:
    typing = of_rank(rank, partial(joined, axis))
    return Operation(f"Concat{axis} of rank {rank}", typing, partial(_concatenation, axis), (_ANY, _ANY))


def _split(axis: int, which: int, rank: int) -> Operation:
    first, second = (f"Split{axis}.{half} of rank {rank}" for half in (0, 1))
    typing, building = of_rank(rank, partial(half, axis, which)), partial(_slice, axis, which)
    if which == 0:
        return Operation(first, typing, building, (_ANY,), second_half=second)
    return Operation(second, typing, building, (_ANY,))


_MATMUL = Operation("MatMul", of_rank(2, product_of_matrices), partial(_by_name, "MatMul"), (_ANY, _ANY))
_BATCHED = Operation("MatMul", product_of_matrices, partial(_by_name, "MatMul"), (_ANY, _ANY))
_ADD, _SUB, _MUL, _DIV = map(elementwise, ("Add", "Sub", "Mul", "Div"))
_RELU, _EXP = map(unary, ("Relu", "Exp"))
_SCALE = Operation("Scale", scaled, partial(_by_name, "Mul"), (_ANY, _ANY), elementwise=True)
_TRANSPOSE = Operation("Transpose", partial(permuted, (1, 0)), partial(_transposition, (1, 0)), (_ANY,))
_CONV = Operation("Conv", convolved, _convolution, (_DATA, _WEIGHT))
_CONV_RELU = Operation("ConvRelu", convolved, _convolution_relu, (_DATA, _WEIGHT))
_DEPTHWISE = Operation("Depthwise", convolved_by_channel, _depthwise, (_DATA, _WEIGHT))
_POOLS = tuple(Operation(name, image, partial(_pooled, name), (_DATA,)) for name in ("AveragePool", "MaxPool"))
_ENLARGE = Operation("Enlarge", enlarged, _padded_kernel, (_WEIGHT,))
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
        Operation("InverseRoot", rows_of_one, _inverse_root, (_DATA,)),
        *(Operation(name, reduced_rows, partial(_reduction, name), (_DATA,)) for name in ("ReduceSum", "ReduceMean")),
        *(Operation(f"{name} of rows", number_of_each_row, partial(_by_name, name), (_ANY, _ANY)) for name in _FOUR),
        *(Operation(f"{name} of a vector", broadcast_to_rows, partial(_by_name, name), (_ANY, _ANY)) for name in _TWO),
        Operation("Transpose of matrices", partial(permuted, _LAST_TWO), partial(_transposition, _LAST_TWO), (_ANY,)),
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
"""Batches of matrices, reductions of their rows, and broadcasts to rows."""

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
            Operation(f"{name} by channel", partial(along, 1), partial(_by_name, name), (_DATA, _WEIGHT))
            for name in _TWO
        ),
        Operation("Mul by filter", partial(along, 0), partial(_by_name, "Mul"), (_WEIGHT, _WEIGHT)),
        Operation("Mul by input channel", partial(along, 1), partial(_by_name, "Mul"), (_WEIGHT, _WEIGHT)),
        Operation("Swap", partial(permuted, _SWAP), partial(_transposition, _SWAP), (_WEIGHT,)),
        _ADD,
        _MUL,
    ),
    (
        {"n": 2, "c": 4, "c2": 4, "h": 4, "w": 5},
        {"n": 4, "c": 6, "c2": 6, "h": 5, "w": 3},
        {"n": 2, "c": 2, "c2": 2, "h": 2, "w": 5},
    ),
)
"""Convolutions, and a factor and a summand for each channel, as in batch normalization at inference."""
