"""Random decisions: tilings of a loop, and choices among candidates.

A decision is recorded in the trace, so that it can be replayed unchanged or changed (see ``replay``).
"""

from collections.abc import Iterator, Sequence
from random import Random

from tilewright.loops.program import Program
from tilewright.schedule.tree import LoopRef, loop_at, refuse
from tilewright.symbolic.expr import Const

_TRIES = 64


def sample_perfect_tile(
    program: Program, loop: LoopRef, parts: int, max_innermost: int, random: Random
) -> tuple[int, ...]:
    """``parts`` factors whose product is the extent of ``loop``; uniform over all with a small innermost factor.

    Refuses if the extent is not a positive constant, or no factorization has an innermost factor <= ``max_innermost``.
    """
    extent = _constant_extent(program, loop)
    for _ in range(_TRIES):
        factors = _random_factors(extent, parts, random)
        if factors[-1] <= max_innermost:
            return factors
    # Rare: the extent has one large prime factor. The innermost factor 1 is always allowed.
    return (*_random_factors(extent, parts - 1, random), 1) if parts > 1 else (extent,)


def check_perfect_tile(program: Program, loop: LoopRef, parts: int, decision: Sequence[int]) -> None:
    """Refuse ``decision`` if it is not a perfect tiling of ``loop`` in ``parts``."""
    product = 1
    for factor in decision:
        product *= factor
    if len(decision) != parts or min(decision) < 1 or product != _constant_extent(program, loop):
        raise refuse(f"{tuple(decision)} are not {parts} factors of the extent of `{loop}`", loop)


def sample_categorical(weights: Sequence[float], random: Random) -> int:
    """A position in ``weights``, with probability in proportion to the weight. Refuses without a positive weight."""
    if not weights or min(weights) < 0 or sum(weights) <= 0:
        raise refuse("the weights of a choice must not be negative, and at least one must be positive")
    return random.choices(range(len(weights)), weights)[0]


def _constant_extent(program: Program, loop: LoopRef) -> int:
    extent = loop_at(program, loop).stmt.extent
    if not isinstance(extent, Const) or extent.value < 1:
        raise refuse(f"`{loop}` has the extent {extent}; only a positive constant has perfect tilings", loop)
    return int(extent.value)


def _random_factors(number: int, parts: int, random: Random) -> tuple[int, ...]:
    """Uniform over the ordered factorizations: each prime's exponent is distributed by stars and bars."""
    factors = [1] * parts
    for prime, exponent in _prime_powers(number):
        bars = sorted(random.sample(range(exponent + parts - 1), parts - 1))
        edges = [-1, *bars, exponent + parts - 1]
        for position in range(parts):
            factors[position] *= prime ** (edges[position + 1] - edges[position] - 1)
    return tuple(factors)


def _prime_powers(number: int) -> Iterator[tuple[int, int]]:
    prime = 2
    while prime * prime <= number:
        exponent = 0
        while number % prime == 0:
            number //= prime
            exponent += 1
        if exponent:
            yield prime, exponent
        prime += 1
    if number > 1:
        yield number, 1
