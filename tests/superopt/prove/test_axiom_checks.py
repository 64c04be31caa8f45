"""The axioms are held to every small size, to each other, and to being needed."""

import pytest

from tilewright.passes.rules import parse_rules
from tilewright.superopt.evaluate.instances import at_every_size
from tilewright.superopt.prove.axiom_checks import LISTS, check_axioms
from tilewright.superopt.prove.axioms import axioms

NAMES = ("Add-commutes", "MatMul-associates", "Relu-of-concat.-1", "Slice-of-Concat-from.-1", "Conv-of-filters-1d")


def test_axioms_are_checked() -> None:
    found = list(check_axioms([axioms()[name] for name in NAMES], most=300))
    assert all(check.holds for check in found)
    assert [check.axiom.name for check in found if check.is_redundant] == ["Relu-of-concat.-1"]
    assert [check.is_complete for check in found] == [True, True, True, True, False]


@pytest.mark.parametrize("name", ["Conv-of-joined-groups-1d", "AveragePool-of-points-1d", "AveragePool-of-points-2d"])
def test_axioms_by_which_a_search_gains_are_checked(name: str) -> None:
    (check,) = check_axioms([axioms()[name]], most=60)
    assert check.holds
    assert check.shapes == 60


def test_each_size_is_tried_once() -> None:
    (rule,) = parse_rules("rule r\n  for x[m, k], y[k, n]\n  from MatMul(x, y)\n  to MatMul(x, y)")
    sizes = {tuple(sorted(instance.symbols.values())) for instance in at_every_size(rule, 2, 0)}
    assert len(list(at_every_size(rule, 4, 0))) == 64
    assert sizes == {(1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2)}


def test_what_is_false_at_one_size_is_found() -> None:
    (rule,) = parse_rules("rule r\n  for x[a, b, c]\n  from Reshape(x, shape=(c, b, a))\n  to x\n  need a == c")
    (wrong,) = parse_rules("rule r\n  for x[a, b]\n  from Transpose(x)\n  to Reshape(x, shape=(b, a))")
    (check,) = check_axioms([rule])
    assert check.holds
    (check,) = check_axioms([wrong])
    assert not check.holds
    assert str(check.counterexample) == "a=2, b=2"


AXIOM = "rule r\n  for x[*s]\n  from {}\n  to {}"


def test_leading_dimensions_are_tried_at_several_sizes() -> None:
    """Also where functions are unknown over a finite field, so that float64 decides."""
    for sides in (("Neg(Neg(x))", "x"), ("Relu(Relu(x))", "Relu(x)"), ("Exp(Neg(x))", "Div(1.0, Exp(x))")):
        (check,) = check_axioms(parse_rules(AXIOM.format(*sides)))
        assert check.holds
        assert 6 <= check.shapes <= LISTS


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_all_axioms_are_checked(part: int) -> None:
    for check in check_axioms(list(axioms().values())[part::16]):
        assert check.holds, (check.axiom.name, str(check.counterexample), check.contradiction)
