"""The rules that ``math=`` leaves out, where they match: nothing is left out silently."""

from collections import Counter
from collections.abc import Sequence

from tilewright.graph import Graph
from tilewright.passes.rules import Floats, Index, Match, Rule, floats_of, index_of, matches
from tilewright.passes.rules.kinds import holds_for_integers
from tilewright.superopt.search.layers import forms_of
from tilewright.superopt.search.result import Applied, Cause, LeftOut


def left_out(rules: Sequence[Rule], graph: Graph) -> tuple[LeftOut, ...]:
    """Those of ``rules``, which ``math=`` does not permit, that match in ``graph``, and in how many places."""
    if not rules:
        return ()
    indices = [index_of(form) for form in forms_of(graph, rules)]
    found = ((rule, max(_places(rule, index) for index in indices)) for rule in rules)
    return tuple(LeftOut(rule.name, floats_of(rule), count, Cause.FLOATS) for rule, count in found if count)


def _places(rule: Rule, index: Index) -> int:
    """In how many places ``rule`` matches, without those of integers, where it is permitted if it holds for these."""
    found = (match for match in matches(rule, index) if not (_is_of_integers(match) and holds_for_integers(rule)))
    return len({match.nodes[-1].outputs[0].name for match in found})


def _is_of_integers(match: Match) -> bool:
    return all(value.dtype.is_int for value in match.replaced)


def with_other_bits(steps: Sequence[Applied]) -> tuple[LeftOut, ...]:
    """The rules of ``steps`` that made a graph of which the compiled code has other bits."""
    counted = Counter(step.rule.name for step in steps)
    return tuple(LeftOut(name, Floats.EXACT, times, Cause.BITS) for name, times in counted.items())
