"""Extents that must be equal: what is found is a solution, and leaves all freedom that there is."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.superopt.generate.extents import (
    Extent,
    Mismatch,
    Part,
    Solver,
    as_attribute,
    difference,
    literal,
    size_of,
)
from tilewright.symbolic.expr import Symbol

PARTS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=5)


def _extent(solver: Solver, parts: list[tuple[int, bool]]) -> Extent:
    return tuple(part for size, named in parts for part in (solver.fresh(size) if named else literal(size)))


def _elements(extent: Extent) -> list[tuple[str, int] | None]:
    """Of each element, the symbol that it is in and its place there; None if it is counted in numbers."""
    return [None if part.name is None else (part.name, at) for part in extent for at in range(part.size)]


def _ends(extent: Extent) -> set[int]:
    return {0, *accumulate(part.size for part in extent)}


@st.composite
def _two_of_one_size(draw: st.DrawFn) -> tuple[list[tuple[int, bool]], ...]:
    """Two lists of parts, cut at places of their own."""
    size = draw(st.integers(1, 12))

    def parts() -> list[tuple[int, bool]]:
        ends = sorted({*draw(st.sets(st.integers(1, size))), size})
        return [(end - start, draw(st.booleans())) for start, end in pairwise([0, *ends])]

    return parts(), parts()


@given(PARTS, PARTS)
def test_sums_of_other_sizes_are_not_equal(one: list[tuple[int, bool]], other: list[tuple[int, bool]]) -> None:
    solver = Solver()
    a, b = _extent(solver, one), _extent(solver, other)
    if size_of(a) != size_of(b):
        with pytest.raises(Mismatch):
            solver.unify(a, b)


@example(([(3, True)], [(1, True), (2, True)]))
@example(([(5, True)], [(1, True), (3, False), (1, True)]))
@given(_two_of_one_size())
def test_sums_that_are_equal_have_equal_parts(both: tuple[list[tuple[int, bool]], ...]) -> None:
    solver = Solver()
    a, b = (_extent(solver, parts) for parts in both)
    numbers = [None in pair for pair in zip(_elements(a), _elements(b), strict=True)]
    cuts = _ends(a) | _ends(b)
    solver.unify(a, b)
    found = _elements(solver.resolved(a))
    assert found == _elements(solver.resolved(b))
    assert [element is None for element in found] == numbers  # what neither side gives as a number is free
    starts = {at for at, element in enumerate(found) if element is not None and element[1] == 0}
    assert starts == {at for at in cuts - {len(found)} if found[at] is not None}  # parts are as long as can be


@given(PARTS)
def test_halves_are_of_one_size(parts: list[tuple[int, bool]]) -> None:
    solver = Solver()
    whole = _extent(solver, parts)
    if size_of(whole) % 2:
        with pytest.raises(Mismatch):
            solver.halves(whole)
        return
    first, second = solver.halves(whole)
    assert size_of(first) == size_of(second)
    assert _elements(solver.resolved((*first, *second))) == _elements(solver.resolved(whole))


def test_a_symbol_that_is_equal_to_two_others() -> None:
    solver = Solver()
    x, y, z = (solver.fresh(4) for _ in range(3))
    solver.unify(x, y)
    solver.unify(y, z)
    assert len({solver.resolved(x), solver.resolved(y), solver.resolved(z)}) == 1
    solver.pin(z)
    assert solver.resolved(x) == literal(4)


def test_attributes() -> None:
    extent = (Part(2, "n"), Part(3), Part(4, "p"))
    assert str(as_attribute(extent)) == "n + p + 3"
    assert as_attribute(literal(7)) == 7
    assert difference(extent, extent[2:]) == as_attribute(extent[:2])
    assert difference(literal(7), literal(7)) == 0
    assert as_attribute((Part(2, "n"),)) == Symbol("n")
