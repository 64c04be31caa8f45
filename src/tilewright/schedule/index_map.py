"""Index maps: packed layouts and loop tilings, with their inverses.

A map takes a point of a box (one variable for each dimension) to a point of another one. Its results are sums of
*digits*: ``v // scale % modulus`` of one variable each. That covers packed layouts (``k, j -> j // 32, k, j % 32``),
flattening, and the bindings of split and fused loops; and it is invertible.

(Mixed-radix digits are the quasi-affine subset of the iterator maps of TensorIR, Feng et al. 2023.)
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadInput
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, ExprLike, Var, as_expr, const, format_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import substitute


@dataclass(frozen=True, slots=True)
class Digit:
    """``var // scale % modulus``; without a modulus, ``var // scale``."""

    var: Var
    scale: int = 1
    modulus: int | None = None

    def extent(self, of_var: Expr) -> Expr:
        """The number of values for ``0 <= var < of_var``; the full modulus, if there is one."""
        return (of_var + (self.scale - 1)) // self.scale if self.modulus is None else const(self.modulus)


@dataclass(frozen=True, slots=True)
class Place:
    """A digit at its position in a result: ``result // weight % extent`` extracts it (the top one: ``// weight``)."""

    digit: Digit
    weight: int
    extent: Expr
    is_top: bool

    def taken_from(self, result: Expr) -> Expr:
        """The digit's value, given that of the result."""
        shifted = result // self.weight
        return shifted if self.is_top else shifted % self.extent


@dataclass(frozen=True, slots=True)
class IndexMap:
    """``variables -> results``."""

    variables: tuple[Var, ...]
    results: tuple[Expr, ...]

    @staticmethod
    def of(function: Callable[..., Sequence[ExprLike]], rank: int) -> "IndexMap":
        """The map written as a Python function of ``rank`` indices, which returns a tuple of expressions.

        Raises ``BadInput`` for another number of parameters, or other variables in the results.
        """
        names = [p.name for p in inspect.signature(function).parameters.values()]
        if len(names) != rank:
            raise BadInput(f"the index map takes {len(names)} indices, but the buffer has {rank} dimensions")
        variables = tuple(map(Var, names))
        results = tuple(as_expr(result) for result in function(*variables))
        others = {v for result in results for v in result.variables} - {*variables}
        if others:
            raise BadInput(f"the index map uses {', '.join(sorted(map(str, others)))}, which is none of its indices")
        return IndexMap(variables, results)

    @staticmethod
    def parse(text: str) -> "IndexMap":
        """The map written ``k, j -> j // 32, k, j % 32``. Raises ``BadInput`` for malformed text."""
        left, arrow, right = text.partition("->")
        try:
            body = ast.parse(f"({right.strip()},)", mode="eval").body
        except SyntaxError as error:
            raise BadInput(f"{text!r} is no index map; write one as 'k, j -> j // 32, k, j % 32'") from error
        names = [name.strip() for name in left.split(",") if name.strip()]
        if not arrow or not isinstance(body, ast.Tuple) or not all(name.isidentifier() for name in names):
            raise BadInput(f"{text!r} is no index map; write one as 'k, j -> j // 32, k, j % 32'")
        variables = tuple(map(Var, names))
        scope = {v.name: v for v in variables}
        return IndexMap(variables, tuple(_from_syntax(node, scope, text) for node in body.elts))

    def __str__(self) -> str:
        return f"{', '.join(v.name for v in self.variables)} -> {', '.join(map(format_expr, self.results))}"

    def apply(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The results at ``indices``."""
        values = dict(zip(self.variables, indices, strict=True))
        return tuple(substitute(result, values) for result in self.results)

    def places(self, extents: Sequence[Expr]) -> tuple[tuple[Place, ...], ...]:
        """The digits of each result, least significant first. Raises ``BadInput`` if one is not a sum of digits."""
        box = dict(zip(self.variables, extents, strict=True))
        return tuple(_places(result, box) for result in self.results)

    def shape(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The extents of the results for variables of these ``extents``, rounded up where they do not divide."""
        return tuple(_extent(places) for places in self.places(extents))

    def inverse(self, extents: Sequence[Expr], results: Sequence[Expr]) -> tuple[Expr, ...]:
        """The variables, in terms of ``results``.

        Raises ``BadInput`` if two points of the box of ``extents`` would have the same image.
        """
        found: dict[Var, list[tuple[Place, Expr]]] = {v: [] for v in self.variables}
        for places, value in zip(self.places(extents), results, strict=True):
            for place in places:
                found[place.digit.var].append((place, place.taken_from(value)))
        return tuple(self._variable(v, e, found[v]) for v, e in zip(self.variables, extents, strict=True))

    def _variable(self, variable: Var, extent: Expr, found: list[tuple[Place, Expr]]) -> Expr:
        digits = sorted(found, key=lambda pair: pair[0].digit.scale)
        value: Expr = ZERO
        covered: int | None = 1
        for place, taken in digits:
            if covered is None or covered != place.digit.scale:
                break
            value = value + taken * covered
            covered = None if place.digit.modulus is None else covered * place.digit.modulus
        else:
            if covered is None or (isinstance(extent, Const) and extent.value <= covered):
                return value
        raise BadInput(f"the index map `{self}` does not keep apart all values of {variable} (of extent {extent})")


_OPERATORS: dict[type[ast.operator], Callable[[ExprLike, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _from_syntax(node: ast.expr, scope: Mapping[str, Var], text: str) -> Expr:
    match node:
        case ast.Name(name) if name in scope:
            return scope[name]
        case ast.Constant(int(value)):
            return const(value)
        case ast.BinOp(a, op, b) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_from_syntax(a, scope, text), _from_syntax(b, scope, text))
        case _:
            raise BadInput(f"`{ast.unparse(node)}` can't stand in the index map {text!r}; use its indices, + - * // %")


def digit(expr: Expr) -> Digit | None:
    """``expr`` as a digit of one variable, or None."""
    match expr:
        case Var():
            return Digit(expr)
        case Binary(BinaryOp.FLOORDIV, a, Const(int(by))) if by > 0:
            inner = digit(a)
            if inner is None or (inner.modulus is not None and inner.modulus % by):
                return None
            return Digit(inner.var, inner.scale * by, None if inner.modulus is None else inner.modulus // by)
        case Binary(BinaryOp.MOD, a, Const(int(by))) if by > 0:
            inner = digit(a)
            if inner is None or (inner.modulus is not None and inner.modulus % by):
                return None
            return Digit(inner.var, inner.scale, by)
        case _:
            return None


def _weighted(expr: Expr, weight: int = 1) -> list[tuple[int, Digit]]:
    """The digits in ``expr`` and their coefficients."""
    match expr:
        case Const(0):
            return []
        case Binary(BinaryOp.ADD, a, b):
            return _weighted(a, weight) + _weighted(b, weight)
        case Binary(BinaryOp.MUL, a, Const(int(by))) | Binary(BinaryOp.MUL, Const(int(by)), a) if by > 0:
            return _weighted(a, weight * by)
        case _:
            single = digit(expr)
            if single is None:
                raise BadInput(f"`{expr}` is no sum of `v // scale % modulus` terms")
            return [(weight, single)]


def _places(result: Expr, box: Mapping[Var, Expr]) -> tuple[Place, ...]:
    terms = [(w, d, d.extent(box[d.var])) for w, d in _weighted(result)]
    # A digit that is always zero adds nothing, and would make the weights ambiguous.
    terms = sorted((t for t in terms if t[2] != ONE or len(terms) == 1), key=lambda term: term[0])
    places: list[Place] = []
    expected: Expr = ONE
    for position, (weight, single, extent) in enumerate(terms):
        if expected != const(weight):
            raise BadInput(f"the terms of `{result}` overlap or leave holes: {single.var} needs the weight {expected}")
        places.append(Place(single, weight, extent, position == len(terms) - 1))
        expected = extent * weight
    return tuple(places)


def _extent(places: tuple[Place, ...]) -> Expr:
    return places[-1].extent * places[-1].weight if places else ONE
