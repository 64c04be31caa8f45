"""Evaluates operators and terms on many samples at once, over a domain of scalars.

The te program of an operator for given shapes is compiled once (``tensor.over_domain``). Arrays have the shape of a
tensor, followed by an axis of samples.

    evaluator = Evaluator(Modular(seed=0))
    x = evaluator.domain.random((2, 4, 1000), seed=1)      # 1000 matrices of 2 rows and 4 columns
    (y,) = evaluator.apply(require("Transpose"), {"perm": (1, 0)}, [x])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram
from tilewright.base.exact import Exact
from tilewright.ops import Attribute, Operator
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import number_at
from tilewright.passes.rules.terms import Apply, Number, Term, Variable
from tilewright.superopt.evaluate.places import Work, work
from tilewright.symbolic.expr import Expr, Var
from tilewright.tensor.build import placeholder
from tilewright.tensor.domains import Domain
from tilewright.tensor.over_domain import DomainProgram

Shape: TypeAlias = tuple[int, ...]
_Key: TypeAlias = tuple[Operator, Exact[tuple[tuple[str, Attribute], ...]], tuple[Shape, ...]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator of operators and terms over one domain."""

    domain: Domain

    def apply(self, op: Operator, attributes: Mapping[str, Attribute], arrays: Sequence[Array]) -> list[Array]:
        """The results of ``op``. Raises ``BadProgram`` if ``arrays`` do not fit, and as ``DomainProgram`` does."""
        found, compiled = _prepared(*_key(op, attributes, [array.shape[:-1] for array in arrays]))
        if found is None:
            return compiled(arrays, self.domain)
        inside = [view.of(array) for view, array in zip(found.inside, arrays, strict=True)]
        return [found.outside.of(result) for result in compiled(inside, self.domain)]

    def term(self, term: Term, bindings: "Bindings", known: dict[Term, Array] | None = None) -> Array:
        """The value of a term; ``known`` caches the values of its subterms.

        Raises as ``apply``, and ``BadProgram`` for names missing in ``bindings``.
        """
        values = {} if known is None else known
        if term not in values:
            values[term] = self._value(term, bindings, values)
        return values[term]

    def _value(self, term: Term, bindings: "Bindings", known: dict[Term, Array]) -> Array:
        match term:
            case Number(value):
                return self.domain.constant(value).reshape(1)
            case Variable(name):
                if name not in bindings.values:
                    raise BadProgram(f"no value is given for the variable {name}")
                return bindings.values[name]
            case Apply(op, operands, _, _, output):
                arrays = [self.term(operand, bindings, known) for operand in operands]
                results = self.apply(op, bindings.attributes(term), arrays)
                if output >= len(results):
                    raise BadProgram(f"{op} has {len(results)} results; there is no .{output}")
                return results[output]


def _key(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> _Key:
    return op, Exact(tuple(sorted(attributes.items()))) if attributes else _NONE, tuple(shapes)


_NONE: Exact[tuple[tuple[str, Attribute], ...]] = Exact(())


@lru_cache(maxsize=4096)
def _prepared(
    op: Operator, attributes: Exact[tuple[tuple[str, Attribute], ...]], shapes: tuple[Shape, ...]
) -> tuple[Work | None, DomainProgram]:
    """The work of ``op`` per place (None: no places), and its program."""
    found = work(op, dict(attributes.value), shapes)
    if found is None:
        return None, _compiled(op, attributes, shapes)
    return found, _compiled(*_key(op, found.attributes, found.shapes))


@lru_cache(maxsize=1024)
def _compiled(
    op: Operator, attributes: Exact[tuple[tuple[str, Attribute], ...]], shapes: tuple[Shape, ...]
) -> DomainProgram:
    inputs = [placeholder(shape, dtypes.f64, f"x{i}") for i, shape in enumerate(shapes)]
    return DomainProgram(inputs, op.apply(inputs, dict(attributes.value)))


@dataclass(frozen=True, slots=True)
class Bindings:
    """Values of the names in a rule."""

    values: Mapping[str, Array]
    """Values of variables, ``[*shape, samples]``."""
    symbols: Mapping[Var, int] = field(default_factory=dict[Var, int])
    rests: Mapping[str, Mapping[str, Attribute]] = field(default_factory=dict[str, Mapping[str, Attribute]])
    """The attributes that ``**name`` stands for."""

    def attributes(self, term: Apply) -> dict[str, Attribute]:
        """The attributes of ``term``, with integers for symbols. Raises ``BadProgram`` for an unbound name."""
        if term.rest is not None and term.rest not in self.rests:
            raise BadProgram(f"no attributes are given for **{term.rest}")
        written = {name: map_expressions(value, self.integer) for name, value in term.attributes}
        return written if term.rest is None else {**self.rests[term.rest], **written}

    def integer(self, value: Expr) -> int:
        """The value of an expression over symbols. Raises ``BadProgram`` for an unbound symbol."""
        return number_at(value, self.symbols)
