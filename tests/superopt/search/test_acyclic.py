"""Which ways stay, against a search of all paths."""

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tilewright.superopt.search.acyclic import Way, components, without_cycles

NAMES = "abcdef"


@st.composite
def ways(draw: st.DrawFn) -> list[Way]:
    reads = st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(tuple)
    return [Way(draw(st.sampled_from(NAMES)), draw(reads)) for _ in range(draw(st.integers(0, 12)))]


def leads(ways: Iterable[Way], start: str, goal: str) -> bool:
    """Whether ``goal`` is read, directly or not, to make ``start``; or is it."""
    edges = {(way.made, read) for way in ways for read in way.reads}
    reached = {start}
    for _ in NAMES:
        reached |= {read for made, read in edges if made in reached}
    return goal in reached


@given(ways())
def test_components_are_what_leads_to_each_other(ways: Sequence[Way]) -> None:
    edges = {name: [read for way in ways if way.made == name for read in way.reads] for name in NAMES}
    found = list(components(edges))
    assert sorted(name for members in found for name in members) == list(NAMES)
    of = {name: number for number, members in enumerate(found) for name in members}
    for a in NAMES:
        for b in NAMES:
            assert (of[a] == of[b]) == (leads(ways, a, b) and leads(ways, b, a))
            assert of[b] <= of[a] or not leads(ways, a, b)


@given(ways())
def test_a_way_stays_unless_it_closes_a_cycle_of_older_ones(ways: Sequence[Way]) -> None:
    order, staying = without_cycles(ways)
    kept: list[Way] = []
    for position, way in enumerate(ways):
        closes = any(leads(kept, read, way.made) for read in way.reads)
        assert (position in staying) != closes
        kept += [] if closes else [way]
    places = {name: place for place, name in enumerate(order)}
    assert places.keys() == {name for way in ways for name in (way.made, *way.reads)} and len(order) == len(places)
    assert all(places[read] < places[way.made] for way in kept for read in way.reads)


def test_long_chains_need_no_recursion() -> None:
    chain = [Way(str(number + 1), (str(number),)) for number in range(2000)]
    assert without_cycles([*chain, Way("0", ("2000",))])[1] == list(range(2000))
