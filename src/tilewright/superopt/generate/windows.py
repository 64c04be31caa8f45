"""Generalizes the windows of convolutions and pools: from the kernel and the padding of discovery to any.

Operators of one window form a *class*: convolutions of equal kernels and attributes, or pools of equal attributes. For
each class there is a list of conditions on attributes, from none to all those of discovery. ``general`` lists the rules
with these conditions, most general first; whoever tests and proves them keeps the first that holds, so that a rule has
the weakest of these conditions that are sufficient:

=============  =========================================================================================
``ANY``        any kernel, strides, padding, dilations and number of groups
``JOINED``     any window, one group
``UNPADDED``   no padding, any number of groups; ``UNPADDED_JOINED``: and one group
``POINTS``     a kernel of one tap, neither padding nor strides; ``POINTS_JOINED``: and one group
``DEPTHWISE``  any window, a filter for each channel
=============  =========================================================================================

Filters that are enlarged by zeros get any padding, by as much as they are enlarged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute, Trait
from tilewright.ops.operator import require
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import Normalizer, normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, Written, subterms
from tilewright.superopt.generate.rewriting import Attributes, rebuilt
from tilewright.symbolic.expr import Const, Expr, Symbol, Var, const

CONV, PAD, AVERAGE = require("Conv"), require("Pad"), require("AveragePool")
_RANK = 4
"""The rank of filters: two spatial dimensions."""
_NONE, _ONES = (0, 0, 0, 0), (1, 1)


class Condition(Enum):
    """What a rule demands of the windows of a class."""

    ANY = "any"
    JOINED = "joined"
    DEPTHWISE = "depthwise"
    UNPADDED = "unpadded"
    UNPADDED_JOINED = "unpadded, joined"
    WITHOUT_PADDING = "padding is not counted"
    POINTS = "points"
    POINTS_JOINED = "points, joined"


_OF_POOLS: Mapping[Condition, Written] = {
    Condition.ANY: (("ceil_mode", False),),
    Condition.UNPADDED: (("ceil_mode", False), ("pads", _NONE)),
}
_OF_CONVOLUTIONS: Mapping[Condition, Written] = {
    Condition.ANY: (),
    Condition.JOINED: (("group", 1),),
    Condition.UNPADDED: (("pads", _NONE),),
    Condition.UNPADDED_JOINED: (("group", 1), ("pads", _NONE)),
    Condition.POINTS: (("dilations", _ONES), ("pads", _NONE), ("strides", _ONES)),
    Condition.POINTS_JOINED: (("dilations", _ONES), ("group", 1), ("pads", _NONE), ("strides", _ONES)),
}
_COMPLETE = frozenset({"dilations", "group", "pads", "strides"})
_WITHOUT_JOINING = frozenset({Condition.ANY, Condition.UNPADDED, Condition.POINTS})
"""Those that permit several groups of convolutions."""
_OF_ONE_TAP = frozenset({Condition.POINTS, Condition.POINTS_JOINED})


@dataclass(frozen=True, slots=True)
class _Class:
    """Operators of one window. ``kernel``: the extents of filters; empty for pools."""

    name: str
    kernel: tuple[int, ...]
    terms: tuple[Apply, ...]
    filters: tuple[Variable, ...]

    @property
    def conditions(self) -> Sequence[Condition]:
        """Conditions to try, the weakest first."""
        if not self.kernel:
            return tuple(_OF_POOLS)
        listed = list(_OF_CONVOLUTIONS)
        if self._is_depthwise:
            return [Condition.ANY, Condition.DEPTHWISE, Condition.UNPADDED]
        return listed if set(self.kernel) == {1} else [one for one in listed if one not in _OF_ONE_TAP]

    @property
    def _is_depthwise(self) -> bool:
        return isinstance(self.terms[0].attribute("group"), Expr)


def has_windows(rule: Rule) -> bool:
    """Whether ``rule`` has convolutions or pools."""
    return any(map(_is_windowed, subterms((*rule.sources, *rule.targets))))


def data_windows(terms: Sequence[Term]) -> list[Apply]:
    """The convolutions and pools in ``terms``, each once, without those that compute filters."""
    found: dict[Apply, None] = {}

    def visit(term: Term) -> None:
        if isinstance(term, Apply):
            for operand in term.operands[:1] if term.op is CONV else term.operands:
                visit(operand)
            if _is_windowed(term):
                found[term] = None

    for term in terms:
        visit(term)
    return list(found)


def filters_in(term: Apply) -> list[Variable]:
    """The variables of which the filters of a convolution are made, if they have the rank of filters."""
    parts = subterms([term.operands[1]])
    return [part for part in parts if isinstance(part, Variable) and len(part.shape) == _RANK]


def general(rule: Rule) -> Iterator[Rule]:
    """``rule`` with fewer conditions on its windows, then ``rule`` itself, if it is of any number of places; those with
    fewest conditions first."""
    try:
        classes = _classes(rule)
    except BadProgram:
        classes = []
    if any(isinstance(part, Apply) and part.op is PAD for part in subterms((*rule.sources, *rule.targets))):
        yield from _enlarged(rule, classes)
    else:
        joined = _mixes_filters(rule)
        numbered = [
            list(enumerate(c for c in one.conditions if not (joined and one.kernel and c in _WITHOUT_JOINING)))
            for one in classes
        ]
        for chosen in sorted(product(*numbered), key=lambda chosen: sum(number for number, _ in chosen)):
            made = _under(rule, list(zip(classes, (condition for _, condition in chosen), strict=True)))
            if made is not None:
                yield made
    if not any(not one.kernel and _images_under(one) for one in classes):  # of that many places, nothing is proved
        yield rule


def _mixes_filters(rule: Rule) -> bool:
    """Whether filters are composed with others, which takes one group."""
    filters = [term.operands[1] for term in data_windows((*rule.sources, *rule.targets)) if term.op is CONV]
    return any(isinstance(part, Apply) and part.op is CONV for part in subterms(filters))


def _is_windowed(term: Term) -> bool:
    return isinstance(term, Apply) and (term.op is CONV or term.op.has(Trait.POOLS))


def _classes(rule: Rule) -> list[_Class]:
    """Raises ``BadProgram``."""
    _, forms = normal_rule(rule, point_where(rule.needs))
    members: dict[tuple[str, tuple[int, ...], str], list[Apply]] = {}
    for term in data_windows((*rule.sources, *rule.targets)):
        members.setdefault((term.op.name, _kernel(term, forms), repr(term.attributes)), []).append(term)
    names: dict[str, int] = {}
    found: list[_Class] = []
    for (operator, kernel, _), terms in members.items():
        prefix = "conv" if operator == CONV.name else "pool"
        names[prefix] = names.get(prefix, 0) + 1
        name = prefix if names[prefix] == 1 else f"{prefix}{names[prefix]}"
        found.append(_Class(name, kernel, tuple(terms), _filters(terms, kernel)))
    return found


def _kernel(term: Apply, forms: Normalizer) -> tuple[int, ...]:
    if term.op is not CONV:
        return ()
    extents = forms.shape(forms.normal(term.operands[1])).dims[2:]
    return tuple(int(extent.value) if isinstance(extent, Const) else 0 for extent in extents)


def _filters(terms: Sequence[Apply], kernel: tuple[int, ...]) -> tuple[Variable, ...]:
    """The variables of which filters of this ``kernel`` are made."""
    parts = (part for term in terms if term.op is CONV for part in filters_in(term))
    wanted = tuple(map(const, kernel))
    return tuple(dict.fromkeys(part for part in parts if part.shape[2:] == wanted))


def _under(rule: Rule, chosen: Sequence[tuple[_Class, Condition]]) -> Rule | None:
    """``rule`` under a condition for each class; None if its filters do not allow it."""
    variables: dict[str, Variable] = {}
    attributes: dict[Term, Attributes] = {}
    for one, condition in chosen:
        changed = _filters_under(one, condition)
        if changed is None or changed.keys() & variables.keys():
            return None
        variables |= changed
        for term in one.terms:
            attributes[term] = _attributes(one, condition, term)
    return rebuilt(rule, variables, attributes)


def _attributes(one: _Class, condition: Condition, term: Apply) -> Attributes:
    if condition is Condition.DEPTHWISE:
        return Attributes((("group", term.attribute("group")),), one.name)
    written = (_OF_CONVOLUTIONS if one.kernel else _OF_POOLS)[condition]
    return Attributes(written, None if {name for name, _ in written} >= _COMPLETE else one.name)


def _filters_under(one: _Class, condition: Condition) -> dict[str, Variable] | None:
    """The filters with symbols for their kernel, and for their channels if there may be several groups."""
    if not one.kernel:
        return _images_under(one)
    taps: tuple[Expr, ...] = tuple(Symbol(f"{one.name}-{at}") for at in "kl")
    if condition in _OF_ONE_TAP:
        taps = tuple(map(const, one.kernel))
    depths = {variable.shape[1] for variable in one.filters}
    depth: Expr | None = None
    if condition in _WITHOUT_JOINING:
        if len(depths) != 1 or not isinstance(next(iter(depths)), Var | Const):
            return None
        depth = Symbol(f"{one.name}-d")
    return {
        variable.name: replace(
            variable, shape=(_count(variable, depth), variable.shape[1] if depth is None else depth, *taps)
        )
        for variable in one.filters
    }


def _images_under(one: _Class) -> dict[str, Variable]:
    """The images below pools, with symbols for places whose number was fixed for discovery."""
    parts = subterms(one.terms)
    images = [part for part in parts if isinstance(part, Variable) and len(part.shape) == _RANK and not part.is_weight]
    places = tuple(Symbol(f"{one.name}-{at}") for at in "hw")
    fixed = (image for image in images if all(isinstance(extent, Const) for extent in image.shape[2:]))
    return {image.name: replace(image, shape=(*image.shape[:2], *places)) for image in fixed}


def _count(variable: Variable, depth: Expr | None) -> Expr:
    """The number of filters: any, if there is one for each channel so far, and there may be others."""
    is_depthwise = depth is not None and variable.shape[1] == const(1)
    return Symbol(f"{variable.name}-o") if is_depthwise else variable.shape[0]


# Filters enlarged by zeros


def _enlarged(rule: Rule, classes: Sequence[_Class]) -> Iterator[Rule]:
    """``rule`` whose filters are enlarged by any widths, with as much more padding, for any and for one group."""
    pads = [part for part in subterms((*rule.sources, *rule.targets)) if isinstance(part, Apply) and part.op is PAD]
    operand = pads[0].operands[0]
    if len(pads) > 1 or not isinstance(operand, Variable) or len(operand.shape) != _RANK:
        return
    widths, padding = (tuple(Symbol(f"{name}-{at}") for at in range(_RANK)) for name in ("width", "pad"))
    small = (Symbol("tap-0"), Symbol("tap-1"))
    large = (small[0] + widths[0] + widths[2], small[1] + widths[1] + widths[3])
    for is_joined in (False, True):
        variables = {operand.name: _resized(operand, small, is_joined=is_joined)}
        attributes: dict[Term, Attributes] = {
            pads[0]: Attributes((("before", (0, 0, *widths[:2])), ("after", (0, 0, *widths[2:]))))
        }
        for one in classes:
            is_small = any(operand in filters_in(term) and pads[0] not in subterms([term]) for term in one.terms)
            more = padding if is_small else tuple(a + b for a, b in zip(padding, widths, strict=True))
            for variable in one.filters:
                kernel = small if is_small else large
                variables.setdefault(variable.name, _resized(variable, kernel, is_joined=is_joined))
            written: tuple[tuple[str, Attribute], ...] = (("dilations", _ONES), ("pads", more))
            for term in one.terms:
                attributes[term] = Attributes((*written, ("group", 1)) if is_joined else written, "conv")
        made = rebuilt(rule, variables, attributes)
        yield replace(made, needs=(*rule.needs, *(width >= 0 for width in widths)))


def _resized(variable: Variable, kernel: Sequence[Expr], *, is_joined: bool) -> Variable:
    filters, depth = variable.shape[:2]
    return replace(variable, shape=(filters, depth if is_joined else Symbol("depth"), *kernel))
