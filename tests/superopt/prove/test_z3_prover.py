"""Z3 proves what egglog proves, in its own way, and nothing that is false."""

import pytest

from tilewright.passes.rules import ALGEBRA, GENERATED, SEARCH, Rule, load_rules, parse_rules
from tilewright.superopt.prove.proofs import find_proof
from tilewright.superopt.prove.verification import Engine, verify_rule
from tilewright.superopt.prove.z3_prover import agrees

RULES = [*load_rules(ALGEBRA), *load_rules(SEARCH), *load_rules(GENERATED)]
NAMES = (
    "normalization-into-convolution-with-bias-2d",
    "normalization-into-phases-3d",
    "scale-into-convolution-full-1d",
    "shift-into-convolution-with-bias-short-2d",
    "scale-into-transposed-gemm-with-bias-matrix",
    "minus-zero",
    "shifted-products-of-one-matrix",
    "sum-of-convolutions-2d",
)


@pytest.mark.parametrize("name", NAMES)
def test_rules_are_proved_by_both(name: str) -> None:
    (rule,) = (rule for rule in RULES if rule.name == name)
    finding = verify_rule(rule, Engine.Z3, shapes=1)
    assert finding.holds
    assert [(opinion.engine, opinion.reason) for opinion in finding.opinions] == [(Engine.EGGLOG, ""), (Engine.Z3, "")]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_all_built_in_rules_are_proved_by_both(part: int) -> None:
    for rule in RULES[part::4]:
        assert rule.proof is not None
        assert agrees(rule, rule.proof.axioms), rule.name


@pytest.mark.parametrize("name", ["minus-zero", "shifted-products-of-one-matrix", "sum-of-convolutions-2d"])
def test_nothing_is_proved_without_its_axioms(name: str) -> None:
    (rule,) = (rule for rule in RULES if rule.name == name)
    assert rule.proof is not None
    names = find_proof(rule, [rule.proof.axioms])
    assert names
    for place in range(len(names)):
        assert not agrees(rule, [*names[:place], *names[place + 1 :]], limit=1_000_000), names[place]


FALSE = parse_rules("""
rule other-half
  for x[*s, n], y[*s, n]
  from Slice(Concat(x, y, axis=-1), axes=(-1,), starts=(0,), ends=(n,))
  to y

rule columns-swapped
  for x[*b, m, k], v[k, n1], w[k, n2]
  from Concat(MatMul(x, v), MatMul(x, w), axis=-1)
  to MatMul(x, Concat(w, v, axis=1))
  need n1 == n2

rule relu-is-linear
  for x[*s], y[*s]
  from Relu(Add(x, y))
  to Add(Relu(x), Relu(y))

rule unequal-groups
  for x[n, g * c, h, w], y[n, e * c, h, w], a[o, c, r, s], b[o, c, r, s]
  from Concat(Conv(x, a, group=g, **conv), Conv(y, b, group=e, **conv), axis=1)
  to Conv(Concat(x, y, axis=1), Concat(a, b, axis=0), group=g + e, **conv)
""")
USED = (
    "MatMul-of-columns",
    "Slice-of-Concat-until.-1",
    "Slice-of-Concat-from.-1",
    "Slice-of-whole.-1",
    "Conv-of-groups-2d",
    "Relu-definition",
    "Max-commutes",
    "Add-commutes",
)


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: rule.name)
def test_what_is_false_is_not_proved(rule: Rule) -> None:
    """Also with all axioms that speak of it."""
    assert not agrees(rule, USED, limit=1_000_000)


def test_what_is_not_known_in_the_steps_that_are_given_is_a_rejection() -> None:
    (rule,) = (rule for rule in RULES if rule.name == NAMES[0])
    assert rule.proof is not None
    assert agrees(rule, rule.proof.axioms)
    assert not agrees(rule, rule.proof.axioms, limit=100)


def test_a_rule_that_is_only_true_for_equal_extents_needs_them() -> None:
    text = """
rule grouped-convolutions
  for x[n, g * c, h, w], y[n, e * d, h, w], a[o, c, r, s], b[p, d, r, s]
  from Concat(Conv(x, a, group=g, **conv), Conv(y, b, group=e, **conv), axis=1)
  to Conv(Concat(x, y, axis=1), Concat(a, b, axis=0), group=g + e, **conv)
"""
    (without,), (needy,) = parse_rules(text), parse_rules(f"{text}  need e == g, p == o\n")
    assert agrees(needy, ["Conv-of-groups-2d"])
    assert verify_rule(without, Engine.Z3, shapes=1).reason
