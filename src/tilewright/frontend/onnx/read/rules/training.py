"""ONNX's optimizers: one step of training for each of several tensors of weights (domain ``ai.onnx.preview.training``).

The first inputs are the learning rate and the number of steps so far, both scalars. Then come the tensors of all
weights, their gradients, and what the optimizer keeps of each. The results are the new weights, then the new state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import DType, f64
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value

DOMAIN = "ai.onnx.preview.training"

Step = Callable[["_Numbers", Sequence[Value]], Sequence[Value]]
"""From one tensor of weights, its gradient and its state to the new weights and state."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Arithmetic of one type of floats. ``rate``: the learning rate; ``steps``: the number of steps so far, in f64."""

    request: Request
    dtype: DType
    rate: Value
    steps: Value

    def number(self, value: float) -> Value:
        return self.request.constant(np.array(value, self.dtype.numpy))

    def attribute(self, name: str, default: float) -> Value:
        return self.number(self.request.number(name, default))

    def of(self, op: str, *operands: Value) -> Value:
        return self.request.apply(op, *operands)

    def exactly(self, value: float) -> Value:
        """A number in f64, for what is computed from the number of steps."""
        return self.request.constant(np.array(value))

    def rounded(self, value: Value) -> Value:
        return self.request.apply("Cast", value, to=self.dtype)

    def from_second_step(self, value: Value, at_first: Value) -> Value:
        return self.of("Where", self.of("Greater", self.steps, self.exactly(0.0)), value, at_first)

    def regularized(self, weights: Value, gradient: Value) -> Value:
        """The gradient of the loss with a term for the square of the weights."""
        return self.of("Add", self.of("Mul", self.attribute("norm_coefficient", 0.0), weights), gradient)

    def mixed(self, name: str, default: float, old: Value, new: Value) -> Value:
        """``a * old + (1 - a) * new`` for an attribute ``a``."""
        share = self.request.number(name, default)
        return self.of("Add", self.of("Mul", self.number(share), old), self.of("Mul", self.number(1 - share), new))

    def scaled(self, direction: Value, squares: Value) -> Value:
        """``direction`` divided by the root of ``squares``."""
        root = self.of("Add", self.of("Sqrt", squares), self.attribute("epsilon", 1e-6))
        return self.of("Div", direction, root)


def _adagrad(on: _Numbers, given: Sequence[Value]) -> Sequence[Value]:
    """Duchi, Hazan and Singer, 2011."""
    weights, gradient, squares = given
    decay = on.of("Mul", on.steps, on.exactly(on.request.number("decay_factor", 0.0)))
    rate = on.of("Div", on.rate, on.rounded(on.of("Add", on.exactly(1.0), decay)))
    direction = on.regularized(weights, gradient)
    squares = on.of("Add", squares, on.of("Mul", direction, direction))
    step = on.of("Mul", rate, on.scaled(direction, squares))
    return on.of("Sub", weights, step), squares


def _adam(on: _Numbers, given: Sequence[Value]) -> Sequence[Value]:
    """Kingma and Ba, 2014. The correction of the bias is left out in the first step."""
    weights, gradient, mean, squares = given
    direction = on.regularized(weights, gradient)
    mean = on.mixed("alpha", 0.9, mean, direction)
    squares = on.mixed("beta", 0.999, squares, on.of("Mul", direction, direction))
    kept, kept_squares = (_kept(on, name, default) for name, default in (("alpha", 0.9), ("beta", 0.999)))
    correction = on.rounded(on.of("Div", on.of("Sqrt", kept_squares), kept))
    rate = on.of("Mul", on.rate, on.from_second_step(correction, on.number(1.0)))
    after = on.of("Sub", weights, on.of("Mul", rate, on.scaled(mean, squares)))
    shrunk = on.number(1 - on.request.number("norm_coefficient_post", 0.0))
    return on.of("Mul", shrunk, after), mean, squares


def _kept(on: _Numbers, name: str, default: float) -> Value:
    """``1 - a ** steps`` for an attribute ``a``."""
    power = on.of("Pow", on.exactly(on.request.number(name, default)), on.steps)
    return on.of("Sub", on.exactly(1.0), power)


def _momentum(on: _Numbers, given: Sequence[Value]) -> Sequence[Value]:
    """Gradient descent with momentum, also Nesterov's; the first gradient has the weight 1."""
    weights, gradient, speed = given
    direction = on.regularized(weights, gradient)
    share = on.from_second_step(on.attribute("beta", 0.0), on.number(1.0))
    alpha = on.attribute("alpha", 0.0)
    speed = on.of("Add", on.of("Mul", alpha, speed), on.of("Mul", share, direction))
    is_nesterov = on.request.text("mode", "standard") == "nesterov"
    step = on.of("Add", direction, on.of("Mul", alpha, speed)) if is_nesterov else speed
    return on.of("Sub", weights, on.of("Mul", on.rate, step)), speed


def _by(step: Step, kinds: int) -> RuleFunction:
    """The rule of an optimizer with ``kinds`` tensors for each tensor of weights: these, a gradient, and states."""

    def rule(request: Request) -> Sequence[Value]:
        given = [request.input(position) for position in range(2, len(request.inputs))]
        if not given or len(given) % kinds:
            raise request.invalid(f"{len(given)} tensors are not {kinds} for each tensor of weights")
        count = len(given) // kinds
        steps = request.apply("Cast", request.input(1), to=f64)
        results: list[Sequence[Value]] = []
        for each in range(count):
            weights, *others = given[each::count]
            rate = request.apply("Cast", request.input(0), to=weights.dtype)
            results.append(step(_Numbers(request, weights.dtype, rate, steps), (weights, *others)))
        return [result for kind in zip(*results, strict=True) for result in kind][: request.outputs]

    return rule


RULES: Mapping[str, RuleFunction] = {
    "Adagrad": _by(_adagrad, 3),
    "Adam": _by(_adam, 4),
    "Momentum": _by(_momentum, 3),
}
