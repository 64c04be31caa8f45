"""What another generator finds is proved: one that enumerates graphs, as TASO's does, and shares no code with ours."""

from collections.abc import Sequence

import pytest

from tests.superopt.prove.graph_rules import symbolic
from tests.superopt.prove.graphs import Rule as GraphRule
from tests.superopt.prove.graphs import Search, Tree, holds
from tilewright.passes.rules import Rule
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.proofs import all_axioms

X, Y, W, S = (("input", name) for name in ("x1", "x2", "w1", "s1"))
IMAGE, KERNEL, DEPTHWISE = (("input", name) for name in ("i1", "u1", "d1"))
ONES: Tree = ("one",)

FALSE = (
    (("relu", ("add", X, Y)), ("add", ("relu", X), ("relu", Y))),
    (("matmul", X, W), ("matmul", X, ("transpose", W))),
    (("add", IMAGE, ("add", IMAGE, IMAGE)), ("mul", IMAGE, ("relu", ONES))),
    (("mul", DEPTHWISE, ("scale", ("cpool",), S)), ("scale", DEPTHWISE, S)),
    (("conv", ("concat1", IMAGE, IMAGE), ("iconv",)), IMAGE),
)
TRUE = (
    (("matmul", ("scale", X, S), W), ("scale", ("matmul", X, W), S)),
    (("avgpool", IMAGE), ("conv", IMAGE, ("cpool",))),
    (("conv", IMAGE, ("iconv",)), IMAGE),
    (("relu", ("conv", IMAGE, KERNEL)), ("convrelu", IMAGE, KERNEL)),
)
MERGED: Tree = ("matmul", X, ("concat1", W, ("input", "w2")))
MERGE = GraphRule((("matmul", X, W), ("matmul", X, ("input", "w2"))), (("split1.0", MERGED), ("split1.1", MERGED)))


def _share(rules: Sequence[GraphRule]) -> float:
    """How many of the rules follow from the axioms."""
    proved = sum(_is_proved(symbolic(rule, f"rule-{number}")) for number, rule in enumerate(rules))
    return proved / len(rules)


def _is_proved(rule: Rule | None) -> bool:
    return rule is not None and all(map(all_axioms().proves, at_ranks(rule)))


@pytest.mark.parametrize("sides", FALSE)
def test_what_is_false_does_not_hold_and_is_not_proved(sides: tuple[Tree, Tree]) -> None:
    rule = GraphRule((sides[0],), (sides[1],))
    assert not holds(rule)
    assert not _is_proved(symbolic(rule, "false"))


@pytest.mark.parametrize("sides", TRUE)
def test_what_is_true_holds_and_is_proved(sides: tuple[Tree, Tree]) -> None:
    rule = GraphRule((sides[0],), (sides[1],))
    assert holds(rule)
    assert _is_proved(symbolic(rule, "true"))


def test_a_rule_of_two_outputs_holds_and_is_proved() -> None:
    assert holds(MERGE)
    assert _is_proved(symbolic(MERGE, "merge"))
    swapped = GraphRule(MERGE.sources, MERGE.targets[::-1])
    assert not holds(swapped)
    assert not _is_proved(symbolic(swapped, "swapped"))


@pytest.mark.parametrize("every", [18, pytest.param(1, marks=pytest.mark.slow)])
def test_rules_of_two_operators_are_derivable(every: int) -> None:
    true = [rule for rule in Search(2).run() if holds(rule)]
    assert len(true) > 60
    assert _share(true[::every]) >= 0.95


@pytest.mark.slow
def test_rules_of_three_operators_are_derivable() -> None:
    """All that hold over the field at five shapes. What is left: flips of constants, and what is true at borders."""
    rules = Search(3).run()
    true = [rule for rule in rules if holds(rule)]
    assert len(true) > 1000
    assert sum(len(rule.sources) > 1 for rule in true) > 100
    share = _share(true)
    print(f"{len(true)} of {len(rules)} rules hold; {share:.1%} of these are derivable")
    assert share >= 0.95
