"""What a rule does to floats: of real numbers, its sides are equal, but floats are rounded in each step.

Each *element* of a result is written as the expression that computes it, without where it lies: operators that only
move elements vanish, and ``Relu(Concat(a, b))`` has the elements ``Relu(a)`` and ``Relu(b)``, as ``Concat(Relu(a),
Relu(b))`` has. Of two operands that both have several kinds of elements, it is not known which ones meet: then the
expression has the sets. So a rule may be held for one that changes more than it does. In a sum it matters which
elements meet: there, a part of an operand, and a transposed one, are other operands than the whole.

Integers are not rounded: what is computed of them, and is an integer, has the same bits in any order. A maximum of
integers is one of them, also after they are multiplied by a positive scale.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from types import MappingProxyType

from tilewright.base.numerics import Math
from tilewright.ops.operator import FusionKind, Trait, require
from tilewright.passes.rules.kinds import OF_RINGS, for_integers, holds_for_integers
from tilewright.passes.rules.terms import Apply, Kind, Number, Rule, Term, Variable, subterms


class Floats(Enum):
    """What a rule does to floats."""

    EXACT = "exact"
    """Moves elements: the same bits."""
    REASSOCIATES = "reassociates"
    """Rounds elsewhere, or adds in another order; all intermediate values of data are those of the graph as given."""
    MAY_OVERFLOW = "may overflow"
    """Has other intermediate values of data: they may overflow, or cancel each other, where those before do not."""


_PERMITTED: Mapping[Math, frozenset[Floats]] = MappingProxyType(
    {
        Math.STRICT: frozenset({Floats.EXACT}),
        Math.CAREFUL: frozenset({Floats.EXACT, Floats.REASSOCIATES}),
        Math.DEFAULT: frozenset(Floats),
        Math.FAST: frozenset(Floats),
    }
)


def permitted_floats(math: Math) -> frozenset[Floats]:
    """What rules of a search, of a user and of packages may do to floats under ``math``."""
    return _PERMITTED[math]


def is_permitted(rule: Rule, math: Math) -> bool:
    """Whether ``rule`` may be applied under ``math``."""
    return floats_of(rule) in permitted_floats(math)


def permitted_rule(rule: Rule, math: Math) -> Rule | None:
    """``rule`` as ``math`` permits it: perhaps for integers only, which are not rounded. None if it does not."""
    if is_permitted(rule, math):
        return rule
    return for_integers(rule) if holds_for_integers(rule) else None


@lru_cache(maxsize=4096)
def floats_of(rule: Rule) -> Floats:
    """What ``rule`` does to floats. Weights that it composes are no data: they are finite, or it is not applied."""
    if rule.only_integers or all(map(_is_of_integers, (*rule.sources, *rule.targets))):
        return Floats.EXACT
    given = {element for term in subterms(rule.sources) if _computes(term) for element in _elements(term, False)}
    results = {part for target in rule.targets for part in _unmoved(target)}
    made = [term for term in subterms(rule.targets) if _computes(term) and term not in results and not _is_known(term)]
    if not all(_elements(term, True) <= given for term in made if not _is_of_integers(term)):
        return Floats.MAY_OVERFLOW
    sides = zip(rule.sources, rule.targets, strict=True)
    are_alike = all(_elements(source, False) == _elements(target, False) for source, target in sides)
    has_sums = any(_sums(term) for term in subterms((*rule.sources, *rule.targets)) if not _is_of_integers(term))
    return Floats.EXACT if are_alike and not has_sums else Floats.REASSOCIATES


def _is_of_integers(term: Term) -> bool:
    """Whether a term is an integer, and all that it is computed of."""
    match term:
        case Variable(kind=kind):
            return kind in (Kind.BYTE, Kind.INTEGER)
        case Number():
            return False
        case Apply(op=op, operands=operands):
            is_one = op in _OF_BYTES or op in _MAXIMA or op in OF_RINGS or _moves(term)
            return is_one and all(map(_is_of_integers, operands))


def _is_maximum_of_integers(term: Apply) -> bool:
    """Whether it is, perhaps after they are multiplied by a scale: the product is rounded, and keeps their order."""
    if term.op not in _MAXIMA:
        return False
    (operand,) = term.operands
    if isinstance(operand, Apply) and operand.op == _DEQUANTIZE:
        integers, scale, *zeros = operand.operands
        is_scale = isinstance(scale, Variable) and scale.kind is Kind.SCALE and not scale.shape and not scale.leading
        return is_scale and all(map(_is_of_integers, (integers, *zeros)))
    return _is_of_integers(operand)


_SLICE, _PAD, _TRANSPOSE = require("Slice"), require("Pad"), require("Transpose")
_MAXIMA = (require("MaxPool"), require("ReduceMax"), require("ReduceMin"))
_OF_BYTES = (require("MatMulInteger"), require("ConvInteger"))
_QUANTIZE, _DEQUANTIZE = require("QuantizeLinear"), require("DequantizeLinear")
_SUMMING = (FusionKind.CONTRACTION, FusionKind.REDUCTION)


def _moves(term: Term) -> bool:
    return isinstance(term, Apply) and (term.op.has(Trait.MOVES) or term.op == _PAD)


def _computes(term: Term) -> bool:
    """Whether a term has elements that its operands do not have."""
    return isinstance(term, Apply) and not _moves(term) and term.op not in _MAXIMA


def _sums(term: Term) -> bool:
    return isinstance(term, Apply) and term.op.kind in _SUMMING and term.op not in _MAXIMA


def _is_known(term: Term) -> bool:
    """Whether a term is computed from weights alone."""
    return all(part.is_weight for part in subterms([term]) if isinstance(part, Variable))


def _unmoved(term: Term) -> Sequence[Term]:
    """What computes all elements of a result, and none besides."""
    if isinstance(term, Apply) and _moves(term) and term.op != _SLICE:
        return [part for operand in term.operands for part in _unmoved(operand)]
    return [term]


def _elements(term: Term, each: bool, in_sum: bool = False) -> frozenset[str]:
    """The expressions of a term's elements. ``each``: those of sums over one operand of several kinds of elements are
    told apart, as if all of an operand's elements in a sum were of one kind. ``in_sum``: the term is in a sum."""
    match term:
        case Variable(name=name):
            return frozenset([name])
        case Number(value):
            return frozenset([repr(value)])
        case Apply(op=op, operands=operands):
            kinds = [_elements(operand, each, in_sum or _sums(term)) for operand in operands]
            if in_sum and op in (_SLICE, _TRANSPOSE):
                return frozenset(f"{op.name} of {element}" for element in frozenset[str]().union(*kinds))
            if _moves(term) or _is_maximum_of_integers(term):
                return frozenset[str]().union(*kinds, ["padding"] if op == _PAD else [])
            return _computed(term, kinds, each)


def _computed(term: Apply, kinds: Sequence[frozenset[str]], each: bool) -> frozenset[str]:
    name = f"{term.op.name}{list(term.attributes) if term.op.has(Trait.ELEMENTWISE) else ''}"
    several = [place for place, own in enumerate(kinds) if len(own) > 1]
    if len(several) != 1 or not (each or _is_by_element(term)):
        return frozenset([_written(term, name, kinds)])
    (place,) = several
    own = sorted(kinds[place])
    return frozenset(_written(term, name, [*kinds[:place], frozenset([one]), *kinds[place + 1 :]]) for one in own)


def _is_by_element(term: Apply) -> bool:
    """Whether each element is computed of one of each operand."""
    if term.op in (_QUANTIZE, _DEQUANTIZE):
        return all(isinstance(one, Variable) and not one.shape and not one.leading for one in term.operands[1:])
    return term.op.has(Trait.ELEMENTWISE)


def _written(term: Apply, name: str, kinds: Sequence[frozenset[str]]) -> str:
    operands = [" or ".join(sorted(own)) for own in kinds]
    ordered = sorted(operands) if term.op.has(Trait.COMMUTATIVE) else operands
    return f"{name}({', '.join(ordered)})"
