"""Proofs from axioms: what is proved, what is not, and that what is proved is true."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tilewright.base.errors import BadProgram, InternalError
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.rules import (
    ALGEBRA,
    SEARCH,
    Apply,
    Evidence,
    Proof,
    Rule,
    Term,
    Variable,
    load_rules,
    parse_rules,
)
from tilewright.passes.rules.generic_points import Point, quotient
from tilewright.passes.rules.terms import subterms
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.egglog_prover import Prover
from tilewright.superopt.prove.proofs import all_axioms, find_proof, is_redundant, replays
from tilewright.superopt.prove.verification import Engine, Verdict, verify_rule
from tilewright.superopt.prove.z3_prover import agrees
from tilewright.symbolic.expr import Expr, Symbol, const

IDENTITIES = parse_rules(Path(__file__).with_name("identities.rules").read_text())


NAMED = {
    "products associate": ["product-associates"],
    "left and right distribution": ["left-distribution", "right-distribution"],
    "joined rows and columns of products": ["matmul-shared-left", "matmul-shared-right", "qkv"],
    "a sum of products is one of joined matrices": ["sum-of-matmuls"],
    "convolutions are linear in input and weight": ["conv-linear", "conv-linear-in-input", "conv-two-sums"],
    "a convolution of joined channels is a sum": ["conv-of-joined-channels"],
    "joined batches": ["conv-of-joined-batches"],
    "joined filters, and their parts": ["conv-shared-input"],
    "1x3 and 1x1 kernels enlarged": ["enlarge", "enlarge-a-row"],
    "enlarge, and merge two convolutions": ["enlarge-and-merge"],
    "average pooling is a depthwise convolution": ["average-pool"],
    "the convolution by identity": ["identity-conv"],
    "relu of a convolution": ["relu-of-identity-conv"],
    "relu of what is joined": ["relu-of-concat"],
    "transposition of a product": ["transpose-of-product"],
    "scalars through products and convolutions": ["scalar-through-matmul", "scalar-through-conv"],
    "blocks of blocks": ["concat-geometry"],
    "normalization into a convolution": ["batch-norm-fold"],
}
"""The identities that every set of axioms must prove (Jia et al., TASO, SOSP 2019), and the rules that say them."""


@pytest.mark.share(2)
@pytest.mark.parametrize("name", NAMED)
def test_named_identities_are_proved(name: str) -> None:
    assert len(NAMED) == 18
    for rule in (rule for rule in IDENTITIES if rule.name in NAMED[name]):
        names = find_proof(rule)
        assert names
        assert replays(rule, names)
    assert {rule.name for rule in IDENTITIES} >= set(NAMED[name])


@pytest.mark.share(2)
@pytest.mark.parametrize("rule", IDENTITIES, ids=lambda rule: rule.name)
def test_identities_are_proved(rule: Rule) -> None:
    assert verify_rule(rule).holds


@pytest.mark.parametrize(
    "name",
    ["matmul-shared-left", "relu-twice", pytest.param("enlarge-and-merge", marks=pytest.mark.slow), "conv-linear"],
)
def test_a_proof_replays_and_none_of_its_axioms_can_be_left_out(name: str) -> None:
    (rule,) = (rule for rule in IDENTITIES if rule.name == name)
    names = find_proof(rule)
    assert names
    assert replays(rule, names)
    for left_out in names:
        assert not replays(rule, [other for other in names if other != left_out])


def test_a_stored_proof_is_what_is_replayed() -> None:
    (rule,) = parse_rules("""
rule sum
  for x[m, k], y[k, n], z[k, n]
  from Add(MatMul(x, y), MatMul(x, z))
  to MatMul(x, Add(y, z))
  proof proved by MatMul-of-sum-right; 8 shapes
""")
    assert verify_rule(rule).holds
    wrong = Rule(rule.name, rule.variables, rule.sources, rule.targets, (), Proof(Evidence.PROVED, ("Add-commutes",)))
    assert "do not prove" in verify_rule(wrong).reason
    unknown = Rule(rule.name, rule.variables, rule.sources, rule.targets, (), Proof(Evidence.PROVED, ("Nobody",)))
    assert verify_rule(unknown).reason == "there is no axiom Nobody"


FALSE = parse_rules("""
# A fault of stand-ins: relu(1) was 3.
rule relu-of-one
  for x[a, b, c, d], one[a, b, c, d]
  from Add(x, Add(x, x))
  to Mul(x, Relu(Expand(1.0, shape=(a, b, c, d))))

# True only if averages are sums.
rule ones-of-a-pool
  for w[c, 1, 3, 3], s[]
  from Mul(w, Mul(Expand(0.25, shape=(c, 1, 3, 3)), s))
  to Mul(w, s)

rule grouped-convolutions
  for x[n, g * c, h, w], y[n, e * d, h, w], a[o, c, r, s], b[p, d, r, s]
  from Concat(Conv(x, a, group=g, **conv), Conv(y, b, group=e, **conv), axis=1)
  to Conv(Concat(x, y, axis=1), Concat(a, b, axis=0), group=g + e, **conv)

rule grouped-convolutions-and-relu
  for x[n, g * c, h, w], y[n, e * d, h, w], a[o, c, r, s], b[p, d, r, s]
  from Concat(Relu(Conv(x, a, group=g, **conv)), Relu(Conv(y, b, group=e, **conv)), axis=1)
  to Relu(Conv(Concat(x, y, axis=1), Concat(a, b, axis=0), group=g + e, **conv))

rule equal-groups-of-other-sizes
  for x[n, g * c, h, w], y[n, g * c, h, w], a[o, c, r, s], b[p, c, r, s]
  from Concat(Conv(x, a, group=g, **conv), Conv(y, b, group=g, **conv), axis=1)
  to Conv(Concat(x, y, axis=1), Concat(a, b, axis=0), group=2 * g, **conv)

rule slice-of-the-wrong-half
  for x[*s, n1], y[*s, n2]
  from Slice(Concat(x, y, axis=-1), axes=(-1,), starts=(0,), ends=(n2,))
  to x
""")


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: rule.name)
def test_false_rules_are_rejected_by_evaluation_and_are_not_proved(rule: Rule) -> None:
    assert not verify_rule(rule, Engine.FIELD, shapes=40).holds
    assert not verify_rule(Rule(rule.name, rule.variables, rule.sources, rule.targets), shapes=1).holds


def test_what_is_true_at_all_small_sizes_is_not_proved_for_that() -> None:
    """Differs from five filters on only: groups of 1 and 2, which 3 divides."""
    (rule,) = parse_rules("""
rule equal-sizes-of-other-groups
  for x[n, g * c, h, w], y[n, e * c, h, w], a[o, c, r, s], b[o, c, r, s]
  from Concat(Conv(x, a, group=g, **conv), Conv(y, b, group=e, **conv), axis=1)
  to Conv(Concat(x, y, axis=1), Concat(a, b, axis=0), group=g + e, **conv)
""")
    assert try_rule(rule, shapes=20).holds
    assert verify_rule(rule, shapes=2).reason == "the axioms do not prove it"


@pytest.mark.parametrize("name", ["grouped-convolutions", "grouped-convolutions-and-relu"])
def test_grouped_convolutions_with_their_precondition(name: str) -> None:
    """Rejected as such; as many groups with equally many filters each are accepted. Of kernels of any size: these are
    the four rules in TASO's file that nobody could prove."""
    (rule,) = (rule for rule in FALSE if rule.name == name)
    assert verify_rule(rule).reason
    (needed,) = parse_rules("rule r\n  for x[e, g, p, o]\n  from x\n  to x\n  need e == g, p == o")
    assert verify_rule(replace(rule, needs=needed.needs), shapes=6).holds


@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_the_axioms_do_not_contradict_each_other(step: int) -> None:
    """No two different values become equal in graphs as rich as the identities."""
    p, q = Variable("p'", (), "z"), Variable("q'", (), "z")
    add, mul = Apply(require("Add"), (p, q)), Apply(require("Mul"), (p, q))
    for rule in IDENTITIES[::step]:
        richer = Rule(rule.name, (*rule.variables, p, q), (*rule.sources, add), (*rule.targets, mul), rule.needs)
        assert all_axioms().proves(rule)
        assert not all_axioms().proves(richer)


@pytest.mark.parametrize(
    ("claim", "source", "target", "contradiction"),
    [
        ("for x[*s], y[*s]\n  from Max(x, y)\n  to x", "Max(x, y)", "Relu(x)", "two variables are equal"),
        ("for x[]\n  from Max(x, x)\n  to 1.0", "Max(Max(2.0, 2.0), x)", "Relu(x)", "two numbers are equal"),
        ("for x[*s]\n  from Max(x, x)\n  to Min(x, 1.0)", "Max(x, x)", "Relu(x)", ""),
    ],
)
def test_a_contradiction_is_no_proof(claim: str, source: str, target: str, contradiction: str) -> None:
    """What is false may make all things equal, which is noticed."""
    (wrong,) = parse_rules(f"rule wrong\n  {claim}")
    (goal,) = parse_rules(f"rule r\n  for x[a, b], y[a, b]\n  from {source}\n  to {target}")
    prover = Prover([axioms()["Max-commutes"], axioms()["Max-of-same"], wrong])
    if contradiction:
        with pytest.raises(InternalError, match=contradiction):
            prover.proves(goal)
    else:
        assert not prover.proves(goal)


def test_lemmas_and_axioms() -> None:
    names = ["Relu-of-concat.-1", "MatMul-associates", "Conv-of-channels-2d", "Mul-distributes"]
    assert [name for name in names if is_redundant(axioms()[name])] == ["Relu-of-concat.-1"]


@pytest.mark.slow
def test_what_is_redundant_is_proved_by_the_others() -> None:
    found = [name for name, axiom in axioms().items() if is_redundant(axiom)]
    assert {"Sqrt-of-slice.-1", "Neg-of-concat.-1"} & set(found)
    assert len(found) < len(axioms()) // 2


_SWAPS = (("Add", "Mul", "Max", "Min", "Sub", "Div"), ("Relu", "Exp", "Sqrt", "Tanh"), ("MatMul", "Add"))


def _mutated(rule: Rule, random: Random) -> Rule:
    """``rule`` with one node of its target changed: another operator or attribute, swapped operands, a variable."""
    target = random.randrange(len(rule.targets))
    nodes = [part for part in subterms([rule.targets[target]]) if isinstance(part, Apply)]
    if not nodes:
        changed = tuple(Apply(require("Relu"), (term,)) for term in rule.targets)
        return Rule(f"{rule.name}'", rule.variables, rule.sources, changed, rule.needs)
    chosen = random.choice(nodes)
    other = _changed(chosen, rule, random)

    def replaced(term: Term) -> Term:
        if term == chosen:
            return other
        if not isinstance(term, Apply):
            return term
        return Apply(term.op, tuple(map(replaced, term.operands)), term.attributes, term.rest, term.output)

    targets = [replaced(t) if place == target else t for place, t in enumerate(rule.targets)]
    if list(rule.targets) == targets:
        return _mutated(rule, random)
    return Rule(f"{rule.name}'", rule.variables, rule.sources, tuple(targets), rule.needs)


def _is_number(value: Attribute) -> bool:
    return isinstance(value, int | Expr) or (isinstance(value, tuple) and bool(value) and _is_number(value[0]))


def _shifted(value: Attribute, random: Random) -> Attribute:
    """One integer of ``value`` is another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | Expr):
        return value + random.choice((-1, 1))
    integers = [item for item in value if isinstance(item, int | Expr)] if isinstance(value, tuple) else []
    chosen = random.randrange(len(integers))
    return tuple(item + random.choice((-1, 1)) if at == chosen else item for at, item in enumerate(integers))


def _changed(node: Apply, rule: Rule, random: Random) -> Apply:
    others = [name for family in _SWAPS if node.op.name in family for name in family if name != node.op.name]
    way = random.randrange(4)
    numbers = [place for place, (_, value) in enumerate(node.attributes) if _is_number(value)]
    if way == 3 and numbers:
        place = random.choice(numbers)
        written = [(n, _shifted(v, random)) if at == place else (n, v) for at, (n, v) in enumerate(node.attributes)]
        return Apply(node.op, node.operands, tuple(written), node.rest, node.output)
    if way == 0 and others:
        return Apply(require(random.choice(others)), node.operands, (), None)
    if way == 1 and len(node.operands) > 1:
        return Apply(node.op, node.operands[::-1], node.attributes, node.rest, node.output)
    operands = list(node.operands)
    if operands and rule.variables:
        operands[random.randrange(len(operands))] = random.choice(rule.variables)
    changed = Apply(node.op, tuple(operands), node.attributes, node.rest, node.output)
    return Apply(require("Relu"), (node,)) if changed == node else changed


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_no_mutated_rule_is_accepted_unless_it_is_true(count: int) -> None:
    """One node of a proved rule is changed. What is accepted agrees at forty other sizes, and is proved by Z3, too."""
    random = Random(6)
    proved = [*IDENTITIES, *load_rules(ALGEBRA), *load_rules(SEARCH)]
    accepted: list[Rule] = []
    for _ in range(count):
        mutant = _mutated(random.choice(proved), random)
        if verify_rule(mutant, shapes=2).holds:
            accepted.append(mutant)
    for mutant in accepted:
        names = find_proof(mutant)
        assert try_rule(mutant, shapes=40, seed=7).holds, mutant
        assert names is not None
        assert agrees(mutant, names), mutant
    assert len(accepted) < 0.2 * count


def test_a_rule_whose_shapes_differ_at_one_rank_is_rejected() -> None:
    """With two leading ones, the source has a dimension more than the target."""
    (rule,) = parse_rules("""
rule scale
  for x[n, c, h, w], a[o, d, r, s], z[*e, o, 1, 1]
  from Mul(Conv(x, a, **conv), z)
  to Conv(x, Mul(a, Reshape(z, shape=(o, 1, 1, 1))), **conv)
""")
    assert not verify_rule(rule, shapes=1).holds
    with pytest.raises(BadProgram):
        find_proof(rule)


def test_a_flag_that_is_open_is_proved_for_both_values() -> None:
    """True only where the first matrix is not transposed."""
    (rule,) = parse_rules(
        "rule r\n  for x[k, k], w[k, k]\n  from Gemm(x, w, transpose_b=False, alpha=1.0, **g)\n  to MatMul(x, w)"
    )
    assert verify_rule(rule, shapes=0).reason
    assert find_proof(rule) is None
    assert find_proof(next(iter(at_ranks(rule)))) == ()


def test_a_file_can_not_make_axioms() -> None:
    """It holds at each size that is tried, and no axiom says it."""
    text = "rule pooled\n  for x[n, c, h, w]\n  from Floor(Relu(x))\n  to Relu(Floor(x))"
    (claimed,) = parse_rules(f"{text}\n  proof defined; 8 shapes")
    (tested,) = parse_rules(f"{text}\n  proof tested; 8 shapes")
    axiom = axioms()["Add-commutes"]
    assert verify_rule(axiom, shapes=1).holds
    assert verify_rule(claimed, Engine.FIELD, shapes=1).holds == verify_rule(tested, shapes=1).holds
    assert not verify_rule(claimed, shapes=1).holds


def test_a_prover_knows_only_its_axioms() -> None:
    (commuted,) = parse_rules("rule r\n  for x[*s], y[*t]\n  from Add(x, y)\n  to Add(y, x)")
    assert Prover([axioms()["Add-commutes"]]).proves(commuted)
    assert not Prover([axioms()["Mul-commutes"], axioms()["Add-associates"]]).proves(commuted)


def test_a_convolution_of_other_ranks_has_no_shape() -> None:
    (rule,) = parse_rules("rule r\n  for x[n, c, h], a[o, c, r, s]\n  from Conv(x, a, **conv)\n  to Conv(x, a, **conv)")
    with pytest.raises(BadProgram, match="the ranks differ"):
        find_proof(rule)


LITERAL = """
rule largest-of-literal-sizes
  for x[n, c, {side}, {side}]
  from Relu(MaxPool(x, ceil_mode=False, kernel_shape=(2, 2), pads=(0, 0, 0, 0), strides=(2, 2)))
  to MaxPool(Relu(x), ceil_mode=False, kernel_shape=(2, 2), pads=(0, 0, 0, 0), strides=(2, 2))

rule added-to-literal-sizes
  for x[n, c, {side}, {side}], y[n, c, {half}, {half}]
  from Add(Relu(MaxPool(x, ceil_mode=False, kernel_shape=(2, 2), pads=(0, 0, 0, 0), strides=(2, 2))), y)
  to Add(y, MaxPool(Relu(x), ceil_mode=False, kernel_shape=(2, 2), pads=(0, 0, 0, 0), strides=(2, 2)))

rule smallest-of-literal-sizes
  for x[n, c, {side}, {side}]
  from Neg(MaxPool(x, ceil_mode=False, kernel_shape=(2, 2), pads=(0, 0, 0, 0), strides=(2, 2)))
  to MaxPool(Neg(x), ceil_mode=False, kernel_shape=(2, 2), pads=(0, 0, 0, 0), strides=(2, 2))
"""


@pytest.mark.parametrize("side", [8, 9])
def test_windows_with_strides_over_images_of_literal_sizes(side: int) -> None:
    """What axioms say of extents is what literals are: a term does not get two shapes."""
    found = [verify_rule(rule) for rule in parse_rules(LITERAL.format(side=side, half=side // 2))]
    assert [one.verdict for one in found] == [Verdict.HOLDS, Verdict.HOLDS, Verdict.FALSE]


def test_quotients_of_literals_are_true_and_others_unknown() -> None:
    point, n = Point(), Symbol("n")
    assert point.value(const(7) // 2) == 3 == quotient(7, 2)
    assert quotient(7, 2) == quotient(6, 2)
    assert point.value(n // 2) != point.value((n + 1) // 2)
    assert point.value(n // 1) == point.value(n)
