"""Variables of different kinds are never equal, whatever they are called."""

from itertools import permutations

import pytest

from tests.names.hostile import HOSTILE
from tilewright.base.names import quoted, unquoted
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import Expr, Extent, Factor, Symbol, Var, const, format_expr, minimum, unique_text
from tilewright.symbolic.linear import order, polynomial
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import free_vars, substitute

KINDS = (Var("k"), Extent("k"), Extent("k", label="batch"), Symbol("k"), Factor("k"))


def test_one_name_of_several_kinds_is_several_variables() -> None:
    assert len({*KINDS}) == len(KINDS)
    assert all(a != b and a + 1 != b + 1 for a, b in permutations(KINDS, 2))
    assert all(kind == type(kind)(kind.name, kind.dtype) for kind in KINDS[:2])


def test_sums_keep_them_apart() -> None:
    total: Expr = const(0)
    for kind in KINDS:
        total = total + kind
    assert len(polynomial(total)) == len(KINDS)
    assert simplify(Var("k") - Extent("k"), Bounds()) != const(0)
    assert free_vars(total) == {*KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_one_is_replaced_without_the_others(kind: Var) -> None:
    values: dict[Var, Expr] = {kind: const(7)}
    assert [substitute(other, values) == const(7) for other in KINDS] == [other is kind for other in KINDS]


def test_an_axis_is_within_an_extent_of_its_name() -> None:
    """As a range, ``k in range(k)`` would refer to itself."""
    bounds = Bounds({Var("k"): Extent("k")}, {Extent("k"): 8})
    assert interval(Var("k"), bounds) == (0, 7)
    assert prove(Var("k") < Extent("k"), bounds)
    assert not prove(Extent("k") < Extent("k"), bounds)


def test_they_are_sorted_apart() -> None:
    """Else equal sums would have several forms: as many as there are orders in which they can be written."""
    atoms = [*KINDS, *(minimum(kind, 3) for kind in KINDS)]
    assert len({order(atom) for atom in atoms}) == len(atoms)
    assert len({unique_text(atom) for atom in atoms}) == len(atoms)
    forms = {simplify(a + b + c, Bounds()) for a, b, c in permutations(atoms[4:7])}
    assert len(forms) == 1


def test_what_users_call_an_extent_is_in_texts_for_them_only() -> None:
    extent = Extent("n0", label="a\nbatch")
    assert str(extent * 2) == "a\\nbatch * 2"
    assert format_expr(extent * 2) == "n0 * 2"
    assert extent.unlabelled() == Extent("n0")


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 20))
def test_quoted_names_are_read_back(first: int) -> None:
    for name in HOSTILE[first : first + 20]:
        text = quoted(name)
        assert text == name or unquoted(text) == name
        assert text.isascii() and "\n" not in text
    assert len({*map(quoted, HOSTILE)}) == len(HOSTILE)


@pytest.mark.parametrize("text", ["``x``", "`k`", '`"`', "`\\u0061`", "`a"])
def test_there_is_one_way_to_quote_a_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no name|delimiter|Extra data|Expecting|Invalid|Unterminated"):
        unquoted(text)
