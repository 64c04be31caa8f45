"""Which results of a search are accepted, where several networks would use them.

A result (an *offer*) may change more than one network: a schedule of a kernel that they share, or times of algorithms
that are found for nodes of both. Accepted is what makes a network faster and none of the others slower, as measured
with all that is accepted and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.networks.comparison import Comparison

Offers: TypeAlias = frozenset[int]
"""Positions of offers."""


@dataclass(frozen=True, slots=True)
class Settled:
    """``accepted`` offers, and each network's last comparison: with those of them that touch it, if there are any."""

    accepted: Offers
    comparisons: tuple[Comparison, ...]


def settle(touched: Sequence[frozenset[int]], networks: int, compare: Callable[[int, Offers], Comparison]) -> Settled:
    """``touched``: the networks that each offer touches; ``compare``: a network without and with some offers.

    Every network is compared with the offers that are left and touch it. Those that make no network faster go first;
    then, once the rest was compared without them, those that touch a network that is slower.
    """
    left: Offers = frozenset(range(len(touched)))
    known = [compare(network, _touching(network, left, touched)) for network in range(networks)]
    while (stay := _staying(left, touched, known)) != left:
        for network in range(networks):
            own, before = _touching(network, stay, touched), _touching(network, left, touched)
            if own and own != before:
                known[network] = compare(network, own)
            elif before and not own and known[network].is_kept:
                known[network] = replace(known[network], is_found=False)  # what it gained by is refused
        left = stay
    return Settled(left, tuple(known))


def _staying(left: Offers, touched: Sequence[frozenset[int]], known: Sequence[Comparison]) -> Offers:
    faster = {network for network, comparison in enumerate(known) if comparison.is_kept}
    slower = {network for network, comparison in enumerate(known) if comparison.is_slower}
    wanted: Offers = frozenset(offer for offer in left if touched[offer] & faster)
    return wanted if wanted != left else frozenset(offer for offer in left if not touched[offer] & slower)


def _touching(network: int, offers: Offers, touched: Sequence[frozenset[int]]) -> Offers:
    return frozenset(offer for offer in offers if network in touched[offer])
