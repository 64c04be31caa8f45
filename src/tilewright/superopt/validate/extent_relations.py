"""Constraints of operators on extents, and attributes that contain extents.

Extents are replaced by value: ``sizes[n]`` replaces ``n`` wherever it is an extent, or an index along a dimension. Most
constraints follow from the shapes of terms (``term_shapes``) over symbols, one for each extent. The constraints here
preserve the structure of a step: the sizes of windows, the bounds of slices, the groups of reshapes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TypeAlias

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute, Operator, Trait
from tilewright.ops.movement import cut_indices
from tilewright.ops.operator import map_expressions
from tilewright.passes.rules.generic_points import Point
from tilewright.passes.rules.normal_form import Normalizer
from tilewright.passes.rules.terms import Apply, Variable
from tilewright.superopt.validate.congruence import Attributes
from tilewright.symbolic.expr import ONE, Binary, Const, Expr, Symbol, Var, const
from tilewright.symbolic.operations import BinaryOp

Shape: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = Mapping[int, int]

_NAMING = frozenset({"shape", "before", "after", "repeats", "group"})
"""Attributes whose numbers are extents, or parts of them, if such extents occur."""


def _symbol(extent: int) -> Expr:
    """The symbol of ``extent``; 0 and 1 are constants."""
    return Symbol(str(extent)) if extent > 1 else const(extent)


def _number(expr: Expr, sizes: Sizes) -> int:
    match expr:
        case Const(value):
            return int(value)
        case Var(name):
            return sizes.get(int(name), int(name))
        case Binary(BinaryOp.ADD, a, b):
            return _number(a, sizes) + _number(b, sizes)
        case Binary(BinaryOp.SUB, a, b):
            return _number(a, sizes) - _number(b, sizes)
        case Binary(BinaryOp.MUL, a, b):
            return _number(a, sizes) * _number(b, sizes)
        case Binary(BinaryOp.FLOORDIV, a, b):
            return _number(a, sizes) // _number(b, sizes)
        case _:
            raise BadProgram(f"the extent `{expr}` is no sum, difference, product or quotient")


@dataclass(frozen=True, slots=True)
class Relation:
    """The constraint that two expressions over symbols of extents are equal."""

    left: Expr
    right: Expr

    @property
    def extents(self) -> frozenset[int]:
        """The extents in the constraint."""
        return frozenset(int(symbol.name) for symbol in (*self.left.variables, *self.right.variables))

    def holds(self, sizes: Sizes) -> bool:
        """Whether it holds for ``sizes``, which have all of ``extents``."""
        return _number(self.left, sizes) == _number(self.right, sizes)

    def follows(self, extent: int, sizes: Sizes) -> int | None:
        """The unique value of ``extent`` if ``sizes`` have all others; None if there are several, or none."""
        tried = ({**sizes, extent: number} for number in range(3))
        at_zero, at_one, at_two = (_number(self.left, each) - _number(self.right, each) for each in tried)
        slope = at_one - at_zero
        return -at_zero // slope if slope and at_two - at_one == slope else None


def _kept(extents: Sequence[int]) -> Iterator[Relation]:
    """Constraints that ``extents`` keep their values."""
    return (Relation(_symbol(extent), const(extent)) for extent in extents if extent > 1)


def _product(extents: Sequence[int]) -> Expr:
    return reduce(lambda a, b: a * b, map(_symbol, extents), ONE)


@dataclass(frozen=True, slots=True)
class Use:
    """The extents of a step: shapes of its operands (None: absent) and results, and its attributes."""

    op: Operator
    attributes: Attributes
    operands: tuple[Shape | None, ...]
    results: tuple[Shape, ...]

    @property
    def source(self) -> Shape:
        """The shape of the first operand."""
        return self.operand(0)

    def operand(self, position: int) -> Shape:
        """The shape of an operand, which must not be absent."""
        shape = self.operands[position]
        assert shape is not None, f"{self.op} needs it"
        return shape

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = dict(self.attributes).get(name)
        if not isinstance(value, tuple):
            return default
        return tuple(item for item in value if isinstance(item, int))

    def cuts(self) -> Iterator[tuple[int, int, int, int]]:
        """The dimension, start, end and step of each cut of a slice."""
        starts, ends = self.integers("starts"), self.integers("ends")
        axes = self.integers("axes", tuple(range(len(starts))))
        for axis, start, end, step in zip(axes, starts, ends, self.integers("steps", (1,) * len(starts)), strict=True):
            yield axis, *cut_indices(self.source[axis], start, end, step)

    def over_symbols(self) -> dict[str, Attribute]:
        """The attributes, with symbols for numbers that may be extents."""
        written = {name: _named(value) if name in _NAMING else value for name, value in self.attributes}
        if self.op.name == "Reshape":
            written["shape"] = tuple(map(_symbol, self.results[0]))
        if self.op.name == "Slice":
            for at, name in ((1, "starts"), (2, "ends")):
                pairs = zip(self.cuts(), self.integers(name), strict=True)
                written[name] = tuple(_symbol(cut[at]) if _is_plain(*cut) else old for cut, old in pairs)
        return written


def _is_plain(axis: int, start: int, end: int, step: int) -> bool:
    """Whether a slice is contiguous, with bounds counted from the start."""
    return step == 1 and start < end


def _named(value: Attribute) -> Attribute:
    if isinstance(value, tuple):
        return tuple(_symbol(item) for item in value if isinstance(item, int))
    return _symbol(value) if isinstance(value, int) else value


def relations(use: Use) -> list[Relation]:
    """The known constraints of a step on extents; unknown ones show when the operator is applied."""
    by_trait = next((made for trait, made in _BY_TRAIT.items() if use.op.has(trait)), _of_shapes)
    return list(_SPECIAL.get(use.op.name, by_trait)(use))


def counts(use: Use) -> list[Relation]:
    """Constraints that keep the number of elements of a mean, as a literal elsewhere may equal it."""
    if use.op.name != "ReduceMean":
        return []
    return list(_kept([use.source[axis] for axis in use.integers("axes", tuple(range(len(use.source))))]))


def resized(use: Use, sizes: Sizes) -> Attributes:
    """The attributes, with extents replaced by ``sizes``."""
    written = use.over_symbols()
    return tuple((name, map_expressions(written[name], lambda one: _number(one, sizes))) for name, _ in use.attributes)


class _Recorder(Point):
    """A generic point that records the equalities needed for well-typed terms."""

    def require(self, a: Expr, b: Expr) -> bool:
        if not self.equal(a, b):
            self.required.append((a, b))
        return True


def _of_shapes(use: Use) -> Iterator[Relation]:
    """The constraints by which the step is well-typed, with its result shape."""
    given = [shape for shape in use.operands if shape is not None]
    operands = tuple(Variable(f"x{place}", tuple(map(_symbol, shape))) for place, shape in enumerate(given))
    forms = Normalizer(_Recorder())
    try:
        made = forms.shape(forms.normal(Apply(use.op, operands, tuple(use.over_symbols().items()))))
    except BadProgram:
        return
    for extent, known in zip(made.dims, use.results[0], strict=True):
        forms.point.require(extent, _symbol(known))
    yield from (Relation(a, b) for a, b in forms.point.required)


def _regrouped(use: Use) -> Iterator[Relation]:
    """The constraints of a reshape: minimal groups of dimensions with equal numbers of elements."""
    old, new = ([extent for extent in shape if extent != 1] for shape in (use.source, use.results[0]))
    if 0 in old:
        yield from _kept([*old, *new])
        return
    while old and new:
        left, right = [old.pop(0)], [new.pop(0)]
        while prod(left) != prod(right):
            if prod(left) < prod(right):
                left.append(old.pop(0))
            else:
                right.append(new.pop(0))
        if left != right:
            yield Relation(_product(left), _product(right))


def _cut(use: Use) -> Iterator[Relation]:
    for axis, start, end, step in use.cuts():
        extent = use.source[axis]
        if _is_plain(axis, start, end, step):
            yield Relation(_symbol(end), _symbol(start) + _symbol(end - start))
            yield Relation(_symbol(extent), _symbol(end) + _symbol(extent - end))
        else:
            yield from _kept((extent, use.results[0][axis]))


def _convolved(use: Use) -> Iterator[Relation]:
    yield from _of_shapes(use)
    yield from _grouped(use)
    yield from _kept(use.operand(1)[2:])


def _convolved_by_phases(use: Use) -> Iterator[Relation]:
    """A convolution by phases, with filters ``[outputs, strides..., inputs, taps...]``: only channels vary."""
    filters, rank = use.operand(1), len(use.source) - 2
    yield from _of_shapes(use)
    yield from _grouped(use)
    yield from _kept((*use.source[2:], *filters[1 : rank + 1], *filters[rank + 2 :]))


def _grouped(use: Use) -> Iterator[Relation]:
    group, outputs = dict(use.attributes).get("group"), use.operand(1)[0]
    if isinstance(group, int) and group > 1:
        yield Relation(_symbol(outputs), _symbol(group) * _symbol(outputs // group))


def _pooled(use: Use) -> Iterator[Relation]:
    if dict(use.attributes).get("ceil_mode"):
        return _kept((*use.source[2:], *use.results[0][2:]))
    return _of_shapes(use)


_BY_TRAIT: Mapping[Trait, Callable[[Use], Iterator[Relation]]] = {Trait.REGROUPS: _regrouped, Trait.POOLS: _pooled}
_SPECIAL: Mapping[str, Callable[[Use], Iterator[Relation]]] = {
    "Conv": _convolved,
    "PhaseConv": _convolved_by_phases,
    "Slice": _cut,
}
"""Operators with constraints beyond those of shapes."""
