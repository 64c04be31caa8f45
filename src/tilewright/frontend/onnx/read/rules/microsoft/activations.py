"""Activation functions, also of a sum with a bias."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.onnx.read.rules.microsoft.definition import Definition, number, same_shape_as, total
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value

_QUICK = 1.702
"""The default factor of ``QuickGelu``."""


def _gelu(request: Request) -> Sequence[Value]:
    return [request.apply("Gelu", request.input(0))]


def _bias_gelu(request: Request) -> Sequence[Value]:
    return [request.apply("Gelu", _biased(request, request.input(1)))]


def _fast_gelu(request: Request) -> Sequence[Value]:
    return [request.apply("Gelu", _biased(request, request.optional(1)), approximate="tanh")]


def _biased(request: Request, bias: Value | None) -> Value:
    data = request.input(0)
    return same_shape_as(request, total(request, data, bias), data, "the input and the bias")


def _quick_gelu(request: Request) -> Sequence[Value]:
    return [request.apply("Swish", request.input(0), alpha=request.number("alpha", _QUICK))]


def _bias_split_gelu(request: Request) -> Sequence[Value]:
    """The first half of the last axis times the other half's ``Gelu``, both after the bias."""
    value = _biased(request, request.input(1))
    last = len(value.shape) - 1
    extent = request.extent(value, last)
    if extent % 2:
        raise request.invalid(f"the last extent of {value!r} is odd")
    halves = ((0, extent // 2), (extent // 2, extent))
    left, right = (request.apply("Slice", value, starts=(a,), ends=(b,), axes=(last,)) for a, b in halves)
    return [request.apply("Mul", left, request.apply("Gelu", right))]


ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""What products may end with, and the order of the parameters."""


def activated(request: Request, value: Value, name: str, parameters: Sequence[float]) -> Value:
    """``value`` after the activation ``name``; none if that is empty. Raises ``InvalidModel``, ``UnsupportedModel``."""
    if not name:
        return value
    known = ACTIVATIONS.get(name)
    if known is None:
        raise request.unsupported(f"the activation {name} is not supported (there is: {', '.join(ACTIVATIONS)})")
    if len(parameters) > len(known) or (name == "Clip" and len(parameters) < len(known)):
        raise request.invalid(f"the activation {name} has the parameters {tuple(parameters)}, not {', '.join(known)}")
    if name == "Clip":
        bounds = (number(request, bound, value.dtype) for bound in parameters)
        return request.apply("Clip", value, *bounds)
    return request.apply(name, value, **dict(zip(known, parameters, strict=False)))


RULES: Mapping[str, RuleFunction] = {
    "BiasGelu": Definition(_bias_gelu, (2, 2)),
    "BiasSplitGelu": Definition(_bias_split_gelu, (2, 2)),
    "FastGelu": Definition(_fast_gelu, (1, 2)),
    "Gelu": Definition(_gelu, (1, 1)),
    "QuickGelu": Definition(_quick_gelu, (1, 1), attributes={"alpha": float}),
}
