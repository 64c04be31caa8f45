"""Recurrent layers."""

from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.case import Attribute
from tests.random_graphs.draw import Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_FUNCTIONS = {"GRU": 2, "LSTM": 3, "RNN": 1}
_ACTIVATIONS = ("Tanh", "Sigmoid", "Relu")


def _recurrent(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(3, 3), kinds="f", within=(-5, 5), where=lambda v: v.shape[0] < 8 and 0 not in v.shape)
    length, batch, features = data.shape
    if length > 8 or 0 in data.shape or data.dtype != np.float32:  # ONNX Runtime's kernels stop at other dtypes
        return None
    hidden, gates = draw.integer(1, 9), _GATES[draw.op_type]
    direction = draw.pick(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    weights = [(count, gates * hidden, features), (count, gates * hidden, hidden), (count, 2 * gates * hidden)]
    inputs: list[Value | None] = [data, *(_operand(draw, shape, data) for shape in weights[:2])]
    inputs.append(_operand(draw, weights[2], data) if draw.chance(0.7) else None)
    lengths = np.array(draw.integers(batch, 1, length), np.int32)
    inputs.append(draw.input(lengths) if draw.chance(0.3) else None)
    inputs.append(_operand(draw, (count, batch, hidden), data) if draw.chance(0.5) else None)
    if draw.op_type == "LSTM":
        inputs.append(_operand(draw, (count, batch, hidden), data) if draw.chance(0.5) else None)
        inputs.append(_operand(draw, (count, 3 * hidden), data) if draw.chance(0.3) else None)
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, Attribute] = {"hidden_size": hidden, "direction": direction}
    if draw.op_type == "GRU" and draw.chance(0.5):
        attributes["linear_before_reset"] = 1
    if draw.chance(0.2):
        attributes["activations"] = [draw.pick(_ACTIVATIONS) for _ in range(count * _FUNCTIONS[draw.op_type])]
    return Proposal(inputs, attributes, draw.integer(1, 3 if draw.op_type == "LSTM" else 2))


def _operand(draw: Draw, shape: tuple[int, ...], data: Value) -> Value:
    return draw.fresh(shape, data.dtype, (-1, 1))


RULES: Mapping[str, Rule] = dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent)
