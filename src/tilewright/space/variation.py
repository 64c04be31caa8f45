"""Variation: candidates that differ a little from others, and children of two of them, for evolution.

A knob is changed with a probability in proportion to the bits of its value, so sizes of tiles most often, as they have
the most values. Sizes are changed by moving a factor from one loop to another, and at times drawn anew. In a child, the
knobs of a *node* come from one parent: a node is what a knob's name begins with, up to a dot, such as a block (the
node-based crossover of Zheng et al., OSDI 2020, section 5.1).
"""

from collections.abc import Mapping, Sequence
from math import log2

import numpy as np

from tilewright.space.knobs import Knob, Sizes, Value
from tilewright.space.tables import Digits

ANEW = 0.2
"""The probability with which sizes that are changed are drawn, and not moved."""


def varied(knobs: Sequence[Knob[Value]], digits: Digits, random: np.random.Generator) -> Digits:
    """One candidate, ``(knobs,)``, with one decision changed; as it is if there is nothing to decide."""
    bits = np.array([log2(len(knob.values)) for knob in knobs])
    result = digits.copy()
    if not bits.any():
        return result
    place = int(random.choice(len(knobs), p=bits / bits.sum()))
    knob, now = knobs[place], int(digits[place])
    value = knob.values[now]
    moved = None
    if isinstance(value, tuple) and random.random() >= ANEW:
        moved = _moved(knob, tuple(size for size in value if isinstance(size, int)), random)
    if moved is None:
        moved = (now + int(random.integers(1, len(knob.values)))) % len(knob.values)
    result[place] = moved
    return result


def _moved(knob: Knob[Value], sizes: Sizes, random: np.random.Generator) -> int | None:
    """The value in which a factor of one loop is one of another; None if a few tries find none."""
    for _ in range(4):
        source, target = random.choice(len(sizes), 2, replace=False) if len(sizes) > 1 else (0, 0)
        factors = [factor for factor in range(2, sizes[source] + 1) if sizes[source] % factor == 0]
        if source == target or not factors:
            continue
        factor = factors[min(int(random.geometric(0.5)) - 1, len(factors) - 1)]
        changed = list(sizes)
        changed[source] //= factor
        changed[target] *= factor
        if tuple(changed) in knob.values:
            return knob.values.index(tuple(changed))
    return None


def nodes(knobs: Sequence[Knob[Value]]) -> dict[str, list[int]]:
    """The positions of the knobs of each node."""
    found: dict[str, list[int]] = {}
    for position, knob in enumerate(knobs):
        found.setdefault(knob.name.partition(".")[0], []).append(position)
    return found


def crossed(
    knobs: Sequence[Knob[Value]],
    first: Digits,
    other: Mapping[Knob[Value], int],
    random: np.random.Generator,
) -> Digits:
    """``first``, in which some nodes are decided as in ``other``: digits by knob; knobs that it has not stay."""
    result = first.copy()
    for positions in nodes(knobs).values():
        if random.random() < 0.5:
            for position in positions:
                result[position] = other.get(knobs[position], result[position])
    return result
