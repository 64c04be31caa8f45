"""Composite operators raised from what exporters emit for them: normalizations, softmax, activations.

A composite is scheduled as a whole (a normalization reads its row once), and its reduction has one accumulator type.
Numbers may differ in the last places; what could overflow in another way (a softmax that subtracts no maximum) is left.

These are no rules of algebra (``rules``): a composite is what its parts are by definition, and a search has nothing to
choose. The ``epsilon`` of a normalization, a constant, becomes an attribute, which no term can say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi, sqrt

from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.ops.shapes import normalize_axes
from tilewright.passes.patterns import Any, Apply, Match, Matcher, Number, Pattern


@dataclass(frozen=True, slots=True)
class Composite:
    """An operator applied to values of a match."""

    op: str
    inputs: Sequence[Value]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Recognition:
    """A pattern and what it is called; ``build`` returns None where the match is something else after all."""

    name: str
    pattern: Pattern
    build: Callable[[Match], Composite | None]


def recognize(graph: Graph) -> Graph:
    """``graph`` with composite operators in the place of their parts; parts that nobody else reads are left over."""
    matcher = Matcher(graph)
    return replace(graph, nodes=tuple(_raised(node, matcher) for node in graph.nodes))


def _raised(node: Node, matcher: Matcher) -> Node:
    result = node.outputs[0]
    if len(node.outputs) != 1 or not result.dtype.is_float or result.dtype.bits < 32:
        return node
    for recognition in RECOGNITIONS:
        for match in matcher.matches(recognition.pattern, result):
            composite = recognition.build(match)
            if composite is not None:
                op = require(composite.op)
                raised = make_node(op, composite.inputs, [result.name], composite.attributes, node.source)
                if raised.outputs == node.outputs:
                    return raised
    return node


def _add(a: Pattern, b: Pattern) -> Apply:
    return Apply("Add", (a, b))


def _mul(a: Pattern, b: Pattern) -> Apply:
    return Apply("Mul", (a, b))


def _div(a: Pattern, b: Pattern) -> Apply:
    return Apply("Div", (a, b))


def _trailing_axis(node: Node) -> int | None:
    """The first reduced axis, if ``node`` reduces all axes from there on and keeps them as 1."""
    (source, *_), attributes = node.inputs, dict(node.attributes)
    axes, rank = attributes.get("axes"), 0 if source is None else len(source.shape)
    if not isinstance(axes, tuple) or attributes.get("keepdims", True) is not True:
        return None
    normal = normalize_axes([int(str(axis)) for axis in axes], rank)
    return normal[0] if normal and normal == tuple(range(normal[0], rank)) else None


def _layer_normalization(match: Match) -> Composite | None:
    axis = _trailing_axis(match.nodes["mean"])
    if axis is None or axis != _trailing_axis(match.nodes["variance"]):
        return None
    x, scale, bias = match.values["x"], match.values["scale"], match.values.get("bias")
    inputs = [x, scale] if bias is None else [x, scale, bias]
    if any(len(v.shape) > len(x.shape) - axis for v in inputs[1:]):
        return None
    return Composite("LayerNormalization", inputs, {"axis": axis, "epsilon": match.numbers["epsilon"]})


def _rms_normalization(match: Match) -> Composite | None:
    axis = _trailing_axis(match.nodes["mean"])
    x, scale = match.values["x"], match.values["scale"]
    if axis is None or len(scale.shape) > len(x.shape) - axis:
        return None
    return Composite("RMSNormalization", [x, scale], {"axis": axis, "epsilon": match.numbers["epsilon"]})


def _softmax(match: Match) -> Composite | None:
    largest, total = dict(match.nodes["largest"].attributes), dict(match.nodes["total"].attributes)
    axes = largest.get("axes")
    same = axes == total.get("axes") and largest.get("keepdims", True) is total.get("keepdims", True) is True
    if not same or not isinstance(axes, tuple) or len(axes) != 1:
        return None
    return Composite("Softmax", [match.values["x"]], {"axis": int(str(axes[0]))})


def _activation(op: str, **attributes: Attribute) -> Callable[[Match], Composite]:
    return lambda match: Composite(op, [match.values["x"]], attributes)


_X, _SCALE, _BIAS = Any("x"), Any("scale"), Any("bias")


def _powers(x: Pattern, exponent: int) -> tuple[Pattern, ...]:
    """``x ** exponent``: the importer writes known exponents as attributes."""
    integer = frozenset({("exponent", exponent)})
    return Apply("IntegerPower", (x,), attributes=integer), Apply("Pow", (x, Number(near=float(exponent))))


def _squares(x: Pattern) -> tuple[Pattern, ...]:
    return (*_powers(x, 2), _mul(x, x))


def _over_root(numerator: Pattern, radicand: Pattern) -> tuple[Pattern, ...]:
    """``numerator / sqrt(radicand)`` as it is written."""
    root = Apply("Sqrt", (radicand,))
    return (
        _div(numerator, root),
        _mul(numerator, Apply("Reciprocal", (root,))),
        _mul(numerator, _div(Number(near=1.0), root)),
        _div(numerator, Apply("Pow", (radicand, Number(near=0.5)))),
        _mul(numerator, Apply("Pow", (radicand, Number(near=-0.5)))),
    )


def _normalizations() -> list[Recognition]:
    centered = Apply("Sub", (_X, Apply("ReduceMean", (_X,), "mean")))
    found: list[Recognition] = []
    for square in _squares(centered):
        for normal in _over_root(centered, _add(Apply("ReduceMean", (square,), "variance"), Number("epsilon"))):
            scaled = _mul(normal, _SCALE)
            found.append(Recognition("layer normalization", _add(scaled, _BIAS), _layer_normalization))
            found.append(Recognition("layer normalization without bias", scaled, _layer_normalization))
    for square in _squares(_X):
        for normal in _over_root(_X, _add(Apply("ReduceMean", (square,), "mean"), Number("epsilon"))):
            found.append(Recognition("RMS normalization", _mul(normal, _SCALE), _rms_normalization))
    return found


def _softmaxes() -> list[Recognition]:
    exponential = Apply("Exp", (Apply("Sub", (_X, Apply("ReduceMax", (_X,), "largest"))),))
    return [Recognition("softmax", _div(exponential, Apply("ReduceSum", (exponential,), "total")), _softmax)]


def _half_of_products(factor: Pattern) -> tuple[Pattern, ...]:
    """``0.5 * x * factor``, in any order."""
    half = Number(near=0.5)
    return _mul(_mul(_X, factor), half), _mul(_X, _mul(half, factor)), _mul(_mul(_X, half), factor)


def _activations() -> list[Recognition]:
    found: list[Recognition] = []
    for scaled in (_div(_X, Number(near=sqrt(2))), _mul(_X, Number(near=sqrt(0.5)))):
        for pattern in _half_of_products(_add(Apply("Erf", (scaled,)), Number(near=1.0))):
            found.append(Recognition("GELU", pattern, _activation("Gelu")))
    for cube in (*_powers(_X, 3), _mul(_X, _mul(_X, _X))):
        inner = _mul(_add(_X, _mul(cube, Number(near=0.044715))), Number(near=sqrt(2 / pi)))
        for pattern in _half_of_products(_add(Apply("Tanh", (inner,)), Number(near=1.0))):
            found.append(Recognition("GELU by tanh", pattern, _activation("Gelu", approximate="tanh")))
    clipped = Apply("Clip", (_add(_X, Number(near=3.0)), Number(near=0.0), Number(near=6.0)))
    for pattern in (_div(_mul(_X, clipped), Number(near=6.0)), _mul(_X, _div(clipped, Number(near=6.0)))):
        found.append(Recognition("hard swish", pattern, _activation("HardSwish")))
    found.append(Recognition("swish", _mul(_X, Apply("Sigmoid", (_X,))), _activation("Swish")))
    return found


RECOGNITIONS: tuple[Recognition, ...] = (*_normalizations(), *_softmaxes(), *_activations())
