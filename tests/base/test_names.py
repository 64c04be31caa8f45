"""Names that are unused, and near ones."""

import pytest

from tilewright.base.names import Names, fresh_name, nearest


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert fresh_name("x", ()) == "x"
    assert fresh_name("x", ("x", "x_1")) == "x_2"


def test_names_are_given_once() -> None:
    names = Names(["x", "y_1"])
    assert [names.fresh(wanted) for wanted in ("x", "x", "y", "y", "x_1")] == ["x_1", "x_2", "y", "y_2", "x_1_1"]


OPERATORS = ("Concat", "Conv", "BatchNormalization", "Elu", "Floor", "LpPool", "Relu", "Softmax")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("Loop", []),
        ("Foo", []),
        ("Optional", []),
        ("Reluu", ["Relu"]),
        ("relu", ["Relu", "Elu"]),
        ("SoftMax", ["Softmax"]),
        ("Convv", ["Conv"]),
        ("BatchNorm", ["BatchNormalization"]),
        ("Fl", []),
        ("x" * 100, []),
    ],
)
def test_only_near_names_are_suggested(word: str, near: list[str]) -> None:
    assert nearest(word, OPERATORS) == near
