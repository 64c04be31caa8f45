"""Recurrent layers: each becomes one direction of an ONNX layer.

Here the inputs' contribution is a separate product before the layer; ONNX's layer contains it. If that product is
found, its weight becomes the layer's; else the layer gets the identity as a weight, which is correct but slow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import i32
from tilewright.frontend.onnx.write.forms.form import FormFunction, Writing
from tilewright.graph import Array, Value
from tilewright.ops.recurrent_activations import FORMS as ACTIVATIONS
from tilewright.ops.shapes import same_extent, static
from tilewright.symbolic.expr import const


@dataclass(frozen=True, slots=True)
class _Entering:
    """Inputs of ONNX's layer: the data and its weight, by name, and the bias of the gates."""

    x: str
    weight: str
    bias: Value | None


def _entering(writing: Writing, gates: int) -> _Entering:
    """The operands of the product before the layer, or the identity."""
    found = _product(writing, gates)
    if found is not None:
        return found
    sums = writing.value(0)
    return _Entering(sums.name, writing.constant(np.eye(gates, dtype=sums.dtype.numpy)[np.newaxis]), None)


def _product(writing: Writing, gates: int) -> _Entering | None:
    """The Gemm that computes the gates' sums of all steps, from the data as a matrix."""
    outer = _maker(writing, "Reshape")
    gemm = None if outer is None else _maker(outer, "Gemm")
    rows = None if gemm is None else _maker(gemm, "Reshape")
    if gemm is None or rows is None:
        return None
    x, weight, bias = rows.value(0), gemm.value(1), gemm.optional(2)
    is_plain = gemm.number("alpha") == gemm.number("beta") == 1.0 and not gemm.integer("transpose_a")
    same_steps = len(x.shape) == 3 and all(map(same_extent, x.shape[:2], writing.value(0).shape[:2]))
    if not (is_plain and gemm.integer("transpose_b") and same_steps and same_extent(x.shape[2], weight.shape[1])):
        return None
    if bias is not None and bias.shape != (const(gates),):
        return None
    return _Entering(x.name, writing.unsqueezed(weight, 0), bias)


def _maker(writing: Writing, op: str) -> Writing | None:
    """The node that computes the first input, if it is an ``op``."""
    node = writing.writer.producers.get(writing.value(0))
    return Writing(node, writing.writer) if node is not None and node.op.name == op else None


def _biases(writing: Writing, parts: Sequence[Value | Array]) -> str:
    """Concatenated vectors, with a dimension of directions: ``[1, elements]``."""
    arrays = [part if isinstance(part, np.ndarray) else writing.known(part) for part in parts]
    known = [array for array in arrays if array is not None]
    if len(known) == len(parts):
        return writing.constant(np.concatenate(known)[np.newaxis])
    names = [writing.constant(part) if isinstance(part, np.ndarray) else part.name for part in parts]
    return writing.apply("Unsqueeze", [writing.apply("Concat", names, axis=0), writing.vector((0,))])


def _with_direction(writing: Writing, position: int) -> str:
    """An input with a dimension of directions in front; ``""`` if it is left out."""
    value = writing.optional(position)
    return "" if value is None else writing.unsqueezed(value, 0)


def _lengths(writing: Writing, position: int) -> str:
    value = writing.optional(position)
    return "" if value is None else writing.cast(value.name, value.dtype, i32)


def _write(writing: Writing, operands: Sequence[str], hidden: int, **more: int) -> None:
    """The layer, and its results without the dimension of directions."""
    op = writing.node.op.name
    names = writing.texts("activations")
    forms = [ACTIVATIONS[name] for name in names]
    alphas = [a for a, form in zip(writing.floats("alphas"), forms, strict=True) if form.alpha is not None]
    betas = [b for b, form in zip(writing.floats("betas"), forms, strict=True) if form.beta is not None]
    results = writing.apply_many(
        op,
        operands,
        3 if op == "LSTM" else 2,
        hidden_size=hidden,
        direction="reverse" if writing.integer("reverse") else "forward",
        activations=names,
        activation_alpha=alphas or None,
        activation_beta=betas or None,
        clip=writing.number("clip") or None,
        **more,
    )
    for position, name in enumerate(results):
        axis = writing.vector((0 if position else 1,))
        writing.result_at(position, "Squeeze", [name, axis])


def _hidden(writing: Writing) -> int:
    extents = static(writing.value(1).shape)
    if extents is None:
        raise writing.unsupported("its weights have run-time extents; give the model's shapes")
    return extents[1]


def _lstm(writing: Writing) -> None:
    hidden = _hidden(writing)
    entering = _entering(writing, 4 * hidden)
    zeros = np.zeros(4 * hidden, writing.value(0).dtype.numpy)
    bias = "" if entering.bias is None else _biases(writing, [entering.bias, zeros])
    states = [_with_direction(writing, position) for position in (2, 3, 4)]
    operands = [entering.x, entering.weight, _with_direction(writing, 1), bias, _lengths(writing, 5), *states]
    _write(writing, operands, hidden, input_forget=writing.integer("input_forget"))


def _gru(writing: Writing) -> None:
    """The recurrent weights have two parts; the bias of the last one is added only after the reset."""
    hidden, dtype = _hidden(writing), writing.value(0).dtype.numpy
    entering = _entering(writing, 3 * hidden)
    linear, late = writing.integer("linear_before_reset"), writing.optional(3)
    first = np.zeros(3 * hidden, dtype) if entering.bias is None else entering.bias
    last = late if linear and late is not None else np.zeros(hidden, dtype)
    bias = _biases(writing, [first, np.zeros(2 * hidden, dtype), last])
    recurrent = writing.apply("Concat", [_with_direction(writing, position) for position in (1, 2)], axis=1)
    operands = [entering.x, entering.weight, recurrent, bias, _lengths(writing, 5), _with_direction(writing, 4)]
    _write(writing, operands, hidden, linear_before_reset=linear)


def _rnn(writing: Writing) -> None:
    hidden = _hidden(writing)
    entering = _entering(writing, hidden)
    zeros = np.zeros(hidden, writing.value(0).dtype.numpy)
    bias = "" if entering.bias is None else _biases(writing, [entering.bias, zeros])
    operands = [entering.x, entering.weight, _with_direction(writing, 1), bias, _lengths(writing, 3)]
    _write(writing, [*operands, _with_direction(writing, 2)], hidden)


FORMS: Mapping[str, FormFunction] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
