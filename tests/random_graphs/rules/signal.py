"""Fourier transforms, and the constants that go with them."""

from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.case import Attribute
from tests.random_graphs.draw import Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]


def _number(draw: Draw, number: float, dtype: type = np.int64) -> Value:
    return draw.parameters(np.array(number, dtype))


def _window(draw: Draw) -> Proposal:
    return Proposal([_number(draw, draw.integer(2, 20))], {"periodic": draw.integer(0, 1)})


def _mel_weight_matrix(draw: Draw) -> Proposal:
    edges = [_number(draw, edge, np.float32) for edge in (draw.pick([0, 20, 100]), draw.pick([2000, 3000]))]
    sizes = [draw.integer(2, 8), draw.pick([16, 32, 64]), draw.pick([8000, 16000])]
    return Proposal([*(_number(draw, size) for size in sizes), *edges])


def _dft(draw: Draw) -> Proposal:
    shape = (draw.integer(1, 3), draw.integer(1, 17), draw.pick([1, 1, 2]))
    data = draw.like(shape, draw.dtype(0, "f"), (-4, 4))
    attributes: dict[str, Attribute] = {"inverse": draw.integer(0, 1)}
    if not attributes["inverse"] and shape[-1] == 1 and draw.chance(0.5):
        attributes["onesided"] = 1
    if draw.opset < 20:
        return Proposal([data], {**attributes, "axis": 1})
    return Proposal([data, None, _number(draw, draw.pick([1, -2]))], attributes)


def _stft(draw: Draw) -> Proposal:
    length = draw.pick([4, 5, 8])
    data = draw.like((draw.integer(1, 2), draw.integer(length, 20), 1), draw.dtype(0, "f"), (-4, 4))
    window = draw.like((length,), data.dtype, (0.1, 1)) if draw.chance(0.6) else None
    return Proposal([data, _number(draw, draw.integer(1, 4)), window, _number(draw, length)], {"onesided": 1})


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window),
    "DFT": _dft,
    "MelWeightMatrix": _mel_weight_matrix,
    "STFT": _stft,
}
