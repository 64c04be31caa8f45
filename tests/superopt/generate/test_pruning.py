"""Rules that others say as well are dropped."""

from tilewright.passes.rules import parse_rules
from tilewright.superopt.generate.pruning import Step, prune

RULES = parse_rules("""
rule commuted
  for x[m, n], y[m, n]
  from Add(x, y)
  to Add(y, x)

rule commuted-of-others
  for p[m, n], q[m, n]
  from Add(p, q)
  to Add(q, p)

rule associated
  for x[m, n], y[m, n], z[m, n]
  from Add(Add(x, y), z)
  to Add(x, Add(y, z))

rule turned
  for x[m, n], y[m, n], z[m, n]
  from Add(Add(x, y), z)
  to Add(y, Add(z, x))

rule common-end
  for x[m, n], y[m, n]
  from Relu(Add(x, y))
  to Relu(Add(y, x))

rule common-start
  for x[m, n], y[m, n]
  from Add(Mul(x, y), x)
  to Add(x, Mul(x, y))

rule of-another-operator
  for x[m, n], y[m, n]
  from Mul(x, y)
  to Mul(y, x)
""")


def test_each_step_is_counted() -> None:
    pruned = prune(RULES)
    assert [rule.name for rule in pruned.rules] == ["commuted", "of-another-operator", "associated"]
    assert pruned.before == 7
    assert pruned.left == {Step.RENAMING: 6, Step.COMMON_SUBGRAPH: 4, Step.DERIVABILITY: 3}


def test_what_outputs_share_follows_from_no_rule_with_one_output() -> None:
    parts = """
rule first
  for x[m, k], v[k, n1], w[k, n2]
  from Slice(MatMul(x, Concat(v, w, axis=1)), axes=(1,), starts=(0,), ends=(n1,))
  to MatMul(x, v)

rule second
  for x[m, k], v[k, n1], w[k, n2]
  from Slice(MatMul(x, Concat(v, w, axis=1)), axes=(1,), starts=(n1,), ends=(n1 + n2,))
  to MatMul(x, w)
"""
    both = """
rule both
  for x[m, k], v[k, n1], w[k, n2]
  let t = MatMul(x, Concat(v, w, axis=1))
  from MatMul(x, v); MatMul(x, w)
  to Slice(t, axes=(1,), starts=(0,), ends=(n1,)); Slice(t, axes=(1,), starts=(n1,), ends=(n1 + n2,))
"""
    assert [rule.name for rule in prune(parse_rules(parts + both)).rules] == ["first", "second", "both"]
    swapped = both.replace("both", "swapped").replace("v", "u")
    assert [rule.name for rule in prune(parse_rules(both + swapped)).rules] == ["both"]
