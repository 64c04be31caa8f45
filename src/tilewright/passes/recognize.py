"""Recognizes composite operators in exporters' decompositions: normalizations, softmax, activations.

A composite is scheduled as a whole (a normalization reads its row once), and its reduction has one accumulator type.
Results may differ in the last digits; patterns with other overflow behaviour (a softmax without subtracting the
maximum) are not replaced.

These are not rewrite rules (``rules``): a composite equals its parts by definition, and a search has nothing to choose.
The constant ``epsilon`` of a normalization becomes an attribute, which terms can't express.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import pi, sqrt

from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.ops.shapes import normalize_axes
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.index import Index, index_of
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable
from tilewright.passes.rules.unify import bindings_at, operators_below


@dataclass(frozen=True, slots=True)
class Composite:
    """An operator applied to values of a match."""

    op: str
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Match:
    """The bindings of a pattern's terms."""

    binding: Binding
    index: Index

    def value(self, term: Term) -> Value:
        return self.binding.values[term]

    def node(self, term: Apply) -> Node:
        """The node that computes ``term``."""
        return self.index.producers[self.value(term).name][0]

    def number(self, term: Term) -> float | None:
        """The element of a constant with one element; else None."""
        array = self.index.arrays.get(self.value(term).name)
        return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


@dataclass(frozen=True, slots=True)
class Recognition:
    """A named pattern; ``build`` returns None if the match does not qualify."""

    name: str
    pattern: Apply
    build: Callable[[Match], Composite | None]
    rule: Rule = field(init=False)
    """The pattern in the form for matching."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", Rule(self.name, (), (self.pattern,), ()))


def recognize(graph: Graph) -> Graph:
    """``graph`` with composite operators in place of their parts; unused parts remain."""
    index = index_of(graph)
    return replace(graph, nodes=tuple(raised(node, index, RECOGNITIONS) for node in graph.nodes))


def raised(node: Node, index: Index, recognitions: Mapping[str, Sequence[Recognition]]) -> Node:
    """The composite of the first of ``recognitions`` (by their last operator) that ends in ``node``, or ``node``."""
    result = node.outputs[0]
    if len(node.outputs) != 1 or not result.dtype.is_float or result.dtype.bits < 32:
        return node
    for recognition in recognitions.get(node.op.name, ()):
        if not operators_below(recognition.pattern) <= index.operands[result.name]:
            continue
        for binding in bindings_at(recognition.rule, node, index):
            composite = recognition.build(Match(binding, index))
            if composite is not None:
                op = require(composite.op)
                made = make_node(op, composite.inputs, [result.name], composite.attributes, node.source)
                if made.outputs == node.outputs:
                    return made
    return node


def _apply(op: str, *operands: Term, rest: str | None = None, **attributes: Attribute) -> Apply:
    """``rest``: the name of unconstrained attributes."""
    return Apply(require(op), operands, tuple(attributes.items()), rest)


def _add(a: Term, b: Term) -> Apply:
    return _apply("Add", a, b)


def _mul(a: Term, b: Term) -> Apply:
    return _apply("Mul", a, b)


def _div(a: Term, b: Term) -> Apply:
    return _apply("Div", a, b)


def _trailing_axis(node: Node) -> int | None:
    """The first reduced axis, if ``node`` reduces all axes from there on and keeps them with extent 1."""
    (source, *_), attributes = node.inputs, dict(node.attributes)
    axes, rank = attributes.get("axes"), 0 if source is None else len(source.shape)
    if not isinstance(axes, tuple) or attributes.get("keepdims", True) is not True:
        return None
    normal = normalize_axes([int(str(axis)) for axis in axes], rank)
    return normal[0] if normal and normal == tuple(range(normal[0], rank)) else None


def _layer_normalization(match: Match, mean: Apply, variance: Apply, *, has_bias: bool) -> Composite | None:
    axis, epsilon = _trailing_axis(match.node(mean)), match.number(_EPSILON)
    if axis is None or epsilon is None or axis != _trailing_axis(match.node(variance)):
        return None
    x, *others = map(match.value, (_X, _SCALE, _BIAS) if has_bias else (_X, _SCALE))
    if any(len(v.shape) > len(x.shape) - axis for v in others):
        return None
    return Composite("LayerNormalization", [x, *others], {"axis": axis, "epsilon": epsilon})


def _rms_normalization(match: Match, mean: Apply) -> Composite | None:
    axis, epsilon = _trailing_axis(match.node(mean)), match.number(_EPSILON)
    x, scale = match.value(_X), match.value(_SCALE)
    if axis is None or epsilon is None or len(scale.shape) > len(x.shape) - axis:
        return None
    return Composite("RMSNormalization", [x, scale], {"axis": axis, "epsilon": epsilon})


def _softmax(match: Match, highest: Apply, sums: Apply) -> Composite | None:
    largest, total = dict(match.node(highest).attributes), dict(match.node(sums).attributes)
    axes = largest.get("axes")
    same = axes == total.get("axes") and largest.get("keepdims", True) is total.get("keepdims", True) is True
    if not same or not isinstance(axes, tuple) or len(axes) != 1:
        return None
    return Composite("Softmax", [match.value(_X)], {"axis": int(str(axes[0]))})


def _activation(op: str, **attributes: Attribute) -> Callable[[Match], Composite]:
    return lambda match: Composite(op, [match.value(_X)], attributes)


_X, _SCALE, _BIAS, _EPSILON = (Variable(name, (), name) for name in ("x", "scale", "bias", "epsilon"))
"""Of any shapes."""


def _powers(x: Term, exponent: int) -> tuple[Apply, ...]:
    """``x ** exponent``: the importer writes known exponents as attributes."""
    return _apply("IntegerPower", x, exponent=exponent), _apply("Pow", x, Number(float(exponent)))


def _squares(x: Term) -> tuple[Apply, ...]:
    return (*_powers(x, 2), _mul(x, x))


def _over_root(numerator: Term, radicand: Term) -> tuple[Apply, ...]:
    """``numerator / sqrt(radicand)`` as it is written."""
    root = _apply("Sqrt", radicand)
    return (
        _div(numerator, root),
        _mul(numerator, _apply("Reciprocal", root)),
        _mul(numerator, _div(Number(1.0), root)),
        _div(numerator, _apply("Pow", radicand, Number(0.5))),
        _mul(numerator, _apply("Pow", radicand, Number(-0.5))),
    )


def _normalizations() -> list[Recognition]:
    mean = _apply("ReduceMean", _X, rest="mean")
    centered = _apply("Sub", _X, mean)
    found: list[Recognition] = []
    for square in _squares(centered):
        variance = _apply("ReduceMean", square, rest="variance")
        build = partial(_layer_normalization, mean=mean, variance=variance)
        for normal in _over_root(centered, _add(variance, _EPSILON)):
            scaled = _mul(normal, _SCALE)
            found.append(Recognition("layer normalization", _add(scaled, _BIAS), partial(build, has_bias=True)))
            found.append(Recognition("layer normalization without bias", scaled, partial(build, has_bias=False)))
    for square in _squares(_X):
        squares = _apply("ReduceMean", square, rest="mean")
        for normal in _over_root(_X, _add(squares, _EPSILON)):
            build = partial(_rms_normalization, mean=squares)
            found.append(Recognition("RMS normalization", _mul(normal, _SCALE), build))
    return found


def _softmaxes() -> list[Recognition]:
    largest = _apply("ReduceMax", _X, rest="largest")
    exponential = _apply("Exp", _apply("Sub", _X, largest))
    total = _apply("ReduceSum", exponential, rest="total")
    return [Recognition("softmax", _div(exponential, total), partial(_softmax, highest=largest, sums=total))]


def _half_of_products(factor: Term) -> tuple[Apply, ...]:
    """``0.5 * x * factor``, in any order."""
    half = Number(0.5)
    return _mul(_mul(_X, factor), half), _mul(_X, _mul(half, factor)), _mul(_mul(_X, half), factor)


def _activations() -> list[Recognition]:
    found: list[Recognition] = []
    for scaled in (_div(_X, Number(sqrt(2))), _mul(_X, Number(sqrt(0.5)))):
        for pattern in _half_of_products(_add(_apply("Erf", scaled), Number(1.0))):
            found.append(Recognition("GELU", pattern, _activation("Gelu")))
    for cube in (*_powers(_X, 3), _mul(_X, _mul(_X, _X))):
        inner = _mul(_add(_X, _mul(cube, Number(0.044715))), Number(sqrt(2 / pi)))
        for pattern in _half_of_products(_add(_apply("Tanh", inner), Number(1.0))):
            found.append(Recognition("GELU by tanh", pattern, _activation("Gelu", approximate="tanh")))
    clipped = _apply("Clip", _add(_X, Number(3.0)), Number(0.0), Number(6.0))
    for pattern in (_div(_mul(_X, clipped), Number(6.0)), _mul(_X, _div(clipped, Number(6.0)))):
        found.append(Recognition("hard swish", pattern, _activation("HardSwish")))
    found.append(Recognition("swish", _mul(_X, _apply("Sigmoid", _X)), _activation("Swish")))
    return found


def _by_operator(recognitions: Sequence[Recognition]) -> Mapping[str, Sequence[Recognition]]:
    found: dict[str, list[Recognition]] = {}
    for recognition in recognitions:
        found.setdefault(recognition.pattern.op.name, []).append(recognition)
    return found


RECOGNITIONS = _by_operator([*_normalizations(), *_softmaxes(), *_activations()])
"""Patterns by their last operator."""
