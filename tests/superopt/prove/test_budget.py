"""Proofs end: with one, when nothing is added any more, or within a budget."""

from tilewright.passes.rules import Rule, parse_rules
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.egglog_prover import Attempt, Effort, Prover

SUMS = """
rule turned
  for x[*s], y[*s], z[*s]
  from Add(Add(x, y), z)
  to Add(z, Add(y, x))

rule false-of-many
  for a[*s], b[*s], c[*s], d[*s], e[*s], f[*s], g[*s]
  from Add(Add(Add(a, b), Add(c, d)), Add(Add(e, f), g))
  to Add(Add(Add(a, b), Add(c, d)), Add(Add(e, f), f))

rule false-of-few
  for x[*s], y[*s]
  from Add(x, y)
  to Add(x, x)
"""
GROWING = """
rule Tanh-grows
  for x[*s]
  from Tanh(x)
  to Tanh(Mul(x, x))

rule unprovable
  for x[*s], y[*s]
  from Tanh(x)
  to Tanh(y)
"""


def _rules(text: str) -> dict[str, Rule]:
    return {rule.name: rule for rule in parse_rules(text)}


def test_attempts_end_in_three_ways() -> None:
    rules = _rules(SUMS)
    prover = Prover([axioms()["Add-commutes"], axioms()["Add-associates"]])
    assert prover.attempt(rules["turned"]).attempt is Attempt.PROVED
    assert prover.attempt(rules["turned"]).used == {"Add-commutes", "Add-associates"}
    assert prover.attempt(rules["false-of-few"]).attempt is Attempt.SATURATED
    assert prover.attempt(rules["false-of-many"], Effort(rounds=9, terms=1_000)).attempt is Attempt.EXHAUSTED


def test_many_terms_are_counted_after_each_axiom() -> None:
    """A proof is found beyond the number of terms from which on axioms are applied one by one."""
    (rule,) = parse_rules("""
rule turned-around
  for a[*s], b[*s], c[*s], d[*s], e[*s], f[*s], g[*s]
  from Add(Add(Add(a, b), Add(c, d)), Add(Add(e, f), g))
  to Add(g, Add(f, Add(e, Add(d, Add(c, Add(b, a))))))
""")
    prover = Prover([axioms()["Add-commutes"], axioms()["Add-associates"]])
    assert prover.attempt(rule, Effort(rounds=9, terms=50_000)).attempt is Attempt.PROVED


def test_an_axiom_that_applies_to_its_own_result_ends() -> None:
    rules = _rules(GROWING)
    prover = Prover([rules["Tanh-grows"], axioms()["Add-commutes"]])
    assert prover.attempt(rules["unprovable"], Effort(rounds=12, terms=500)).attempt is Attempt.EXHAUSTED
