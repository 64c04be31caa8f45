"""Rules and terms: the data structures of rewrite rules.

Grammar
-------
::

    term     = Variable(name, shape, leading, is_weight, kind) any value of that shape and kind
             | Number(value)                                   a constant all of whose elements are ``value``
             | Apply(op, operands, attributes, rest, output)   result ``output`` of an operator
    rule     = Rule(name, variables, sources, targets, needs, proof)

Meaning ------- A rule states that each source equals its target, for all values of its variables, wherever both are
well-typed and ``needs`` hold. Equal terms are one node of a graph: sharing needs no notation.

Extents and integer attributes are expressions over *symbols* (``Symbol``), which denote integers. With ``leading``, a
variable has any number of dimensions before those of ``shape``: one name denotes one list of extents, which attributes
can name, too (the symbol ``*b``). ``rest`` names the attributes that are not written: one name denotes the same
attributes everywhere. A weight is known at compile time: an initializer, or a value computed from initializers only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias, Union

from tilewright.ops import Attribute, Operator
from tilewright.symbolic.expr import Expr, Var

Term: TypeAlias = Union["Variable", "Number", "Apply"]
Written: TypeAlias = tuple[tuple[str, Attribute], ...]


class Kind(Enum):
    """What the elements of a variable are."""

    ANY = "any"
    """Floats, in rules that compute; anything, in rules that only move elements."""
    BYTE = "byte"
    """Integers of 8 bits, with or without a sign."""
    INTEGER = "integer"
    """Integers, which wrap around."""
    SCALE = "scale"
    """Known float32 numbers by which integers are multiplied: positive, and neither tiny nor near to overflow."""


@dataclass(frozen=True, slots=True)
class Variable:
    """Any value of ``kind`` whose last dimensions are ``shape``, preceded by those of ``leading``."""

    name: str
    shape: tuple[Expr, ...] = ()
    leading: str | None = None
    is_weight: bool = False
    kind: Kind = Kind.ANY


@dataclass(frozen=True, slots=True)
class Number:
    """A constant that is ``value`` everywhere."""

    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """One result of an operator. Equal by structure; comparisons and hashes use a digest, as terms share much."""

    op: Operator
    operands: tuple[Term, ...]
    attributes: Written = ()
    """The written attributes; sorted by name."""
    rest: str | None = None
    output: int = 0
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(sorted(self.attributes, key=lambda named: named[0])))
        operands = [o.digest if isinstance(o, Apply) else repr(o) for o in self.operands]
        content = repr((self.op.name, operands, self.attributes, self.rest, self.output))
        object.__setattr__(self, "digest", blake2b(content.encode(), digest_size=16).digest())

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Apply) and self.digest == other.digest

    def attribute(self, name: str) -> Attribute:
        """The attribute ``name`` as it is written, None if it is not."""
        return dict(self.attributes).get(name)


class Evidence(Enum):
    """The evidence for a rule."""

    PROVED = "proved"
    """Derived from axioms."""
    TESTED = "tested"
    """Evaluated over the field at all tried shapes without a failure. Such rules are applied only on request."""
    DEFINED = "defined"
    """An axiom: checked at all small sizes, and assumed for all."""


@dataclass(frozen=True, slots=True)
class Proof:
    """``axioms``: the names of those in the proof. ``shapes``: the number of shapes at which the rule was evaluated."""

    evidence: Evidence
    axioms: tuple[str, ...] = ()
    shapes: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """``sources[i]`` equals ``targets[i]``, for each ``i``, where ``needs`` (conditions over symbols) hold."""

    name: str
    variables: tuple[Variable, ...]
    sources: tuple[Term, ...]
    targets: tuple[Term, ...]
    needs: tuple[Expr, ...] = ()
    proof: Proof | None = None
    only_integers: bool = False
    """Whether it is applied to integers only, which have no rounding (``kinds.for_integers``)."""

    @property
    def symbols(self) -> frozenset[Var]:
        """The symbols that denote integers."""
        return frozenset[Var]().union(
            *map(symbols_of, self.variables), *map(symbols_of, (*self.sources, *self.targets))
        )

    def with_variables(
        self, change: Callable[[Variable], Variable], written: Callable[[Apply], Written] = lambda term: term.attributes
    ) -> "Rule":
        """The rule with ``change`` applied to variables, and ``written`` to attributes."""

        def visit(term: Term) -> Term:
            match term:
                case Variable():
                    return change(term)
                case Number():
                    return term
                case Apply():
                    return Apply(term.op, tuple(map(visit, term.operands)), written(term), term.rest, term.output)

        sources, targets = (tuple(map(visit, side)) for side in (self.sources, self.targets))
        return replace(self, variables=tuple(map(change, self.variables)), sources=sources, targets=targets)


def subterms(terms: Sequence[Term]) -> Iterator[Term]:
    """All terms in ``terms``, each once, operands first."""
    seen: set[Term] = set()

    def visit(term: Term) -> Iterator[Term]:
        if term in seen:
            return
        seen.add(term)
        if isinstance(term, Apply):
            for operand in term.operands:
                yield from visit(operand)
        yield term

    for term in terms:
        yield from visit(term)


@lru_cache(maxsize=4096)
def symbols_of(term: Term) -> frozenset[Var]:
    """The symbols in a term's shapes and attributes, including its operands'."""
    found: set[Var] = set()
    for part in subterms([term]):
        if isinstance(part, Variable):
            found.update(*(extent.variables for extent in part.shape))
        elif isinstance(part, Apply):
            for _, value in part.attributes:
                for item in value if isinstance(value, tuple) else (value,):
                    found.update(item.variables if isinstance(item, Expr) else ())
    return frozenset(found)
