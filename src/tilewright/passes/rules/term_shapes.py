"""Shape inference of terms, for all ranks and extents at once.

A shape is a list of extents and, before them, any number of named leading dimensions (``Variable.leading``). Provers
need shapes of abstract terms; operators' te functions give shapes of given ranks only. Tests compare both at all
instances of all axioms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute, Trait
from tilewright.passes.rules.generic_points import Point, as_extent
from tilewright.passes.rules.terms import Apply
from tilewright.symbolic.expr import ONE, Expr, Symbol


@dataclass(frozen=True, slots=True)
class Shape:
    """The last dimensions ``dims``, preceded by those of ``leading``: several lists are broadcast together."""

    dims: tuple[Expr, ...]
    leading: frozenset[str] = frozenset()

    @property
    def rank(self) -> int:
        """The number of dimensions. Raises ``BadProgram`` if it is not known."""
        if self.leading:
            raise BadProgram(f"the rank of {self} is not known; declare its variables without `*`")
        return len(self.dims)

    def without(self, last: int) -> "Shape":
        """The shape before the ``last`` dimensions. Raises ``BadProgram`` if there are fewer."""
        if len(self.dims) < last:
            raise BadProgram(f"{self} has not {last} dimensions that are known")
        return Shape(self.dims[: len(self.dims) - last], self.leading)

    def replaced(self, axis: int, extent: Expr) -> "Shape":
        """With another extent at ``axis``, which counts from the end."""
        self.extent(axis)
        dims = list(self.dims)
        dims[axis] = extent
        return Shape(tuple(dims), self.leading)

    def extent(self, axis: int) -> Expr:
        """The extent at ``axis``, which counts from the end. Raises ``BadProgram`` if it is not known."""
        if not -len(self.dims) <= axis < 0:
            raise BadProgram(f"{self} has no known dimension {axis}")
        return self.dims[axis]

    def __str__(self) -> str:
        return f"[{', '.join([*(f'*{name}' for name in sorted(self.leading)), *map(str, self.dims)])}]"


def broadcast(a: Shape, b: Shape, point: Point) -> Shape:
    """The common shape of two operands. Raises ``BadProgram`` if there is none, or it depends on what is not known."""
    longer, shorter = (a, b) if len(a.dims) >= len(b.dims) else (b, a)
    extra = len(longer.dims) - len(shorter.dims)
    if extra and shorter.leading:
        raise BadProgram(f"how {a} and {b} broadcast depends on the rank of {shorter}")
    pairs = zip(longer.dims[extra:], shorter.dims, strict=True)
    return Shape((*longer.dims[:extra], *(_joined(x, y, point) for x, y in pairs)), a.leading | b.leading)


def _joined(a: Expr, b: Expr, point: Point) -> Expr:
    if a == ONE or point.equal(a, b):
        return b
    if b == ONE:
        return a
    raise BadProgram(f"the extents {a} and {b} differ")


@dataclass(frozen=True, slots=True)
class Typing:
    """One application in normal form (``normal_form``), for inference of its result."""

    term: Apply
    operands: tuple[Shape, ...]
    point: Point

    @property
    def first(self) -> Shape:
        """The shape of the first operand."""
        return self.operands[0]

    def integers(self, name: str) -> tuple[Expr, ...]:
        """An attribute that is a list of integers."""
        value = self.term.attribute(name)
        if not isinstance(value, tuple):
            raise BadProgram(f"{self.term.op}: {name}={value} is no list of integers")
        return tuple(_integer(item) for item in value)

    def integer(self, name: str) -> Expr:
        """An attribute that is one integer."""
        return _integer(self.term.attribute(name))

    def literal(self, name: str) -> int:
        """An attribute that must be a literal. Raises ``BadProgram`` if it is an expression."""
        value = self.term.attribute(name)
        if not isinstance(value, int):
            raise BadProgram(f"{self.term.op}: {name}={value} must be a literal here")
        return value

    def check_equal(self, a: Expr, b: Expr) -> None:
        """Require two extents to be equal. Raises ``BadProgram`` if they can't be."""
        if not self.point.require(a, b):
            raise BadProgram(f"{self.term.op} of {', '.join(map(str, self.operands))}: {a} and {b} differ")


def _integer(value: Attribute | str) -> Expr:
    if isinstance(value, bool) or not isinstance(value, int | Expr):
        raise BadProgram(f"{value!r} is no integer")
    return as_extent(value)


def result_shape(term: Apply, operands: Sequence[Shape], point: Point) -> Shape:
    """The shape of ``term``, in normal form. Raises ``BadProgram`` if it is invalid or unknown."""
    rule = _RULES.get(term.op.name) or next((rule for trait, rule in _BY_TRAIT.items() if term.op.has(trait)), None)
    if rule is None:
        raise BadProgram(f"there is no rule for the shape of {term.op}; add one to `passes/rules/term_shapes.py`")
    return rule(Typing(term, tuple(operands), point))


def _elementwise(typing: Typing) -> Shape:
    return reduce(lambda a, b: broadcast(a, b, typing.point), typing.operands)


def _matmul(typing: Typing) -> Shape:
    a, b = typing.operands
    typing.check_equal(a.extent(-1), b.extent(-2))
    batch = broadcast(a.without(2), b.without(2), typing.point)
    return Shape((*batch.dims, a.extent(-2), b.extent(-1)), batch.leading)


def _concat(typing: Typing) -> Shape:
    axis = typing.literal("axis")
    a, b = typing.operands
    if a.leading != b.leading or len(a.dims) != len(b.dims):
        raise BadProgram(f"Concat of {a} and {b}: the ranks differ")
    for place, (x, y) in enumerate(zip(a.dims, b.dims, strict=True)):
        if place - len(a.dims) != axis:
            typing.check_equal(x, y)
    return a.replaced(axis, a.extent(axis) + b.extent(axis))


def _slice(typing: Typing) -> Shape:
    (axis,) = (int(str(a)) for a in typing.integers("axes"))
    (start,), (end,) = typing.integers("starts"), typing.integers("ends")
    if typing.integers("steps") != (ONE,):
        raise BadProgram("Slice: the extent of a slice with steps is not known here")
    return typing.first.replaced(axis, end - start)


def _transpose(typing: Typing) -> Shape:
    order = [int(str(p)) for p in typing.integers("perm")]
    if sorted(order) != list(range(typing.first.rank)):
        raise BadProgram(f"Transpose: {order} is no permutation of {typing.first}")
    return Shape(tuple(typing.first.dims[p] for p in order))


def target_shape(extents: Sequence[Expr | int]) -> Shape:
    """The shape in an attribute ``shape``; ``*s`` denotes leading dimensions."""
    items = [as_extent(extent) for extent in extents]
    named = [item for item in items if str(item).startswith("*")]
    if named and (items[0] != named[0] or len(named) > 1):
        raise BadProgram("only the first entry of a shape can stand for several dimensions")
    return Shape(tuple(items[len(named) :]), frozenset(str(item)[1:] for item in named))


def _reshape(typing: Typing) -> Shape:
    target = target_shape(typing.integers("shape"))
    if target.leading == typing.first.leading:  # else equal element counts are a condition that can't be expressed
        typing.check_equal(_product(typing.first.dims), _product(target.dims))
    return target


def _product(extents: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: a * b, extents, ONE)


def _expand(typing: Typing) -> Shape:
    return broadcast(typing.first, target_shape(typing.integers("shape")), typing.point)


def _conv(typing: Typing) -> Shape:
    x, weight = typing.operands[:2]
    batch, channels, *spatial = _ranked(x)
    filters, depth, *kernel = _ranked(weight)
    typing.check_equal(channels, typing.integer("group") * depth)
    return Shape((batch, filters, *_windows(typing, spatial, kernel)))


def _phase_conv(typing: Typing) -> Shape:
    x, weight = typing.operands[:2]
    batch, channels, *spatial = _ranked(x)
    filters, depth = weight.dims[0], weight.extent(-1 - len(spatial))
    if weight.rank != 2 + 2 * len(spatial):
        raise BadProgram(f"PhaseConv of {x}: its filters {weight} have not {2 + 2 * len(spatial)} dimensions")
    typing.check_equal(channels, typing.integer("group") * depth)
    return Shape((batch, filters, *typing.integers("spatial")))


def _pool(typing: Typing) -> Shape:
    batch, channels, *spatial = _ranked(typing.first)
    if typing.term.attribute("ceil_mode") is not False:
        raise BadProgram(f"{typing.term.op}: write ceil_mode=False; other extents are not known here")
    return Shape((batch, channels, *_windows(typing, spatial, typing.integers("kernel_shape"))))


def _ranked(shape: Shape) -> tuple[Expr, ...]:
    if shape.rank < 3:
        raise BadProgram(f"{shape} has no spatial dimensions")
    return shape.dims


def _windows(typing: Typing, spatial: Sequence[Expr], kernel: Sequence[Expr]) -> list[Expr]:
    if len(kernel) != len(spatial):
        raise BadProgram(f"{typing.term.op} of {', '.join(map(str, typing.operands))}: the ranks differ")
    window, value = typing.term.attribute(WINDOW), typing.point.value
    if window is not None:  # an unknown function of its operands
        pairs = enumerate(zip(spatial, kernel, strict=True))
        return [Symbol(f"{window}({place}, {value(x)}, {value(k)})") for place, (x, k) in pairs]
    pads, strides, dilations = map(typing.integers, ("pads", "strides", "dilations"))
    begins, ends = pads[: len(spatial)], pads[len(spatial) :]
    sizes = zip(spatial, kernel, begins, ends, strides, dilations, strict=True)
    return [(x + before + after - d * (k - 1) - 1) // s + 1 for x, k, before, after, s, d in sizes]


def _pad(typing: Typing) -> Shape:
    before, after = typing.integers("before"), typing.integers("after")
    if len(before) != typing.first.rank:
        raise BadProgram(f"Pad of {typing.first}: {len(before)} widths")
    return Shape(tuple(x + b + a for x, b, a in zip(typing.first.dims, before, after, strict=True)))


def _tile(typing: Typing) -> Shape:
    return Shape(tuple(x * times for x, times in zip(typing.first.dims, typing.integers("repeats"), strict=True)))


def _repeat(typing: Typing) -> Shape:
    axis = typing.literal("axis")
    return typing.first.replaced(axis, typing.first.extent(axis) * typing.integer("times"))


def _reduction(typing: Typing) -> Shape:
    axes = {int(str(axis)) for axis in typing.integers("axes")}
    keep = bool(typing.term.attribute("keepdims"))
    dims = typing.first.dims
    for axis in axes:
        typing.first.extent(axis)
    places = [place - len(dims) for place in range(len(dims))]
    kept = [(ONE if p in axes else d) for p, d in zip(places, dims, strict=True) if keep or p not in axes]
    return Shape(tuple(kept), typing.first.leading)


def _gather(typing: Typing) -> Shape:
    data, indices = typing.operands
    if typing.literal("axis") != -data.rank:
        raise BadProgram("Gather: only rows of a table have a shape that is known here")
    return Shape((*indices.dims, *data.dims[1:]), indices.leading)


WINDOW = "window"
"""The attribute that denotes omitted strides, pads and dilations."""
WINDOW_LISTS = ("dilations", "pads", "strides")
"""Where they are."""
SHAPED = ("Reshape", "Expand")
"""Operators whose attribute ``shape`` is a shape, possibly with leading dimensions."""
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare")
"""Operators whose attribute ``axes`` lists dimensions that are removed, or become 1."""

_RULES: Mapping[str, Callable[[Typing], Shape]] = {
    **dict.fromkeys(REDUCTIONS, _reduction),
    "MatMul": _matmul,
    "Conv": _conv,
    "PhaseConv": _phase_conv,
    "Concat": _concat,
    "Slice": _slice,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Expand": _expand,
    "Pad": _pad,
    "Gather": _gather,
    "Tile": _tile,
    "Repeat": _repeat,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), lambda typing: typing.first),
}

_BY_TRAIT: Mapping[Trait, Callable[[Typing], Shape]] = {
    Trait.LIKE_FIRST: lambda typing: typing.first,
    Trait.POOLS: _pool,
    Trait.ELEMENTWISE: _elementwise,
}
"""The rules of other operators: the first that applies."""
