"""What became of each rule that somebody gave to a search: where it matched, what it would save, why it was left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.passes.rules import Rule
from tilewright.superopt.costs.provider import WORTH, CostProvider, cost_by_nodes
from tilewright.superopt.search.backtracking import Backtracking
from tilewright.superopt.search.result import Optimized


class Fate(Enum):
    """What became of a rule."""

    APPLIED = "applied"
    NOT_PROVED = "not proved"
    NOT_MATCHED = "not matched"
    NOT_FASTER = "not faster"


@dataclass(frozen=True, slots=True)
class Account:
    """What became of one rule.

    ``matches``: in how many places of the graph that was searched. ``gain``: what the best of these applications alone
    saves of the time of that graph's nodes, by the model of the search; below 0 if it costs more, None without a match.
    ``times``: how often the rule was applied on the way to the graph that was chosen. ``reason``: why it was not.
    """

    rule: str
    fate: Fate
    matches: int
    gain: float | None
    times: int
    reason: str


def accounts(rules: Sequence[Rule], doubts: Mapping[str, str], found: Optimized, costs: CostProvider) -> list[Account]:
    """One of each of ``rules``. ``doubts``: why some were not searched by, by their names."""
    whole = cost_by_nodes(found.before, costs)
    by = Backtracking(rules, costs)
    return [_account(rule, doubts.get(rule.name, ""), found, by.gains(found.before, rule), whole) for rule in rules]


def _account(rule: Rule, doubt: str, found: Optimized, gains: Sequence[float], whole: float) -> Account:
    times = sum(step.rule == rule for step in found.steps)
    gain = max(gains) / whole if gains and whole else None
    if times:
        return Account(rule.name, Fate.APPLIED, len(gains), gain, times, "")
    if doubt:
        return Account(rule.name, Fate.NOT_PROVED, len(gains), gain, 0, doubt)
    if gain is None:
        return Account(rule.name, Fate.NOT_MATCHED, 0, None, 0, "the graph that was searched has no place for it")
    pays = "no graph with it was found that is faster as a whole"
    reason = pays if gain > WORTH else "its nodes take no less time than those that it replaces"
    return Account(rule.name, Fate.NOT_FASTER, len(gains), gain, 0, reason)
