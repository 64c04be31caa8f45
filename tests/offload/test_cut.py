"""The split is the cheapest of all."""

import itertools
from collections.abc import Sequence
from random import Random

from tilewright.offload.cut import Passing, cheapest


def cost(
    chosen: frozenset[int], offloaded: dict[int, float], kept: dict[int, float], values: Sequence[Passing]
) -> float:
    own = sum((offloaded if item in chosen else kept)[item] for item in offloaded)
    passed = (v for v in values if len({item in chosen for item in (v.maker, *v.readers)}) == 2)
    return own + sum(value.cost for value in passed)


def random_values(random: Random, items: range) -> list[Passing]:
    made = [Passing(maker, tuple(_readers(random, maker + 1, items.stop)), random.randint(0, 9)) for maker in items]
    entering = Passing(None, tuple(random.sample(items, 2)), random.randint(0, 9))
    return [entering, *made]


def _readers(random: Random, first: int, stop: int) -> list[int | None]:
    later = list(range(first, stop))
    found: list[int | None] = list(random.sample(later, random.randint(0, min(3, len(later)))))
    return [*found, None] if random.random() < 0.3 or not found else found


def test_no_split_is_cheaper() -> None:
    random, items = Random(0), range(6)
    every = [frozenset(c) for count in range(len(items) + 1) for c in itertools.combinations(items, count)]
    sizes = set[int]()
    for _ in range(40):
        offloaded, kept = ({item: float(random.randint(0, 9)) for item in items} for _ in range(2))
        values = random_values(random, items)
        found = cheapest(offloaded, kept, values)
        least = min(cost(chosen, offloaded, kept, values) for chosen in every)
        assert cost(frozenset(i for i in items if i in found), offloaded, kept, values) == least
        sizes.add(len(found))
    assert len(sizes) > 3


def test_nothing_is_offloaded_for_nothing() -> None:
    assert not cheapest({0: 5.0}, {0: 5.0}, [Passing(None, (0,), 0.0)])
