"""Rules pay in one direction, in both or in none; what must be a weight for that is one."""

import pytest

from tilewright.passes.rules import Evidence, Rule, parse_rules
from tilewright.superopt.generate.gains import paying
from tilewright.superopt.generate.pruning import prune
from tilewright.superopt.generate.selection import arithmetic, proved, that_always_run

LINEAR = """
rule linear
  for x[m, k], v[k, n], w[k, n]
  from MatMul(x, Add(v, w))
  to Add(MatMul(x, v), MatMul(x, w))
"""
FACTOR = """
rule factor
  for x[*s], y[*s], z[*s]
  from Mul(x, Add(y, z))
  to Add(Mul(x, y), Mul(x, z))
"""
ASSOCIATE = """
rule associate
  for x[m, k], v[k, l], w[l, n]
  from MatMul(MatMul(x, v), w)
  to MatMul(x, MatMul(v, w))
"""
COMMUTE = """
rule commute
  for x[*s], y[*s], z[*s]
  from Mul(x, Mul(y, z))
  to Mul(Mul(x, y), z)
"""
IDENTITY = """
rule identity
  for x[m, k]
  from MatMul(x, EyeLike(Expand(0.0, shape=(k, k))))
  to x
"""


def _paying(text: str) -> list[Rule]:
    return [directed for rule in parse_rules(text) for directed in paying(rule)]


def test_what_is_distributed_is_put_together() -> None:
    (rule,) = parse_rules(LINEAR)
    (directed,) = _paying(LINEAR)
    assert (directed.sources, directed.targets) == (rule.targets, rule.sources)
    assert not any(variable.is_weight for variable in directed.variables)


def test_products_pay_in_either_order_at_some_sizes() -> None:
    (rule,) = parse_rules(ASSOCIATE)
    first, second = _paying(ASSOCIATE)
    assert (first.sources, second.sources) == (rule.sources, rule.targets)
    assert not any(variable.is_weight for variable in (*first.variables, *second.variables))


def test_filters_and_vectors_are_weights() -> None:
    """Nobody computes them of data, so what is made of them costs nothing."""
    (directed,) = _paying("""
rule sum
  for x[a, b, c, d], y[e, b, 3, 3], z[e, b, 3, 3]
  from Add(Conv(x, y), Conv(x, z))
  to Conv(x, Add(y, z))
""")
    assert [variable.name for variable in directed.variables if variable.is_weight] == ["y", "z"]


@pytest.mark.parametrize("text", [COMMUTE, FACTOR, IDENTITY])
def test_what_pays_nowhere(text: str) -> None:
    assert not _paying(text)


def test_rules_are_selected_with_their_proofs() -> None:
    (rule,) = proved(parse_rules(LINEAR))
    assert rule.proof is not None
    assert rule.proof.evidence is Evidence.PROVED
    assert "MatMul-of-sum-right" in rule.proof.axioms
    false = parse_rules("rule r\n  for x[*s], y[*s]\n  from Relu(Add(x, y))\n  to Add(Relu(x), Relu(y))")
    assert not proved(false)


def test_what_always_runs_is_not_kept() -> None:
    text = """
rule scaled
  for x[n, c, h, w], f[o, c, 1, 1], s[o, 1, 1]
  from Mul(Conv(x, f), s)
  to Conv(x, Mul(f, Reshape(s, shape=(o, 1, 1, 1))))
"""
    rules = parse_rules(text)
    assert prune(rules, arithmetic()).rules
    assert not prune(rules, that_always_run()).rules
