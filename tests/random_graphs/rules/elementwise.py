"""Elementwise operators: one operand in the operator's domain, and others that broadcast with it."""

from collections.abc import Callable, Mapping

import numpy as np
from onnx.helper import np_dtype_to_tensor_dtype

from tests.random_graphs.draw import DTYPES, Draw, Proposal

Rule = Callable[[Draw], Proposal | None]
Range = tuple[float, float]

_ANY: Range | None = None
_UNARY: Mapping[str, Range | None] = {
    "Abs": _ANY,
    "Acos": (-0.95, 0.95),
    "Acosh": (1.1, 50),
    "Asin": (-0.95, 0.95),
    "Asinh": (-50, 50),
    "Atan": _ANY,
    "Atanh": (-0.95, 0.95),
    "BitwiseNot": _ANY,
    "Ceil": _ANY,
    "Cos": (-20, 20),
    "Cosh": (-5, 5),
    "Erf": _ANY,
    "Exp": (-8, 5),
    "Floor": _ANY,
    "HardSwish": _ANY,
    "Identity": _ANY,
    "IsNaN": _ANY,
    "Log": (0.05, 1000),
    "Mish": (-20, 20),
    "Neg": _ANY,
    "Not": _ANY,
    "Reciprocal": (0.1, 100),
    "Relu": _ANY,
    "Round": _ANY,
    "Sigmoid": _ANY,
    "Sign": _ANY,
    "Sin": (-20, 20),
    "Sinh": (-5, 5),
    "Softplus": (-20, 20),
    "Softsign": _ANY,
    "Sqrt": (0.01, 1000),
    "Tan": (-1.3, 1.3),
    "Tanh": _ANY,
}
"""Operators of one operand without attributes, and where they are well-conditioned and finite."""

_ATTRIBUTES: Mapping[str, Mapping[str, Range]] = {
    "Celu": {"alpha": (0.3, 2)},
    "Elu": {"alpha": (0.3, 2)},
    "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.2, 0.8)},
    "LeakyRelu": {"alpha": (-0.5, 0.5)},
    "Selu": {"alpha": (1, 2), "gamma": (1, 2)},
    "Shrink": {"lambd": (0.1, 1), "bias": (0, 1)},
    "Swish": {"alpha": (0.5, 2)},
    "ThresholdedRelu": {"alpha": (0.1, 1)},
}
"""Operators of one operand with float attributes."""

_BINARY = "Add Sub Mul And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual BitwiseAnd BitwiseOr BitwiseXor"
_VARIADIC = "Max Min Sum Mean"


def _unary(within: Range | None) -> Rule:
    def rule(draw: Draw) -> Proposal:
        return Proposal([draw.value(within=within)])

    return rule


def _with_attributes(ranges: Mapping[str, Range]) -> Rule:
    def rule(draw: Draw) -> Proposal:
        chosen = {name: round(draw.elements((), np.dtype(float), r).item(), 2) for name, r in ranges.items()}
        return Proposal([draw.value(within=(-8, 50))], {} if draw.chance(0.3) else chosen)

    return rule


def _binary(draw: Draw) -> Proposal:
    first = draw.value()
    second = first if draw.chance(0.05) else draw.broadcast(first, first.dtype)
    return Proposal([first, second] if draw.chance(0.5) else [second, first])


def _prelu(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4))
    shape = tuple(1 if draw.chance(0.3) else extent for extent in data.shape[draw.integer(0, data.rank - 1) :])
    return Proposal([data, draw.like(shape, data.dtype)])


def _variadic(draw: Draw) -> Proposal:
    first = draw.value()
    return Proposal([first, *(draw.broadcast(first, first.dtype) for _ in range(draw.integer(0, 3)))])


def _div(draw: Draw) -> Proposal:
    numerator = draw.value()
    low = 1.0 if numerator.dtype.kind in "iu" else 0.2
    return Proposal([numerator, draw.broadcast(numerator, numerator.dtype, (low, 100))])


def _mod(draw: Draw) -> Proposal:
    """Of integers: near a multiple, the remainder of a float is decided by rounding."""
    data = draw.value(kinds="iu")
    within = (1, 20) if draw.chance(0.7) or data.dtype.kind == "u" else (-20, -2)
    return Proposal([data, draw.broadcast(data, data.dtype, within)], {"fmod": draw.integer(0, 1)})


def _pow(draw: Draw) -> Proposal:
    base = draw.value(kinds="f", within=(0.2, 8)) if draw.chance(0.7) else draw.value(kinds="i", within=(-6, 6))
    kinds = "f" if base.dtype.kind == "f" and draw.chance(0.7) else "i"
    exponent = draw.dtype(1, kinds)
    within = (-2, 3) if base.dtype.kind == "f" else (0, 3)
    return Proposal([base, draw.broadcast(base, exponent, within)])


def _clip(draw: Draw) -> Proposal:
    data = draw.value()
    low, high = sorted(draw.elements((2,), data.dtype).tolist())
    if draw.opset < 11:
        if data.dtype != np.float32:
            return Proposal([data])
        return Proposal([data], {"min": low, "max": high})
    bounds = [draw.constant(np.array(bound, data.dtype)) if draw.chance(0.8) else None for bound in (low, high)]
    return Proposal([data, *bounds])


def _cast(draw: Draw) -> Proposal | None:
    data = draw.value()
    choices = [name for name, dtype in DTYPES.items() if _fits(data.estimate.exact, dtype)]
    if not choices:
        return None
    to = DTYPES[draw.pick(choices)]
    if draw.op_type == "CastLike":
        return Proposal([data, draw.fresh((1,), to)])
    return Proposal([data], {"to": int(np_dtype_to_tensor_dtype(to))})


def _fits(elements: np.ndarray, dtype: np.dtype[np.generic]) -> bool:
    """Whether every element is in the range of ``dtype``: what becomes of others, ONNX does not say."""
    if dtype.kind in "bf" or not elements.size:
        return dtype != np.float16 or bool((np.abs(elements) < 1000).all())
    info = np.iinfo(dtype)
    return bool(((elements >= info.min) & (elements < float(info.max))).all())


def _where(draw: Draw) -> Proposal:
    data = draw.value(1)
    return Proposal([draw.broadcast(data, np.dtype(bool)), data, draw.broadcast(data, data.dtype)])


def _gelu(draw: Draw) -> Proposal:
    return Proposal([draw.value(within=(-10, 10))], {"approximate": draw.pick(["none", "tanh"])})


def _is_inf(draw: Draw) -> Proposal:
    flags = {"detect_negative": draw.integer(0, 1), "detect_positive": draw.integer(0, 1)}
    return Proposal([draw.value()], flags if draw.chance(0.5) else {})


def _bit_shift(draw: Draw) -> Proposal:
    data = draw.value()
    distance = draw.broadcast(data, data.dtype, (0, data.dtype.itemsize * 8 - 1))
    return Proposal([data, distance], {"direction": draw.pick(["LEFT", "RIGHT"])})


def _dropout(draw: Draw) -> Proposal:
    return Proposal([draw.value()], {}, draw.integer(1, 2))


RULES: Mapping[str, Rule] = {
    **{name: _unary(within) for name, within in _UNARY.items()},
    **{name: _with_attributes(ranges) for name, ranges in _ATTRIBUTES.items()},
    **dict.fromkeys(_BINARY.split(), _binary),
    **dict.fromkeys(_VARIADIC.split(), _variadic),
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip,
    "Div": _div,
    "Dropout": _dropout,
    "Gelu": _gelu,
    "IsInf": _is_inf,
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "Where": _where,
}
