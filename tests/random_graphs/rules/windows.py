"""Convolutions and pooling: windows that slide over one to three spatial dimensions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.random_graphs.case import Attribute
from tests.random_graphs.draw import CHANNELS, Draw, DType, Proposal, Value

Rule = Callable[[Draw], Proposal | None]
MAX_INPUT = 3000
MAX_WEIGHT = 5000


@dataclass(frozen=True)
class _Window:
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    auto_pad: str

    def attributes(self, draw: Draw, names: Sequence[str]) -> dict[str, Attribute]:
        """What a node would say; defaults are sometimes left out."""
        given: dict[str, Attribute] = {}
        for name in names:
            values: list[int] = getattr(self, name)
            if any(v != (0 if name == "pads" else 1) for v in values) or draw.chance(0.5):
                given[name] = values
        if self.auto_pad != "NOTSET":
            given.pop("pads", None)
            given["auto_pad"] = self.auto_pad
        return given


def _window(draw: Draw, spatial: Sequence[int], *, dilated: bool = True, most_pad: bool = False) -> _Window | None:
    """A window that fits in ``spatial`` at least once."""
    kernel = [draw.integer(1, min(extent, 4)) if extent > 1 else 1 for extent in spatial]
    dilations = [1] * len(spatial)
    if dilated and draw.chance(0.25):
        dilations = [
            draw.integer(1, max(1, min(3, (e - 1) // max(k - 1, 1)))) for e, k in zip(spatial, kernel, strict=True)
        ]
    strides = draw.integers(len(spatial), 1, 3) if draw.chance(0.5) else [1] * len(spatial)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(r > e for r, e in zip(reach, spatial, strict=True)):
        return None
    limit = [k - 1 if most_pad else k for k in kernel]
    pads = [draw.integer(0, high) for _ in range(2) for high in limit] if draw.chance(0.6) else [0] * 2 * len(spatial)
    auto_pad = "NOTSET" if draw.chance(0.75) else draw.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if auto_pad.startswith("SAME"):
        dilations = [1] * len(spatial)
    return _Window(kernel, strides, dilations, pads, auto_pad)


def _grid(draw: Draw, dtype: DType | None = None, within: tuple[float, float] | None = (-20, 20)) -> Value:
    """A value with batch, channels and one to three spatial dimensions."""
    dtype = draw.dtype() if dtype is None else dtype

    def fits(value: Value) -> bool:
        return (
            value.dtype == dtype
            and 3 <= value.rank <= 5
            and 0 not in value.shape
            and value.within(*(within or (-1e9, 1e9)))
        )

    known = draw.reused(fits)
    if known is not None:
        return known
    rank = draw.pick([1, 2, 2, 2, 3])
    extents = [draw.pick((1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13)) for _ in range(rank)]
    shape = [draw.pick((1, 1, 2, 3)), draw.pick(CHANNELS), *extents]
    while math.prod(shape) > MAX_INPUT:
        place = int(np.argmax(shape[2:])) + 2
        shape[place if shape[place] > 3 else 1] //= 2
    return draw.fresh(shape, dtype, None)


def _conv(draw: Draw) -> Proposal | None:
    data = _grid(draw)
    window = _window(draw, data.shape[2:])
    if window is None:
        return None
    channels = data.shape[1]
    group = draw.pick([1, 1, 1, channels, draw.pick([d for d in range(1, channels + 1) if channels % d == 0])])
    outputs = group * draw.pick([1, 1, 2, 3]) if group > 1 else draw.pick(CHANNELS)
    weight = _weight(draw, data.dtype, [outputs, channels // group, *window.kernel])
    inputs = [data, weight]
    if draw.chance(0.6):
        inputs.append(draw.like((weight.shape[0],), data.dtype))
    return Proposal(inputs, _conv_attributes(draw, window, group))


def _weight(draw: Draw, dtype: DType, shape: list[int]) -> Value:
    while math.prod(shape) > MAX_WEIGHT:
        shape[0] = max(1, shape[0] // 2) if shape[0] % 2 == 0 else 1
    return draw.fresh(shape, dtype, (-1, 1)) if dtype.kind == "f" else draw.fresh(shape, dtype)


def _conv_attributes(draw: Draw, window: _Window, group: int) -> dict[str, Attribute]:
    attributes = window.attributes(draw, ["strides", "dilations", "pads"])
    if draw.chance(0.5):
        attributes["kernel_shape"] = window.kernel
    if group > 1 or draw.chance(0.2):
        attributes["group"] = group
    return attributes


def _conv_transpose(draw: Draw) -> Proposal | None:
    data = _grid(draw)
    window = _window(draw, data.shape[2:], most_pad=True)
    if window is None or window.auto_pad != "NOTSET":
        return None
    channels = data.shape[1]
    group = draw.pick([1, 1, channels, draw.pick([d for d in range(1, channels + 1) if channels % d == 0])])
    weight = [channels, draw.pick([1, 2, 3, 8, 16, 17]) if group < 5 else draw.integer(1, 2), *window.kernel]
    if math.prod(weight) > MAX_WEIGHT:
        weight[1] = 1
    inputs = [data, draw.fresh(weight, data.dtype, (-1, 1))]
    if draw.chance(0.6):
        inputs.append(draw.like((weight[1] * group,), data.dtype))
    attributes = _conv_attributes(draw, window, group)
    if draw.chance(0.3):
        attributes["output_padding"] = [draw.integer(0, s - 1) for s in window.strides]
    return Proposal(inputs, attributes)


def _conv_integer(draw: Draw) -> Proposal | None:
    data = _grid(draw)
    window = _window(draw, data.shape[2:])
    if window is None:
        return None
    weight = _weight(draw, draw.dtype(1), [draw.pick(CHANNELS), data.shape[1], *window.kernel])
    points = [draw.parameters(draw.elements((), v.dtype)) if draw.chance(0.6) else None for v in (data, weight)]
    return Proposal([data, weight, *points], _conv_attributes(draw, window, 1))


def _qlinear_conv(draw: Draw) -> Proposal | None:
    """Scales are powers of two, so that what is rounded is exact in float32 and in float64."""
    data = _grid(draw)
    window = _window(draw, data.shape[2:])
    if window is None:
        return None
    weight = _weight(draw, draw.dtype(3), [draw.pick(CHANNELS), data.shape[1], *window.kernel])
    result = draw.dtype(7)

    def scale(high: int) -> Value:
        return draw.parameters(np.array(2.0 ** draw.integer(-4, high), np.float32))

    inputs: list[Value] = []
    for value in (data, weight):
        point = np.zeros((), value.dtype) if value is weight else draw.elements((), value.dtype)
        inputs += [value, scale(-1), draw.parameters(point)]
    inputs += [scale(2), draw.parameters(draw.elements((), result))]
    if draw.chance(0.5):
        inputs.append(draw.fresh((weight.shape[0],), np.dtype(np.int32)))
    return Proposal(inputs, _conv_attributes(draw, window, 1))


def _pool(draw: Draw) -> Proposal | None:
    data = _grid(draw, None, None)
    window = _window(draw, data.shape[2:], dilated=_dilates(draw), most_pad=True)
    if window is None:
        return None
    names = ["strides", "dilations", "pads"] if _dilates(draw) else ["strides", "pads"]
    attributes = {"kernel_shape": window.kernel, **window.attributes(draw, names)}
    if draw.op_type == "AveragePool" and draw.chance(0.5):
        attributes["count_include_pad"] = 1
    if draw.op_type == "LpPool":
        attributes["p"] = draw.integer(1, 3)
    if draw.opset >= (18 if draw.op_type == "LpPool" else 10) and draw.chance(0.25):
        attributes["ceil_mode"] = 1
    two = draw.op_type == "MaxPool" and draw.chance(0.25)
    return Proposal([data], attributes, 2 if two else 1)


def _dilates(draw: Draw) -> bool:
    first = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}
    return draw.opset >= first[draw.op_type]


def _global_pool(draw: Draw) -> Proposal:
    attributes = {"p": draw.integer(1, 3)} if draw.op_type == "GlobalLpPool" else {}
    return Proposal([_grid(draw)], attributes)


def _max_unpool(draw: Draw) -> Proposal:
    """The maxima of windows of two by two, put back to places in them."""
    shape = (draw.integer(1, 2), draw.pick([1, 3, 16]), draw.integer(1, 4), draw.integer(1, 4))
    data = draw.like(shape, draw.dtype(0, "f"))
    height, width = shape[2] * 2, shape[3] * 2
    places = np.empty(shape, np.int64)
    for n, c, y, x in np.ndindex(*shape):
        row, column = y * 2 + draw.integer(0, 1), x * 2 + draw.integer(0, 1)
        places[n, c, y, x] = ((n * shape[1] + c) * height + row) * width + column
    return Proposal([data, draw.input(places)], {"kernel_shape": [2, 2], "strides": [2, 2]})


RULES: Mapping[str, Rule] = {
    "AveragePool": _pool,
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global_pool,
    "GlobalLpPool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MaxUnpool": _max_unpool,
    "QLinearConv": _qlinear_conv,
}
