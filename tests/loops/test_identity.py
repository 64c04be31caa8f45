"""Programs are the same by what they are made of."""

from dataclasses import replace

from tests.measure.jobs import product
from tilewright.loops.identity import doublings_apart, family, identity, numbers
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.tensor import build as te


def scaled(factor: float, size: int = 8) -> Program:
    a = te.placeholder((size,), name="A")
    return lower(te.compute((size,), lambda i: a[i] * factor, name="B"), "scaled")


def test_names_of_programs_and_their_text_do_not_matter() -> None:
    program = product("mm", 6)
    text = f"# a remark\n{program}".replace(", ", " ,   ")
    assert identity(parse_program(text)) == identity(program) == identity(replace(program, name="other"))


def test_whatever_is_computed_does() -> None:
    s = Schedule(product("mm", 6))
    s.split("j", (None, 2))
    others = [product("mm", 7), s.program, scaled(2.0), scaled(0.0), scaled(-0.0), scaled(2.0, 9)]
    renamed = parse_program(str(product("mm", 6)).replace("A", "D"))
    assert len({identity(program) for program in (product("mm", 6), renamed, *others)}) == 8


def test_a_family_differs_in_numbers_only() -> None:
    small, large = product("mm", 6), product("mm", 48)
    assert family(small) == family(large)
    assert len(numbers(small)) == len(numbers(large))
    assert {number for number in numbers(small) if number not in (0, 1)} == {6, GLOBAL.alignment}
    assert family(small) != family(scaled(2.0))
    assert family(scaled(2.0)) == family(scaled(-3.5))


def test_how_far_apart_a_family_is() -> None:
    apart = [doublings_apart(product("mm", 31), product("mm", size)) for size in (31, 15, 63, 127)]
    assert apart[0] == 0
    assert 0 < apart[1] == apart[2] < apart[3]
