"""The text of rules: what is printed is read back as the same."""

import pytest

from tilewright.base.errors import ParseError
from tilewright.ops.operator import require
from tilewright.passes.rules import Apply, Evidence, Number, Proof, Rule, Term, Variable, parse_rules, print_rules
from tilewright.symbolic.expr import Symbol, const, equal

TEXT = """\
rule matmul-shared-left
  for x[*b, m, k], v: weight[k, n1], w: weight[k, n2]
  let t0 = MatMul(x, Concat(v, w, axis=1))
  from MatMul(x, v); MatMul(x, w)
  to Slice(t0, axes=(-1,), ends=(n1,), starts=(0,)); Slice(t0, axes=(-1,), ends=(n1 + n2,), starts=(n1,))
  need n1 % 4 == 0, n2 >= n1 + 1
  proof proved by slice-of-concat, matmul-concat-columns; 8 shapes

rule linear
  for x[n, c, h, w], a: weight[o, c, r, s], b: weight[o, c, r, s]
  from Add(Conv(x, a, **conv), Conv(x, b, **conv))
  to Conv(x, Add(a, b), **conv)

rule relu-number
  for x[*s]
  from Mul(Relu(x), -0.5)
  to Mul(-0.5, Relu(x))
  proof tested; 3 shapes

rule second-result
  for x[b, n]
  from TopK(x, k=2).1
  to TopK(Relu(x), axis=-1, k=2).1
"""


def test_rules_print_as_they_are_written() -> None:
    rules = parse_rules(TEXT)
    assert print_rules(rules) == TEXT
    assert parse_rules(print_rules(rules)) == rules


def test_what_is_read() -> None:
    first, second, third, fourth = parse_rules(TEXT)
    k, n1, n2 = Symbol("k"), Symbol("n1"), Symbol("n2")
    v, w = Variable("v", (k, n1), None, is_weight=True), Variable("w", (k, n2), None, is_weight=True)
    x = Variable("x", (Symbol("m"), k), "b")
    product = Apply(require("MatMul"), (x, Apply(require("Concat"), (v, w), (("axis", 1),))))
    assert first.variables == (x, v, w)
    assert first.targets == tuple(
        Apply(require("Slice"), (product,), (("starts", (start,)), ("ends", (end,)), ("axes", (-1,))))
        for start, end in ((0, n1), (n1, n1 + n2))
    )
    assert first.needs == (equal(n1 % 4, const(0)), n2 >= n1 + 1)
    assert first.proof == Proof(Evidence.PROVED, ("slice-of-concat", "matmul-concat-columns"), 8)
    assert first.symbols == {Symbol("m"), k, n1, n2}
    (target,) = second.targets
    assert isinstance(target, Apply) and target.rest == "conv" and second.proof is None
    assert fourth.sources[0] == Apply(require("TopK"), fourth.variables, (("k", 2),), None, 1)
    assert Number(-0.5) in third.targets[0].operands if isinstance(third.targets[0], Apply) else False


def test_terms_are_equal_by_structure() -> None:
    x, y = Variable("x"), Variable("y")

    def tower(base: Term) -> Term:
        for _ in range(60):  # as a tree: 2 ** 60 nodes
            base = Apply(require("Add"), (base, base))
        return base

    assert tower(x) == tower(x) and hash(tower(x)) == hash(tower(x))
    assert tower(x) != tower(y)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("for x[m]\n  from Relu(y)\n  to x", "line 3: y is not declared"),
        ("for x[m]\n  from Reluu(x)\n  to x", "line 3: Reluu is no operator"),
        ("for x[m]\n  from Relu(x\n  to x", "line 3: "),
        ("for x[m]\n  from Relu(x)", "line 1: rule r has 1 terms in `from` and 0 in `to`"),
        ("for x[m], x[k]\n  from x\n  to x", "line 2: x is declared twice"),
        ("for x(m)\n  from x\n  to x", "line 2: variables are declared as"),
        ("for x[*, m]\n  from x\n  to x", "line 2: leading dimensions have a name"),
        ("for x[m / 2]\n  from x\n  to x", "line 2: `m / 2` is no integer expression"),
        ("for x[m]\n  from x\n  to x\n  need m", "line 5: `m` is no comparison"),
        ("for x[m]\n  from x\n  to x\n  proof sure; 3 shapes", "line 5: a proof is"),
        ("for x[m]\n  from x.1\n  to x", "line 3: "),
        ("for x[m]\n  from 'x'\n  to x", "line 3: 'x' is no operand"),
        ("for x[m]\n  from Conv(x, x, **a, **b)\n  to x", "only one"),
        ("for x[m]\n  frm x\n  to x", "line 3: `frm` is none of"),
        ("for x[m]\n  from x\n  to x\nrule r\n  from 1.0\n  to 1.0", "line 5: there are two rules r"),
        ("for x[m]\n  from x\n  to x\n  need m) + (m == 2", "line 5: these are no conditions"),
        (f"for x[m]\n  from {'-' * 4000}x\n  to x", "line 3: it is nested too deeply"),
        (f"for x[m + {' + '.join('1' * 100)}]\n  from x\n  to x", "line 2: it is nested too deeply"),
        (f"for x[{'m' * 5000}]\n  from x\n  to x", "line 2: it has 5000 characters"),
        ("for x[m]\n  from Relu('\udc80')\n  to x", "line 3: it has characters that are no Unicode text"),
        (f"for x[{1 << 64}]\n  from x\n  to x", "line 2: 18446744073709551616 does not fit"),
        (f"for x[m]\n  from x\n  to x\n  proof proved; {'9' * 5000} shapes", "line 5: a proof is"),
    ],
)
def test_what_is_wrong_is_named(lines: str, message: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_rules(f"rule r\n  {lines}")
    assert message in str(error.value)


def test_a_block_stands_for_a_bounded_number_of_rules() -> None:
    families = "".join(f"each A{i} in {' | '.join(map(str, range(100)))}\n" for i in range(10))
    with pytest.raises(ParseError, match="more than 1024 rules"):
        parse_rules(f"{families}rule r.A0\n  from 1.0\n  to 1.0")


def test_what_stands_before_the_first_rule() -> None:
    with pytest.raises(ParseError, match="line 2"):
        parse_rules("# a comment\nfor x[m]")


def test_a_rule_without_variables() -> None:
    (rule,) = parse_rules("rule numbers\n  from Add(1.0, 2)\n  to 3.0")
    assert rule == Rule("numbers", (), rule.sources, (Number(3.0),))
