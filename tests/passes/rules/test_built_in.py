"""Every rule that comes with the compiler: it fires where its sources are, and changes no number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.closeness import assert_near
from tests.passes.rules.instances import feeds_of, instance
from tests.profiles import examples
from tilewright.graph import evaluate_graph, verify
from tilewright.passes.rules import ALGEBRA, SEARCH, Rule, applied, index_of, load_rules, matches, rewrite

RULES = [*load_rules(ALGEBRA), *load_rules(SEARCH)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@examples(2, by_night=20)
@given(seed=st.integers(0, 1 << 16))
def test_it_fires_and_holds(rule: Rule, seed: int) -> None:
    """As the search applies it, and as the pass does, which leaves nothing that follows from weights only."""
    graph = instance(rule, seed)
    match = next(matches(rule, index_of(graph)))
    always = rewrite(graph, [rule]) if rule in load_rules(ALGEBRA) else graph
    assert not any(all(value in always.constants for value in node.inputs) for node in always.nodes)
    feeds = feeds_of(graph, seed)
    before = evaluate_graph(graph, feeds)
    for after in (applied(graph, match), always):
        verify(after)
        assert after.outputs == graph.outputs
        for old, new in zip(before, evaluate_graph(after, feeds), strict=True):
            assert_near(new, old, 1e-5)


def test_files_are_read_as_they_are() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    with pytest.raises(FileNotFoundError):
        load_rules("none.rules")
