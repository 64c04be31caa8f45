"""Recurrent layers in NumPy, step by step: ONNX's reference evaluator reads neither lengths nor activations."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.random_graphs.case import Array, Attribute

_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}
_DEFAULTS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
_Step = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Of the input, the hidden state and the cell: the next two."""


def recurrent(op_type: str, attributes: Mapping[str, Attribute], inputs: Sequence[Array | None]) -> list[Array]:
    """Y, Y_h, and of an LSTM Y_c."""
    data, weights, recurrence, bias, lengths, hidden, cell, peepholes = [*inputs, *[None] * (8 - len(inputs))]
    assert data is not None and weights is not None and recurrence is not None
    steps, batch, _ = data.shape
    directions, size = recurrence.shape[0], recurrence.shape[-1]
    names = list(attributes.get("activations") or _DEFAULTS[op_type] * directions)
    each = len(names) // directions
    states = (directions, batch, size)
    every, last, cells = np.zeros((steps, *states)), np.zeros(states), np.zeros(states)
    for d in range(directions):
        functions = [_FUNCTIONS[name] for name in names[d * each : (d + 1) * each]]
        offset = np.zeros(2 * weights.shape[1]) if bias is None else bias[d]
        peephole = np.zeros(3 * size) if peepholes is None else peepholes[d]
        step = _step(op_type, attributes, functions, (weights[d], recurrence[d], offset, peephole))
        for b in range(batch):
            count = steps if lengths is None else int(lengths[b])
            backward = attributes.get("direction") == "reverse" or d == 1
            h = np.zeros(size) if hidden is None else hidden[d, b]
            c = np.zeros(size) if cell is None else cell[d, b]
            for t in reversed(range(count)) if backward else range(count):
                h, c = step(data[t, b], h, c)
                every[t, d, b] = h
            last[d, b], cells[d, b] = h, c
    return [every, last, cells] if op_type == "LSTM" else [every, last]


def _step(
    op_type: str,
    attributes: Mapping[str, Attribute],
    functions: Sequence[Callable[[Array], Array]],
    parameters: tuple[Array, Array, Array, Array],
) -> _Step:
    weights, recurrence, bias, peephole = parameters
    size = recurrence.shape[-1]
    wb, rb = np.split(bias, 2)

    def rnn(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        return functions[0](weights @ x + wb + recurrence @ h + rb), c

    def gru(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        f, g = functions
        own = np.split(weights @ x + wb, 3)
        rz, rr, rh = np.split(recurrence, 3)
        bz, br, bh = np.split(rb, 3)
        z, r = f(own[0] + rz @ h + bz), f(own[1] + rr @ h + br)
        inner = r * (rh @ h + bh) if attributes.get("linear_before_reset") else rh @ (r * h) + bh
        return (1 - z) * g(own[2] + inner) + z * h, c

    def lstm(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        f, g, k = functions
        i, o, forget, new = np.split(weights @ x + wb + recurrence @ h + rb, 4)
        pi, po, pf = peephole[:size], peephole[size : 2 * size], peephole[2 * size :]
        following = f(forget + pf * c) * c + f(i + pi * c) * g(new)
        return f(o + po * following) * k(following), following

    return {"RNN": rnn, "GRU": gru, "LSTM": lstm}[op_type]
