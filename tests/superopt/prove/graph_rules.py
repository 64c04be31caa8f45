"""Rules of ``graphs`` as rules over symbols.

What graphs say at one size is taken as generally as it can be: extents are equal only if operators need it. How many
groups a convolution has, which its shapes say there, is a number; or all channels, if each has a filter of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.superopt.prove.graphs import CONSTANTS, DIMENSIONS, INPUTS, Tree
from tests.superopt.prove.graphs import Rule as GraphRule
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.rules import Apply, Number, Rule, Term, Variable
from tilewright.superopt.generate.extents import (
    Extent,
    Mismatch,
    Shape,
    Solver,
    as_attribute,
    as_expr,
    as_shape,
    difference,
    literal,
    size_of,
    sizes,
)

Cut: TypeAlias = tuple["Cut | None", "Cut | None", Extent]
"""The cuts of both parts, and the extent of the first."""


@dataclass(frozen=True)
class _Value:
    """A part of a rule: its shape, and where each axis was concatenated last."""

    tree: Tree
    shape: Shape
    cuts: tuple[Cut | None, ...]
    operands: tuple["_Value", ...] = ()
    groups: Extent = ()


@dataclass
class _Typing:
    solver: Solver = field(default_factory=Solver)
    variables: dict[str, _Value] = field(default_factory=dict)

    def value(self, tree: Tree) -> _Value:
        """Raises ``Mismatch``."""
        op = str(tree[0])
        if op == "input":
            return self._variable(tree)
        if op in CONSTANTS:
            shape = self._constant(CONSTANTS[op])
            return _Value(tree, shape, (None,) * len(shape))
        operands = tuple(self.value(operand) for operand in tree[1:] if isinstance(operand, tuple))
        return self._applied(tree, operands)

    def _variable(self, tree: Tree) -> _Value:
        name = str(tree[1])
        if name not in self.variables:
            extents = [DIMENSIONS[0][e] if isinstance(e, str) else e for e in INPUTS[name]]
            shape = tuple(map(self.solver.fresh, extents))
            self.variables[name] = _Value(tree, shape, (None,) * len(shape))
        return self.variables[name]

    def _constant(self, extents: Sequence[str | int]) -> Shape:
        symbols = {e: self.solver.fresh(DIMENSIONS[0][e]) for e in extents if isinstance(e, str)}
        return tuple(symbols[e] if isinstance(e, str) else literal(e) for e in extents)

    def _applied(self, tree: Tree, operands: tuple[_Value, ...]) -> _Value:
        op, first = str(tree[0]), operands[0]
        x = first.shape
        match op:
            case "add" | "mul":
                self.solver.unify_shapes(x, operands[1].shape)
                cuts = tuple(a if a is not None else b for a, b in zip(first.cuts, operands[1].cuts, strict=True))
                return _Value(tree, x, cuts, operands)
            case "matmul":
                other = operands[1]
                self.solver.unify(x[1], other.shape[0])
                return _Value(tree, (x[0], other.shape[1]), (first.cuts[0], other.cuts[1]), operands)
            case "conv" | "convrelu":
                return self._convolved(tree, operands)
            case "concat0" | "concat1":
                return self._joined(tree, int(op[-1]), operands)
            case "transpose":
                return _Value(tree, x[::-1], first.cuts[::-1], operands)
            case "enlarge":
                for extent in x[2:]:
                    self.solver.pin(extent)
                return _Value(tree, (*x[:2], literal(3), literal(3)), first.cuts, operands)
            case _ if op.startswith("split"):
                return self._half(tree, int(op[5]), int(op[-1]), operands)
            case _:
                return _Value(tree, x, first.cuts, operands)

    def _joined(self, tree: Tree, axis: int, operands: tuple[_Value, ...]) -> _Value:
        a, b = operands
        self.solver.unify_shapes(a.shape, b.shape, but=axis)
        shape, cuts = list(a.shape), list(a.cuts)
        shape[axis] = a.shape[axis] + b.shape[axis]
        cuts[axis] = (a.cuts[axis], b.cuts[axis], a.shape[axis])
        return _Value(tree, tuple(shape), tuple(cuts), operands)

    def _half(self, tree: Tree, axis: int, which: int, operands: tuple[_Value, ...]) -> _Value:
        whole = operands[0]
        cut = whole.cuts[axis]
        if cut is None:
            raise Mismatch
        count = size_of(cut[2])
        rest = self.solver.fresh(size_of(whole.shape[axis]) - count)
        self.solver.unify(whole.shape[axis], cut[2] + rest)
        shape, cuts = list(whole.shape), list(whole.cuts)
        shape[axis], cuts[axis] = (cut[2], cut[0]) if which == 0 else (rest, cut[1])
        return _Value(tree, tuple(shape), tuple(cuts), operands)

    def _convolved(self, tree: Tree, operands: tuple[_Value, ...]) -> _Value:
        x, weight = operands
        for extent in weight.shape[2:]:
            self.solver.pin(extent)
        channels, (filters, depth, *_) = x.shape[1], weight.shape
        count, rest = divmod(size_of(channels), size_of(depth))
        if rest:
            raise Mismatch
        groups = literal(count)
        if count > 1 and size_of(depth) == 1:
            self.solver.unify(depth, literal(1))
            self.solver.unify(channels, filters)
            groups = channels
        elif count > 1:
            self.solver.unify(channels, depth * count)
            self.solver.unify(filters, self.solver.fresh(size_of(filters) // count) * count)
        else:
            self.solver.unify(channels, depth)
        shape, cuts = (x.shape[0], filters, *x.shape[2:]), (x.cuts[0], weight.cuts[0], *x.cuts[2:])
        return _Value(tree, shape, cuts, operands, groups)

    # Terms

    def term(self, value: _Value, variables: Mapping[str, Variable]) -> Term:
        op, shape = str(value.tree[0]), self.solver.shape(value.shape)
        if op == "input":
            return variables[str(value.tree[1])]
        if op in CONSTANTS:
            return _CONSTANTS[op](shape)
        operands = [self.term(operand, variables) for operand in value.operands]
        shapes = [self.solver.shape(operand.shape) for operand in value.operands]
        match op:
            case "add" | "mul" | "scale" | "matmul":
                return _apply({"add": "Add", "matmul": "MatMul"}.get(op, "Mul"), *operands)
            case "conv" | "convrelu":
                around = [size_of(extent) // 2 for extent in shapes[1][2:]]
                groups = as_attribute(self.solver.resolved(value.groups))
                made = _apply("Conv", *operands, pads=(*around, *around), group=groups)
                return made if op == "conv" else _apply("Relu", made)
            case "relu":
                return _apply("Relu", *operands)
            case "concat0" | "concat1":
                return _apply("Concat", *operands, axis=int(op[-1]))
            case "transpose":
                return _apply("Transpose", *operands, perm=(1, 0))
            case "avgpool":
                return _apply("AveragePool", *operands, kernel_shape=(3, 3), pads=(1,) * 4, count_include_pad=True)
            case "maxpool":
                return _apply("MaxPool", *operands, kernel_shape=(3, 3), pads=(1,) * 4)
            case "enlarge":
                around = [(3 - extent) // 2 for extent in sizes(shapes[0])[2:]]
                return _apply("Pad", *operands, before=(0, 0, *around), after=(0, 0, *around))
            case _:
                axis, which = int(op[5]), int(op[-1])
                whole, part = shapes[0][axis], shape[axis]
                start, end = (0, as_attribute(part)) if which == 0 else (difference(whole, part), as_attribute(whole))
                return _apply("Slice", *operands, axes=(axis,), starts=(start,), ends=(end,))


def _apply(name: str, *operands: Term, **attributes: Attribute) -> Apply:
    return Apply(require(name), operands, tuple(attributes.items()))


def _identity(shape: Shape) -> Term:
    return _apply("EyeLike", _apply("Expand", Number(0.0), shape=as_shape(shape)))


def _ones(shape: Shape) -> Term:
    return _apply("Expand", Number(1.0), shape=as_shape(shape))


def _identity_kernel(shape: Shape) -> Term:
    kernel = _apply("Unsqueeze", _identity(shape[:2]), axes=(2, 3))
    return _apply("Pad", kernel, before=(0, 0, 1, 1), after=(0, 0, 1, 1))


_CONSTANTS = {
    "cpool": lambda shape: _apply("Div", _ones(shape), Number(9.0)),
    "iconv": _identity_kernel,
    "imm": _identity,
    "one": _ones,
}


def symbolic(rule: GraphRule, name: str) -> Rule | None:
    """The most general rule; None if it has none. Shapes of constants need not follow from its variables."""
    typing = _Typing()
    try:
        sources, targets = ([typing.value(tree) for tree in side] for side in (rule.sources, rule.targets))
        for a, b in zip(sources, targets, strict=True):
            typing.solver.unify_shapes(a.shape, b.shape)
    except Mismatch:
        return None
    variables = {
        number: Variable(number, tuple(map(as_expr, typing.solver.shape(value.shape))))
        for number, value in typing.variables.items()
    }
    sides = [tuple(typing.term(value, variables) for value in side) for side in (sources, targets)]
    return Rule(name, tuple(variables.values()), sides[0], sides[1])
