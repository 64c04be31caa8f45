"""Quantization. Scales are powers of two: then dividing by them is exact, and ties are no matter of rounding."""

from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.draw import Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]


def _scale(draw: Draw, data: Value, dtype: np.dtype[np.generic]) -> tuple[Value, tuple[int, ...], dict[str, int]]:
    """One scale, or one for each entry of an axis."""
    shape, attributes = (), {}
    if data.rank and draw.opset >= 13 and draw.chance(0.4):
        axis = draw.axis(data.rank)
        shape, attributes = (data.shape[axis],), {"axis": axis}
    powers = np.array([2.0 ** draw.integer(-5, 0) for _ in range(int(np.prod(shape)))]).reshape(shape)
    return draw.parameters(powers.astype(dtype)), shape, attributes


def _quantize(draw: Draw) -> Proposal:
    data = draw.value(kinds="f")
    scale, shape, attributes = _scale(draw, data, data.dtype if draw.opset >= 19 else np.dtype(np.float32))
    if draw.chance(0.2):
        return Proposal([data, scale], attributes)
    point = draw.elements(shape, draw.dtype(2, "iu"))
    return Proposal([data, scale, draw.parameters(point)], attributes)


def _dequantize(draw: Draw) -> Proposal:
    data = draw.value(kinds="iu")
    scale, shape, attributes = _scale(draw, data, np.dtype(np.float32))
    if data.dtype == np.int32 or draw.chance(0.2):
        return Proposal([data, scale], attributes)
    return Proposal([data, scale, draw.parameters(draw.elements(shape, data.dtype))], attributes)


def _dynamic_quantize(draw: Draw) -> Proposal:
    return Proposal([draw.value(rank=(1, 4), where=lambda v: 0 not in v.shape)], {}, 3)


RULES: Mapping[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QuantizeLinear": _quantize,
}
