"""The result for each rule that a user gave to a search: matches, estimated gain, and why it was not applied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.base.numerics import Math
from tilewright.passes.rules import Rule, floats_of, is_permitted
from tilewright.superopt.costs.provider import WORTH, CostProvider, cost_by_nodes
from tilewright.superopt.search.backtracking import Backtracking
from tilewright.superopt.search.layers import forms_of
from tilewright.superopt.search.result import Optimized


class Fate(Enum):
    """The result for a rule."""

    APPLIED = "applied"
    NOT_PROVED = "not proved"
    NOT_PERMITTED = "not permitted"
    NOT_MATCHED = "not matched"
    NOT_FASTER = "not faster"


@dataclass(frozen=True, slots=True)
class Account:
    """The result for one rule.

    ``matches``: the number of matches in the given graph. ``gain``: the fraction of the cost of that graph's nodes that
    the best single application saves, by the search's model; negative if the cost grows, None without a match.
    ``times``: the number of applications that led to the chosen graph. ``reason``: why there are none.
    """

    rule: str
    fate: Fate
    matches: int
    gain: float | None
    times: int
    reason: str


def accounts(
    rules: Sequence[Rule], doubts: Mapping[str, str], found: Optimized, costs: CostProvider, math: Math = Math.DEFAULT
) -> list[Account]:
    """An account of each of ``rules``. ``doubts``: reasons why some were not used in the search, by name; ``math``: the
    policy of the search."""
    forms, by = forms_of(found.before, rules), Backtracking(rules, costs)
    whole = cost_by_nodes(forms[0], costs)

    def gains(rule: Rule) -> list[float]:
        """In the form of the graph in which it matches."""
        return max((by.gains(form, rule) for form in forms), key=len)

    return [_account(rule, doubts.get(rule.name, ""), found, gains(rule), whole, math) for rule in rules]


def _account(rule: Rule, doubt: str, found: Optimized, gains: Sequence[float], whole: float, math: Math) -> Account:
    times = sum(step.rule == rule for step in found.steps)
    gain = max(gains) / whole if gains and whole else None
    if times:
        return Account(rule.name, Fate.APPLIED, len(gains), gain, times, "")
    if doubt:
        return Account(rule.name, Fate.NOT_PROVED, len(gains), gain, 0, doubt)
    if not is_permitted(rule, math):
        why = f"math={math.value} does not permit what it does to floats: {floats_of(rule).value}"
        return Account(rule.name, Fate.NOT_PERMITTED, len(gains), gain, 0, why)
    if gain is None:
        return Account(rule.name, Fate.NOT_MATCHED, 0, None, 0, "the graph that was searched has no place for it")
    pays = "no graph with it was found that is faster as a whole"
    reason = pays if gain > WORTH else "its nodes take no less time than those that it replaces"
    return Account(rule.name, Fate.NOT_FASTER, len(gains), gain, 0, reason)
