"""Proofs in files of rules: those that are stored replay, and what is written is what is found."""

from dataclasses import replace

import pytest

from tilewright.passes.rules import ALGEBRA, SEARCH, Evidence, load_rules, parse_rules
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.proofs import replays
from tilewright.superopt.prove.stored_proofs import with_proofs

BUILT_IN = [*load_rules(ALGEBRA), *load_rules(SEARCH)]

RULES = """\
# A product that grows.
rule columns
  for x[*b, m, k], v[k, n1], w[k, n2]
  from Concat(MatMul(x, v), MatMul(x, w), axis=-1)
  to MatMul(x, Concat(v, w, axis=1))
  proof proved by Add-commutes, Mul-one; 1 shapes

rule channels
  ranks 1 to 2
  for x[n, c, h...], y[n, d, h...], a[o, c, k...], b[o, d, k...]
  from Add(Conv(x, a, group=1, **conv), Conv(y, b, group=1, **conv))
  to Conv(Concat(x, y, axis=1), Concat(a, b, axis=1), group=1, **conv)

# Two rules; the second is false.
each F, G in Mul: Mul | Mul: Add
rule F-G
  for x[*s], y[*s]
  from F(x, y)
  to G(y, x)

# Each of the two needs another axiom.
each F in Add | Mul
rule F-turned
  for x[*s], y[*s]
  from F(x, y)
  to F(y, x)
"""


@pytest.mark.parametrize("part", range(4))
def test_the_proofs_of_built_in_rules_replay(part: int) -> None:
    for rule in BUILT_IN[part::4]:
        assert rule.proof is not None, rule.name
        assert rule.proof.evidence is Evidence.PROVED, rule.name
        assert replays(rule, rule.proof.axioms), f"{rule.name}: run `tilewright rules verify --write` on its file"


def test_what_is_written_is_found_and_everything_else_stays() -> None:
    written = with_proofs(RULES, shapes=2)
    assert with_proofs(written, shapes=2) == written
    proofs = [line for line in written.splitlines() if line.startswith("  proof ")]
    assert proofs == [
        "  proof proved by MatMul-of-columns; 2 shapes",
        "  proof proved by Conv-of-channels-*d; 2 shapes",
        "  proof proved by Add-commutes, Mul-commutes; 2 shapes",
    ]
    others = [line for line in RULES.splitlines() if not line.startswith("  proof ")]
    assert [line for line in written.splitlines() if line not in proofs] == others
    assert all(replays(rule, rule.proof.axioms) for rule in parse_rules(written) if rule.proof is not None)


def test_axioms_of_a_rank_are_named_by_it() -> None:
    _, first, second, *_ = parse_rules(with_proofs(RULES, shapes=1))
    assert [rule.proof and rule.proof.axioms for rule in (first, second)] == [
        ("Conv-of-channels-1d",),
        ("Conv-of-channels-2d",),
    ]


def test_a_proof_is_of_its_rule() -> None:
    """No built-in rule follows from nothing, or from the axioms of another rule by chance."""
    (sum_of,) = (rule for rule in BUILT_IN if rule.name == "sum-of-products")
    assert not replays(sum_of, [])
    assert not replays(sum_of, ["MatMul-of-columns", "Add-commutes"])
    assert sum_of.proof is not None
    assert replays(replace(sum_of, sources=sum_of.targets, targets=sum_of.sources), sum_of.proof.axioms)


def test_names_of_axioms_are_those_of_the_file() -> None:
    used = {name for rule in BUILT_IN if rule.proof is not None for name in rule.proof.axioms}
    assert used <= axioms().keys()
