"""Normal form of terms, so that provers see few forms.

- All attributes are written; those of ``**rest`` are symbols (``bn.epsilon``). Strides, pads and dilations that are all
  omitted are one symbol (``conv.window``).
- Axes count from the end. A slice is along one axis, a concatenation of two; a transposition swaps two neighbours
  (every permutation is a product of such swaps).
- ``Gemm``, the bias of a convolution (also by phases), ``Sum``, ``Flatten``, ``Squeeze`` and ``Unsqueeze`` are replaced
  by their definitions; so are products of integers, by those of integers of 32 bits, and of quantized values.

Tests check over the field that terms equal their normal forms, for all axioms and rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from inspect import Parameter

from tilewright.base.dtypes import i32
from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute
from tilewright.ops.operator import Operator, require
from tilewright.passes.rules.generic_points import Point, as_extent
from tilewright.passes.rules.term_shapes import REDUCTIONS, WINDOW, Shape, result_shape
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable
from tilewright.symbolic.expr import ONE, Expr, Symbol

_WINDOW_LISTS: Mapping[str, tuple[int, int]] = {"strides": (1, 1), "dilations": (1, 1), "pads": (2, 0)}
"""Attributes of windows: the number of integers per spatial dimension, and the default."""

_SPATIAL_LISTS = ("kernel_shape", "kernel", "begins", "spatial")
"""Attributes that have one integer for each spatial dimension."""


@dataclass(slots=True)
class Normalizer:
    """Normal forms, and their shapes, of the terms of one rule at ``point``."""

    point: Point
    shapes: dict[Term, Shape] = field(default_factory=dict[Term, Shape])
    """Shapes of all terms in normal form so far."""
    _known: dict[Term, Term] = field(default_factory=dict[Term, Term])

    def normal(self, term: Term) -> Term:
        """``term`` in normal form. Raises ``BadProgram`` if its shape is unknown or invalid."""
        if term not in self._known:
            self._known[term] = self._normal(term)
        return self._known[term]

    def shape(self, term: Term) -> Shape:
        """The shape of a term in normal form."""
        return self.shapes[term]

    def _normal(self, term: Term) -> Term:
        match term:
            case Variable(_, dims, leading):
                self.shapes[term] = Shape(dims, frozenset([leading] if leading else []))
                return term
            case Number():
                self.shapes[term] = Shape(())
                return term
            case Apply(op, operands, _, _, output):
                inner = tuple(map(self.normal, operands))
                attributes = self._complete(term, inner)
                rewrite = _REWRITES.get(op.name)
                if rewrite is None:
                    return self.make(op, inner, attributes, output)
                return rewrite(_Site(self, op, inner, attributes))

    def make(
        self, op: Operator, operands: Sequence[Term], attributes: Mapping[str, Attribute], output: int = 0
    ) -> Term:
        """An application of terms in normal form, with all its attributes."""
        made = Apply(op, tuple(operands), tuple(attributes.items()), None, output)
        if made not in self.shapes:
            self.shapes[made] = result_shape(made, [self.shapes[o] for o in operands], self.point)
            self._known[made] = made
        return made

    def _complete(self, term: Apply, operands: Sequence[Term]) -> dict[str, Attribute]:
        """All attributes of ``term``: as written, else a symbol of ``rest``, else the default."""
        written = dict(term.attributes)
        parameters = term.op.parameters.values()
        spatial = max((len(self.shapes[o].dims) for o in operands[:1]), default=2) - 2
        found: dict[str, Attribute] = {}
        for parameter in parameters:
            name = parameter.name
            if parameter.kind is not Parameter.KEYWORD_ONLY:
                continue
            if name in written:
                found[name] = _listed(written.pop(name))
            elif term.rest is not None:
                found[name] = _unwritten(term.rest, name, spatial)
            else:
                found[name] = _default(parameter, spatial, term)
        if (
            term.rest is not None
            and "strides" in found
            and not any(name in _WINDOW_LISTS for name, _ in term.attributes)
        ):
            found = {name: value for name, value in found.items() if name not in _WINDOW_LISTS}
            found[WINDOW] = Symbol(f"{term.rest}.{WINDOW}")
        if written:
            raise BadProgram(f"{term.op} has no attribute {', '.join(written)}")
        return found


def _listed(value: Attribute) -> Attribute:
    return int(str(value)) if isinstance(value, Expr) and not value.variables else value


def _unwritten(rest: str, name: str, spatial: int) -> Attribute:
    if name in _WINDOW_LISTS:
        return tuple(Symbol(f"{rest}.{name}.{place}") for place in range(_WINDOW_LISTS[name][0] * spatial))
    if name in _SPATIAL_LISTS:
        return tuple(Symbol(f"{rest}.{name}.{place}") for place in range(spatial))
    return Symbol(f"{rest}.{name}")


def _default(parameter: Parameter, spatial: int, term: Apply) -> Attribute:
    if parameter.default is Parameter.empty:
        raise BadProgram(f"{term.op} needs the attribute {parameter.name}")
    if parameter.name in _WINDOW_LISTS and parameter.default is None:
        times, value = _WINDOW_LISTS[parameter.name]
        return (value,) * (times * spatial)
    default: Attribute = parameter.default
    return default


def normal_rule(rule: Rule, point: Point) -> tuple[list[tuple[Term, Term]], Normalizer]:
    """Both sides of each equation in normal form. Raises ``BadProgram`` if their shapes differ, or are unknown."""
    normalizer = Normalizer(point)
    try:
        sources = [normalizer.normal(term) for term in rule.sources]
    except BadProgram:  # perhaps targets imply the conditions that make them well-typed
        targets = [normalizer.normal(term) for term in rule.targets]
        sources = [normalizer.normal(term) for term in rule.sources]
    else:
        targets = [normalizer.normal(term) for term in rule.targets]
    pairs = list(zip(sources, targets, strict=True))
    for source, target in pairs:
        _check_equal_shapes(rule, normalizer.shape(source), normalizer.shape(target), point)
    return pairs, normalizer


def _check_equal_shapes(rule: Rule, a: Shape, b: Shape, point: Point) -> None:
    if a.leading != b.leading or len(a.dims) != len(b.dims) or not all(map(point.equal, a.dims, b.dims)):
        raise BadProgram(f"rule {rule.name}: the shapes of both sides differ: {a} and {b}")


@dataclass(frozen=True, slots=True)
class _Site:
    """One application, on its way to normal form."""

    forms: Normalizer
    op: Operator
    operands: tuple[Term, ...]
    attributes: Mapping[str, Attribute]

    @property
    def first(self) -> Shape:
        return self.forms.shape(self.operands[0])

    def plain(self) -> Term:
        return self.forms.make(self.op, self.operands, self.attributes)

    def make(self, name: str, *operands: Term, **attributes: Attribute) -> Term:
        """An application of another operator."""
        return self.forms.normal(Apply(require(name), operands, tuple(attributes.items())))

    def integers(self, name: str) -> tuple[int | Expr, ...]:
        value = self.attributes[name]
        if not isinstance(value, tuple) or not all(isinstance(item, int | Expr) for item in value):
            raise BadProgram(f"{self.op}: {name}={value} must be a list of integers here")
        return tuple(item for item in value if isinstance(item, int | Expr))

    def flag(self, name: str) -> bool:
        value = self.attributes[name]
        if not isinstance(value, bool | int):
            raise BadProgram(f"{self.op}: {name} must be written here")
        return bool(value)

    def literals(self, name: str) -> list[int]:
        found = [item for item in self.integers(name) if isinstance(item, int)]
        if len(found) != len(self.integers(name)):
            raise BadProgram(f"{self.op}: {name}={self.attributes[name]} must be literals here")
        return found


def _from_end(axis: int, shape: Shape) -> int:
    return axis if axis < 0 else axis - shape.rank


def _concat(site: _Site) -> Term:
    axis = site.attributes["axis"]
    if not isinstance(axis, int):
        raise BadProgram(f"Concat: axis={axis} must be a literal here")
    attributes = {"axis": _from_end(axis, site.first)}
    *before, last = site.operands
    return reduce(lambda joined, part: site.forms.make(site.op, (part, joined), attributes), reversed(before), last)


def _slice(site: _Site) -> Term:
    starts, ends = site.integers("starts"), site.integers("ends")
    axes = site.literals("axes") if site.attributes["axes"] is not None else list(range(len(starts)))
    steps = site.literals("steps") if site.attributes["steps"] is not None else [1] * len(starts)
    term = site.operands[0]
    for axis, start, end, step in sorted(
        zip((_from_end(a, site.first) for a in axes), starts, ends, steps, strict=True), key=lambda cut: cut[0]
    ):
        extent = site.first.extent(axis)
        bounds = {"starts": (_place(start, extent),), "ends": (_place(end, extent),)}
        term = site.forms.make(site.op, (term,), {"axes": (axis,), "steps": (step,), **bounds})
    return term


def _place(bound: int | Expr, extent: Expr) -> int | Expr:
    """A bound counted from the front."""
    return extent + bound if isinstance(bound, int) and bound < 0 else bound


def _transpose(site: _Site) -> Term:
    order = list(range(site.first.rank))[::-1] if site.attributes["perm"] is None else site.literals("perm")
    term, rank = site.operands[0], site.first.rank
    if sorted(order) != list(range(rank)):
        raise BadProgram(f"Transpose: {order} is no permutation of {site.first}")
    swaps: list[int] = []
    for end in range(rank - 1, 0, -1):  # bubble sort: its swaps, undone, make the order
        for place in range(end):
            if order[place] > order[place + 1]:
                order[place], order[place + 1] = order[place + 1], order[place]
                swaps.append(place)
    for place in reversed(swaps):
        perm = (*range(place), place + 1, place, *range(place + 2, rank))
        term = site.forms.make(site.op, (term,), {"perm": perm})
    return term


def _reshape(site: _Site) -> Term:
    wanted = list(site.integers("shape"))
    if not site.attributes.get("allow_zero"):
        wanted = [site.first.dims[place] if item == 0 else item for place, item in enumerate(wanted)]
    if -1 in wanted:
        raise BadProgram("Reshape: write the extent instead of -1")
    return site.forms.make(site.op, site.operands, {"shape": tuple(wanted)})


def _view(site: _Site, dims: Sequence[Expr]) -> Term:
    leading = tuple(Symbol(f"*{name}") for name in sorted(site.first.leading))
    return site.make("Reshape", site.operands[0], shape=(*leading, *dims))


def _flatten(site: _Site) -> Term:
    axis = site.attributes["axis"]
    if not isinstance(axis, int):
        raise BadProgram(f"Flatten: axis={axis} must be a literal here")
    dims, at = site.first.dims, axis + site.first.rank if axis < 0 else axis
    return _view(site, [_product(dims[:at]), _product(dims[at:])])


def _product(dims: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: a * b, dims, as_extent(1))


def _unsqueeze(site: _Site) -> Term:
    axes = site.literals("axes")
    rank = (0 if all(axis < 0 for axis in axes) else site.first.rank) + len(axes)
    dims = list(site.first.dims)
    for axis in sorted(axis if axis >= 0 else axis + len(site.first.dims) + len(axes) for axis in axes):
        dims.insert(axis, ONE)
    assert rank >= 0, "the rank was asked for, so that it is known where it must be"
    return _view(site, dims)


def _squeeze(site: _Site) -> Term:
    if site.attributes["axes"] is None:
        raise BadProgram("Squeeze: name the axes")
    dims = site.first.dims
    removed = {_from_end(axis, site.first) for axis in site.literals("axes")}
    return _view(site, [d for place, d in enumerate(dims) if place - len(dims) not in removed])


def _reduction(site: _Site) -> Term:
    if site.attributes["axes"] is None:
        raise BadProgram(f"{site.op}: name the axes")
    axes = sorted(_from_end(axis, site.first) for axis in site.literals("axes"))
    attributes: dict[str, Attribute] = {"axes": tuple(axes), "keepdims": site.attributes["keepdims"]}
    return site.forms.make(site.op, site.operands, attributes)


def _sum(site: _Site) -> Term:
    return reduce(lambda a, b: site.make("Add", a, b), site.operands)


def _conv(site: _Site) -> Term:
    if len(site.operands) < 3:
        return site.plain()
    product = site.forms.make(site.op, site.operands[:2], site.attributes)
    bias = site.operands[2]
    column = (*site.forms.shape(bias).dims, *(1 for _ in range(site.first.rank - 2)))
    return site.make("Add", product, site.make("Reshape", bias, shape=column))


def _gemm(site: _Site) -> Term:
    a, b = (
        site.make("Transpose", operand, perm=(1, 0)) if site.flag(name) else operand
        for operand, name in zip(site.operands, ("transpose_a", "transpose_b"), strict=False)
    )
    scaled = _scaled(site, site.make("MatMul", a, b), "alpha")
    return scaled if len(site.operands) < 3 else site.make("Add", scaled, _scaled(site, site.operands[2], "beta"))


def _scaled(site: _Site, term: Term, name: str) -> Term:
    """``term`` times a factor: a number if written, else a variable of its name (``gemm.alpha``)."""
    factor = site.attributes[name]
    if factor == 1:
        return term
    number = Number(float(factor)) if isinstance(factor, int | float) else Variable(str(factor))
    site.forms.normal(number)
    return site.make("Mul", term, number)


def _integer_product(site: _Site) -> Term:
    """The product of integers of 32 bits: of the operands without their zero points."""
    x, weight, *zeros = site.operands
    _check_scalars(site, zeros)
    zero, of_weight = (*zeros, None, None)[:2]
    operands = _centered(site, x, zero), _centered(site, weight, of_weight)
    return site.forms.make(require(_PLAIN[site.op.name]), operands, site.attributes)


def _check_scalars(site: _Site, terms: Sequence[Term]) -> None:
    for term in terms:
        if site.forms.shape(term) != Shape(()):
            raise BadProgram(f"{site.op}: a zero point that is no scalar has no normal form here")


def _centered(site: _Site, term: Term, zero: Term | None) -> Term:
    wide = site.make("Cast", term, to=i32)
    return wide if zero is None else site.make("Sub", wide, site.make("Cast", zero, to=i32))


def _quantized_product(site: _Site) -> Term:
    """The product of dequantized operands, with its bias, and quantized if there is a scale for that."""
    if len(site.operands) < _WITHOUT_BIAS:
        raise BadProgram(f"{site.op}: write the zero points of both operands")
    x, scale, zero, weight, of_weight, zeros, *others = site.operands
    bias, ending = others[0] if others else None, others[1:]
    is_matrix = site.op.name == "QuantizedMatMul"
    data = site.make("DequantizeLinear", x, scale, zero)
    filters = site.make("DequantizeLinear", weight, of_weight, zeros, axis=-1 if is_matrix else 0)
    term = site.forms.make(require(_PLAIN[site.op.name]), (data, filters), site.attributes)
    if bias is not None:
        term = site.make("Add", term, _real_bias(site, bias, scale, of_weight, is_matrix=is_matrix))
    return site.make("QuantizeLinear", term, *ending) if ending else term


def _real_bias(site: _Site, bias: Term, scale: Term, of_weight: Term, *, is_matrix: bool) -> Term:
    """The bias by the scales of both operands, as a vector or as an image of one place."""
    real = site.make("DequantizeLinear", bias, site.make("Mul", scale, of_weight), axis=0)
    column = (*site.forms.shape(bias).dims, *(1 for _ in range(site.first.rank - 2)))
    return real if is_matrix else site.make("Reshape", real, shape=column)


_WITHOUT_BIAS = 6
"""The operands of a quantized product: elements, scale and zero point of data and weight."""
_PLAIN = {"MatMulInteger": "MatMul", "ConvInteger": "Conv", "QuantizedMatMul": "MatMul", "QuantizedConv": "Conv"}


def _one_axis(site: _Site) -> Term:
    axis = site.attributes["axis"]
    if not isinstance(axis, int):
        raise BadProgram(f"{site.op}: axis={axis} must be a literal here")
    return site.forms.make(site.op, site.operands, {**site.attributes, "axis": _from_end(axis, site.first)})


_REWRITES: Mapping[str, Callable[[_Site], Term]] = {
    "Concat": _concat,
    "Slice": _slice,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Sum": _sum,
    "Conv": _conv,
    "PhaseConv": _conv,
    "Gemm": _gemm,
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), _integer_product),
    **dict.fromkeys(("QuantizedMatMul", "QuantizedConv"), _quantized_product),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "Gather", "Repeat"), _one_axis),
}
