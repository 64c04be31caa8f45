"""Rules are kept if a search needs them: alone, or as a step."""

import pytest

from tilewright.passes.rules import Rule, parse_rules, print_rule
from tilewright.superopt.generate.conditions import with_conditions
from tilewright.superopt.generate.gains import can_be_found, is_rare, paying
from tilewright.superopt.generate.necessity import Kept, uses
from tilewright.superopt.generate.selection import select, that_always_run
from tilewright.superopt.generate.steps import leading_to

PRODUCTS = """
rule mean
  for x[a, b, c], y: weight[c, d]
  from ReduceMean(MatMul(x, y), axes=(-2,), keepdims=True)
  to MatMul(ReduceMean(x, axes=(-2,), keepdims=True), y)

rule shift
  for x[a, b, c], y: weight[c]
  from ReduceMean(Add(x, y), axes=(-2,), keepdims=True)
  to Add(ReduceMean(x, axes=(-2,), keepdims=True), y)

rule both
  for x[a, b, c], y: weight[c, d], z: weight[d]
  from ReduceMean(Add(MatMul(x, y), z), axes=(-2,), keepdims=True)
  to Add(MatMul(ReduceMean(x, axes=(-2,), keepdims=True), y), z)
"""


def _rules(text: str = PRODUCTS) -> dict[str, Rule]:
    return {rule.name: rule for rule in parse_rules(text)}


def test_a_rule_that_pays_has_uses_and_a_step_has_none() -> None:
    (step,) = parse_rules("""
rule turned
  for x[a, b], y[b, c]
  from Transpose(MatMul(x, y), perm=(1, 0))
  to MatMul(Transpose(y, perm=(1, 0)), Transpose(x, perm=(1, 0)))
""")
    assert list(uses(_rules()["mean"]))
    assert not list(uses(step))


def test_what_two_others_do_together_is_not_needed() -> None:
    rules = _rules()
    kept = Kept(rules=[rules["mean"], rules["shift"]])
    kept.add_needed([rules["both"]])
    assert rules["both"] not in kept.rules
    alone = Kept(rules=[rules["mean"]])
    alone.add_needed([rules["both"]])
    assert rules["both"] in alone.rules


def test_a_step_is_kept_if_it_leads_to_a_rule_that_pays() -> None:
    rules = _rules()
    kept = Kept(rules=[rules["mean"]])
    kept.add_steps([rules["shift"]])
    assert kept.rules == [rules["mean"], rules["shift"]]
    nothing = Kept()
    nothing.add_steps([rules["shift"]])
    assert not nothing.rules


def test_a_step_below_which_another_rule_matches() -> None:
    rules = _rules()
    (made,) = leading_to(rules["mean"], rules["shift"])
    assert "from ReduceMean(Add(MatMul(x, y), y'), axes=(-2,), keepdims=True)" in print_rule(made)


@pytest.mark.parametrize(
    "text",
    [
        "for x[a, b, c, d], y[e, b, c, d]\n from Relu(Concat(x, y, axis=0))\n to Concat(Relu(x), Relu(y), axis=0)",
        "for x[a, b], y[b, b]\n from Add(MatMul(x, y), x)\n to MatMul(x, Add(y, EyeLike(y)))",
        "for x[a, b, 1], y[a, b, 1]\n from ReduceSum(Concat(x, y, axis=2), axes=(-1,))\n to Add(x, y)",
        "for x[a, b], y[b, c]\n from MatMul(Concat(x, x, axis=0), y)\n to Concat(MatMul(x, y), MatMul(x, y), axis=0)",
    ],
)
def test_what_networks_do_not_have_is_not_found(text: str) -> None:
    (rule,) = parse_rules(f"rule r\n {text}")
    assert not can_be_found(rule)


def test_parts_of_products_are_rare() -> None:
    (rule,) = parse_rules("""
rule r
  for x[a + b, c], y[c, d]
  from Slice(MatMul(x, y), axes=(0,), starts=(0,), ends=(a,))
  to MatMul(Slice(x, axes=(0,), starts=(0,), ends=(a,)), y)
""")
    assert is_rare(rule)
    assert list(paying(rule))


def test_a_rule_that_pays_in_both_directions_has_a_condition() -> None:
    text = """
rule right
  for x[*s, a, b], y[*t, b, c], z[*u, c, d]
  from MatMul(MatMul(x, y), z)
  to MatMul(x, MatMul(y, z))

rule left
  for x[*s, a, b], y[*t, b, c], z[*u, c, d]
  from MatMul(x, MatMul(y, z))
  to MatMul(MatMul(x, y), z)
"""
    right, left = with_conditions(parse_rules(text))
    (need,), (other,) = right.needs, left.needs
    assert str(need) == "b * c * d + a * b * d < a * b * c + a * c * d"
    assert str(other) == "a * b * c + a * c * d < b * c * d + a * b * d"
    assert with_conditions([right])[0].needs == right.needs


def test_selected_rules_have_proofs() -> None:
    """Of a linear layer and a mean: the product after the mean, any rank, and the step."""
    found = select([rule for rule in parse_rules(PRODUCTS) if rule.name != "both"], operations=5)
    assert {rule.name for rule in found.rules} == {"mean", "shift"}
    assert all(rule.proof is not None and rule.proof.axioms for rule in found.rules)
    assert next(rule for rule in found.rules if rule.name == "mean").variables[0].leading == "s"
    assert that_always_run()
