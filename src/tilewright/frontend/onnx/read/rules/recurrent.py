"""ONNX's recurrent layers: one product with the inputs of all steps, then a scan, for each direction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.ops.recurrent_activations import FORMS
from tilewright.symbolic.expr import Const, const

_RANKS = {0: 3, 1: 3, 2: 3, 3: 2, 5: 3, 6: 3, 7: 2}
"""The rank of each input: data, weights, biases, initial states, peepholes."""
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each direction: whether time runs backwards."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of layer: its gates, its activations, and its state inputs (without peepholes)."""

    gates: int
    activations: tuple[str, ...]
    states: int
    step: Callable[["_Direction"], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction of a layer and its parts of the model's inputs. ``position``: its index among the directions."""

    request: Request
    kind: _Kind
    position: int
    options: Mapping[str, Attribute]
    hidden: int

    def part(self, position: int, axis: int = 0) -> Value | None:
        """The part of an input with a dimension of directions for this one, without that dimension."""
        value = self.request.optional(position)
        if value is None:
            return None
        own = _piece(self.request, value, axis, self.position, self.position + 1)
        return self.request.apply("Squeeze", own, axes=(axis,))

    def weight(self, position: int) -> Value:
        """A weight of this direction, ``[gates * hidden, inputs]``. Raises ``InvalidModel`` if it is missing."""
        value = self.part(position)
        if value is None:
            raise self.request.invalid(f"input {position}, a weight, is missing")
        return value

    def state(self, position: int) -> Value | None:
        """An initial state, ``[batch, hidden]``."""
        return self.part(position, axis=self.request.integer("layout", 0))

    def biases(self) -> tuple[Value, Value] | None:
        """The biases of the inputs' product and of the recurrent one, if there are any."""
        bias = self.part(3)
        if bias is None:
            return None
        width = self.kind.gates * self.hidden
        if bias.shape != (const(2 * width),):
            raise self.request.invalid(f"the bias {self.request.input(3)!r} should have {2 * width} elements")
        return _piece(self.request, bias, 0, 0, width), _piece(self.request, bias, 0, width, 2 * width)

    def entering(self, bias: Value | None) -> Value:
        """The product of all steps' inputs with the weights: ``[steps, batch, gates * hidden]``."""
        x, apply = self.request.input(0), self.request.apply
        if self.request.integer("layout", 0):
            x = apply("Transpose", x, perm=(1, 0, 2))
        rows = apply("Reshape", x, shape=(-1, x.shape[2]))
        product = apply("Gemm", rows, self.weight(1), bias, transpose_b=True)
        return apply("Reshape", product, shape=(x.shape[0], x.shape[1], product.shape[1]))

    def summed_bias(self) -> Value | None:
        """The sum of both biases, ``[gates * hidden]``."""
        biases = self.biases()
        return None if biases is None else self.request.apply("Add", *biases)


def _piece(request: Request, value: Value, axis: int, start: int, end: int) -> Value:
    """``value[start:end]`` along ``axis``."""
    if start == 0 and value.shape[axis] == end:
        return value
    return request.apply("Slice", value, starts=(start,), ends=(end,), axes=(axis,))


def _lstm(direction: _Direction) -> Sequence[Value]:
    request = direction.request
    options = {**direction.options, "input_forget": bool(request.integer("input_forget", 0))}
    operands = [
        direction.entering(direction.summed_bias()),
        direction.weight(2),
        direction.state(5),
        direction.state(6),
        direction.part(7),
        request.optional(4),
    ]
    return request.apply_many("LSTM", operands, 3, **options)


def _gru(direction: _Direction) -> Sequence[Value]:
    """If the reset follows the product, so does the recurrent bias of the last gate."""
    request, hidden = direction.request, direction.hidden
    linear = bool(request.integer("linear_before_reset", 0))
    weights, biases = direction.weight(2), direction.biases()
    bias, late = direction.summed_bias(), None
    if linear and biases is not None:
        late = _piece(request, biases[1], 0, 2 * hidden, 3 * hidden)
        zeros = request.constant(np.zeros(hidden, late.dtype.numpy))
        early = request.apply("Concat", _piece(request, biases[1], 0, 0, 2 * hidden), zeros, axis=0)
        bias = request.apply("Add", biases[0], early)
    operands = [
        direction.entering(bias),
        _piece(request, weights, 0, 0, 2 * hidden),
        _piece(request, weights, 0, 2 * hidden, 3 * hidden),
        late,
        direction.state(5),
        request.optional(4),
    ]
    return request.apply_many("GRU", operands, 2, **direction.options, linear_before_reset=linear)


def _rnn(direction: _Direction) -> Sequence[Value]:
    request = direction.request
    entering = direction.entering(direction.summed_bias())
    operands = [entering, direction.weight(2), direction.state(5), request.optional(4)]
    return request.apply_many("RNN", operands, 2, **direction.options)


_KINDS = {
    "GRU": _Kind(3, ("Sigmoid", "Tanh"), 1, _gru),
    "LSTM": _Kind(4, ("Sigmoid", "Tanh", "Tanh"), 2, _lstm),
    "RNN": _Kind(1, ("Tanh",), 1, _rnn),
}


def _recurrent(request: Request) -> Sequence[Value]:
    kind = _KINDS[request.op_type]
    _check_inputs(request)
    directions = _directions(request, kind)
    results = [kind.step(direction) for direction in directions]
    batch_first = bool(request.integer("layout", 0))
    every = [_with_direction(request, each[0], batch_first) for each in results]
    joined = [_joined(request, every, 2 if batch_first else 1)]
    for state in range(1, kind.states + 1):
        axis = 1 if batch_first else 0
        last = [request.apply("Unsqueeze", each[state], axes=(axis,)) for each in results]
        joined.append(_joined(request, last, axis))
    return joined[: request.outputs]


def _check_inputs(request: Request) -> None:
    """Raises ``InvalidModel`` unless all inputs have the required ranks."""
    for position, rank in _RANKS.items():
        value = request.optional(position)
        if value is not None and len(value.shape) != rank:
            raise request.invalid(f"input {position}, {value!r}, should have {rank} dimensions")
    if request.integer("layout", 0) not in (0, 1):
        raise request.invalid(f"layout is {request.integer('layout', 0)}; it must be 0 or 1")


def _directions(request: Request, kind: _Kind) -> list[_Direction]:
    """Raises ``InvalidModel`` for attributes that contradict each other or the weights."""
    name = request.text("direction", "forward")
    if name not in _DIRECTIONS:
        raise request.invalid(f"direction {name} is none of {', '.join(_DIRECTIONS)}")
    reversed_ = _DIRECTIONS[name]
    weights = request.input(2)
    extents = [int(e.value) for e in weights.shape if isinstance(e, Const)]
    if len(extents) != 3 or extents[0] != len(reversed_) or extents[1] != kind.gates * extents[2]:
        raise request.invalid(
            f"the recurrent weight {weights!r} should have the shape [{len(reversed_)}, {kind.gates} * hidden, hidden]"
        )
    if request.integer("hidden_size", extents[2]) != extents[2]:
        raise request.invalid(f"hidden_size is {request.integer('hidden_size', 0)}, but {weights!r} says {extents[2]}")
    options = _options(request, kind, len(reversed_))
    return [
        _Direction(request, kind, position, {**options[position], "reverse": backwards}, extents[2])
        for position, backwards in enumerate(reversed_)
    ]


def _options(request: Request, kind: _Kind, directions: int) -> list[dict[str, Attribute]]:
    """The activations with their parameters, and the threshold, for each direction.

    Functions that have the parameter take values from the lists in order; then defaults.
    """
    names = request.texts("activations") or kind.activations * directions
    if len(names) != directions * len(kind.activations):
        raise request.invalid(f"{len(names)} activations are given, not {directions * len(kind.activations)}")
    unknown = [name for name in names if name not in FORMS]
    if unknown:
        raise request.invalid(f"there is no activation {unknown[0]}; known: {', '.join(FORMS)}")
    alphas, betas = iter(request.numbers("activation_alpha")), iter(request.numbers("activation_beta"))
    forms = [FORMS[name] for name in names]
    first = [0.0 if form.alpha is None else next(alphas, form.alpha) for form in forms]
    second = [0.0 if form.beta is None else next(betas, form.beta) for form in forms]
    options: list[dict[str, Attribute]] = []
    for start in range(0, len(names), len(kind.activations)):
        own = slice(start, start + len(kind.activations))
        lists: dict[str, Attribute] = {"activations": tuple(names[own]), "alphas": tuple(first[own])}
        options.append({**lists, "betas": tuple(second[own]), "clip": request.number("clip", 0.0)})
    return options


def _with_direction(request: Request, every: Value, batch_first: bool) -> Value:
    """All outputs with a dimension of directions: ``[steps, 1, batch, hidden]`` or ``[batch, steps, 1, hidden]``."""
    if not batch_first:
        return request.apply("Unsqueeze", every, axes=(1,))
    return request.apply("Unsqueeze", request.apply("Transpose", every, perm=(1, 0, 2)), axes=(2,))


def _joined(request: Request, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else request.apply("Concat", *values, axis=axis)


RULES: Mapping[str, RuleFunction] = dict.fromkeys(_KINDS, _recurrent)
