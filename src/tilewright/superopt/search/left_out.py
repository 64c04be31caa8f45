"""The rules that ``math=`` leaves out, where they match: nothing is left out silently."""

from collections import Counter
from collections.abc import Sequence

from tilewright.graph import Graph
from tilewright.passes.rules import Floats, Index, Rule, floats_of, index_of, matches
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
    return len({match.nodes[-1].outputs[0].name for match in matches(rule, index)})


def with_other_bits(steps: Sequence[Applied]) -> tuple[LeftOut, ...]:
    """The rules of ``steps`` that made a graph of which the compiled code has other bits."""
    counted = Counter(step.rule.name for step in steps)
    return tuple(LeftOut(name, Floats.EXACT, times, Cause.BITS) for name, times in counted.items())
