"""Versions of a rule for ranks of its leading dimensions, and for values of flags on which shapes depend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from tilewright.base.errors import BadProgram
from tilewright.passes.rules.binding import spliced
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Variable, Written, subterms
from tilewright.symbolic.expr import Symbol, Var

_MOST = 2
_FLAGS = ("keepdims", "transpose_a", "transpose_b")
"""Boolean attributes on which shapes depend."""


def at_ranks(rule: Rule) -> Sequence[Rule]:
    """``rule`` for each value of its unwritten flags; itself, if there are none.

    If its shapes can't be computed for an arbitrary number of leading dimensions, the versions with 0, 1 and 2 extents
    for each: a proof of all of them counts for all ranks. A version that is ill-typed, or whose sides have different
    shapes, can't be proved. Raises ``BadProgram`` if shapes are unknown and there are no leading dimensions.
    """
    return [version for flagged in _with_flags(rule) for version in _with_ranks(flagged)]


def _with_ranks(rule: Rule) -> Sequence[Rule]:
    try:
        normal_rule(rule, point_where(rule.needs))
    except BadProgram:
        found = _versions(rule)
        if not found:
            raise
        return found
    return [rule]


def _with_flags(rule: Rule) -> Sequence[Rule]:
    applied = [part for part in subterms([*rule.sources, *rule.targets]) if isinstance(part, Apply)]
    flags = sorted({(str(part.rest), name) for part in applied for name in _open_flags(part)})
    choices = product((False, True), repeat=len(flags))
    return [_Writing(flags=dict(zip(flags, choice, strict=True))).rule(rule) for choice in choices] if flags else [rule]


def _open_flags(term: Apply) -> Sequence[str]:
    """The flags that ``**rest`` stands for."""
    if term.rest is None:
        return []
    written = dict(term.attributes)
    return [name for name in _FLAGS if name not in written and name in term.op.parameters]


def _versions(rule: Rule) -> Sequence[Rule]:
    names = sorted({v.leading for v in rule.variables if v.leading})
    counts = product(range(_MOST + 1), repeat=len(names))
    extents = [{name: _extents(name, many) for name, many in zip(names, count, strict=True)} for count in counts]
    return [_Writing(leading).rule(rule) for leading in extents] if names else []


def _extents(name: str, count: int) -> tuple[Var, ...]:
    return tuple(Symbol(f"{name}'{place}") for place in range(count))


@dataclass(frozen=True, slots=True)
class _Writing:
    """Replacements of leading dimensions, and values of flags (by the name of the rest)."""

    leading: Mapping[str, tuple[Var, ...]] = field(default_factory=dict[str, tuple[Var, ...]])
    flags: Mapping[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])

    def rule(self, rule: Rule) -> Rule:
        return rule.with_variables(self._variable, self._attributes)

    def _variable(self, v: Variable) -> Variable:
        if v.leading is None or v.leading not in self.leading:
            return v
        return replace(v, shape=(*self.leading[v.leading], *v.shape), leading=None)

    def _attributes(self, term: Apply) -> Written:
        written = [(name, spliced(value, self.leading)) for name, value in term.attributes]
        of = str(term.rest)
        return (*written, *((name, self.flags[of, name]) for name in _open_flags(term) if (of, name) in self.flags))
