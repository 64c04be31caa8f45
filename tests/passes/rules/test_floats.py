"""What rules do to floats."""

import numpy as np
import pytest

from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds
from tilewright.passes.rules import ALGEBRA, GENERATED, SEARCH, Floats, Rule, floats_of, load_rules, parse_rules
from tilewright.superopt.evaluate.evaluator import Evaluator
from tilewright.superopt.evaluate.instances import Instance, sampled, sides
from tilewright.symbolic.expr import TRUE
from tilewright.tensor.domains import Real

SHIPPED = [rule for name in (ALGEBRA, SEARCH, GENERATED) for rule in load_rules(name)]
EXACT = [rule for rule in SHIPPED if floats_of(rule) is Floats.EXACT]


def of(text: str) -> Floats:
    (rule,) = parse_rules(f"rule r\n{text}")
    return floats_of(rule)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  for x[m], y[m]\n  from Concat(Relu(x), Relu(y), axis=-1)\n  to Relu(Concat(x, y, axis=-1))", Floats.EXACT),
        ("  for x[*s], y[*s]\n  from Add(x, y)\n  to Add(y, x)", Floats.EXACT),
        ("  for x[*s], y[*s]\n  from Add(Relu(x), y)\n  to Add(y, Relu(x))", Floats.EXACT),
        (
            "  for x[m, k], y[n, k], w: weight[k, l]\n"
            "  from Concat(MatMul(x, w), MatMul(y, w), axis=-2)\n  to MatMul(Concat(x, y, axis=-2), w)",
            Floats.REASSOCIATES,
        ),
        (
            "  for x[m, k], v: weight[k, l], w: weight[l, n]\n"
            "  from MatMul(MatMul(x, v), w)\n  to MatMul(x, MatMul(v, w))",
            Floats.REASSOCIATES,
        ),
        (
            "  for x[m, k], v[k, l], w[l, n]\n  from MatMul(MatMul(x, v), w)\n  to MatMul(x, MatMul(v, w))",
            Floats.MAY_OVERFLOW,
        ),
        ("  for x[*s], y[*s], z[*s]\n  from Add(Mul(x, z), Mul(y, z))\n  to Mul(Add(x, y), z)", Floats.MAY_OVERFLOW),
        ("  for x[*s], y[*s], z[*s]\n  from Add(Add(x, y), z)\n  to Add(x, Add(y, z))", Floats.MAY_OVERFLOW),
        (
            "  for x[m, k], y[m, l], v[k, n], w[l, n]\n"
            "  from MatMul(Concat(x, y, axis=-1), Concat(v, w, axis=-2))\n  to Add(MatMul(x, v), MatMul(y, w))",
            Floats.MAY_OVERFLOW,
        ),
        (
            "  for x[m, k], w[k, n]\n  from MatMul(x, w)\n"
            "  to Add(MatMul(Slice(x, starts=(0), ends=(1), axes=(-1), steps=(1)),"
            " Slice(w, starts=(0), ends=(1), axes=(-2), steps=(1))),"
            " MatMul(Slice(x, starts=(1), ends=(k), axes=(-1), steps=(1)),"
            " Slice(w, starts=(1), ends=(k), axes=(-2), steps=(1))))",
            Floats.MAY_OVERFLOW,
        ),
    ],
    ids=[
        *("moved", "turned", "turned, with a function", "joined", "weights", "data", "factor", "sums", "parts of sums"),
        "sums of parts",
    ],
)
def test_of_rules(text: str, expected: Floats) -> None:
    assert of(text) is expected


def test_of_shipped_rules() -> None:
    by_name = {rule.name: floats_of(rule) for rule in SHIPPED}
    assert by_name["product-from-the-right"] is by_name["normalization-as-scale-and-shift-2d"] is Floats.MAY_OVERFLOW
    assert by_name["products-by-one-matrix"] is by_name["Sigmoid-after-maxima-2d"] is Floats.REASSOCIATES
    assert by_name["slice-of-rows-twice"] is by_name["Relu-of-joined.-1"] is Floats.EXACT
    assert len(EXACT) > 40


@pytest.mark.share(3)
@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
def test_what_is_exact_has_the_same_bits(rule: Rule) -> None:
    """Of numbers of all sizes, and of those that are none."""
    assert sum(_has_same_bits(rule, instance) for instance in sampled(rule, 4, 0, 400)) >= 3


def _has_same_bits(rule: Rule, instance: Instance) -> bool:
    """Whether the rule has a value at ``instance``; both sides must have the same one then."""
    if any(instance.simplified(need) != TRUE for need in rule.needs):
        return False
    concrete, random = instance.concrete_rule(rule), np.random.default_rng(0)
    shapes = {variable.name: tuple(int(str(extent)) for extent in variable.shape) for variable in concrete.variables}
    values = {name: special(random, (*shape, 3)) for name, shape in shapes.items()}
    try:
        with np.errstate(all="ignore"):
            pairs = [*sides(concrete, Evaluator(Real()), values)]
    except (BadProgram, OutOfBounds):
        return False
    for left, right in pairs:
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(np.signbit(left), np.signbit(right))
    return True


def special(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    chosen = np.array([0.0, -0.0, 1e-310, 1e300, -1e300, np.inf, -np.inf, np.nan])
    return np.where(random.random(shape) < 0.2, random.choice(chosen, shape), random.standard_normal(shape))
