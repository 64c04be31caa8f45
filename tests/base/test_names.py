"""Names that are unused."""

from tilewright.base.names import Names, fresh_name


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert fresh_name("x", ()) == "x"
    assert fresh_name("x", ("x", "x_1")) == "x_2"


def test_names_are_given_once() -> None:
    names = Names(["x", "y_1"])
    assert [names.fresh(wanted) for wanted in ("x", "x", "y", "y", "x_1")] == ["x_1", "x_2", "y", "y_2", "x_1_1"]
