"""Knobs: the open decisions of a template, each with its values.

The values of a split follow AutoTVM (Chen et al., NeurIPS 2018): the sizes of the inner loops are enumerated, and the
outermost one is derived. 128 iterations have eight splits into two parts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import product
from math import prod
from typing import Generic, TypeAlias, TypeVar

from tilewright.base.errors import BadInput
from tilewright.loops.ir import LoopKind

Sizes: TypeAlias = tuple[int, ...]
"""Extents of the loops that one loop is split into, outermost first."""
Permutation: TypeAlias = tuple[int, ...]
"""Positions in the old order, in the new order."""
Kinds: TypeAlias = tuple[LoopKind, ...]
"""A kind for each of some loops; ``SERIAL``: unchanged."""
Value: TypeAlias = Sizes | Permutation | Kinds | int


def spelled(value: Value) -> str:
    """``value`` as a person reads it: ``64, 4, 1``."""
    items = value if isinstance(value, tuple) else (value,)
    return ", ".join(item.value if isinstance(item, LoopKind) else str(item) for item in items)


T_co = TypeVar("T_co", bound=Value, covariant=True)


@dataclass(frozen=True, slots=True)
class Knob(Generic[T_co]):
    """An open decision. Raises ``BadInput`` if there are no values."""

    name: str
    values: tuple[T_co, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInput(f"knob {self.name!r} has no value; relax its filter, or list candidates")


class Policy(Enum):
    """Sizes allowed for the inner loops of a split."""

    FACTORS = "factors"
    """Those whose product divides the extent: no tails."""
    POWER2 = "power2"
    """Powers of two."""
    VERBOSE = "verbose"
    """Factors of the extent and powers of two."""
    CANDIDATE = "candidate"
    """Listed sizes."""


def split_knob(
    name: str,
    extent: int,
    parts: int,
    policy: Policy = Policy.FACTORS,
    *,
    candidates: Sequence[Sizes] = (),
    max_factor: int | None = None,
    filter: Callable[[Sizes], bool] | None = None,
    no_tail: bool = False,
) -> Knob[Sizes]:
    """The splits of ``extent`` iterations into ``parts`` nested loops.

    ``candidates``, for ``Policy.CANDIDATE`` only, are the sizes of the ``parts - 1`` inner loops. No inner loop has
    more than ``max_factor`` iterations; ``filter`` selects sizes, the outermost included; ``no_tail`` keeps those whose
    product is ``extent``. Raises ``BadInput`` for contradictory arguments.
    """
    if extent < 1 or parts < 1:
        raise BadInput(f"knob {name!r} can't split {extent} iterations into {parts} parts: both must be positive")
    if bool(candidates) != (policy is Policy.CANDIDATE):
        raise BadInput(f"knob {name!r}: candidates are given with Policy.CANDIDATE, and with it only")
    if any(len(sizes) != parts - 1 or min(sizes, default=1) < 1 for sizes in candidates):
        raise BadInput(f"knob {name!r}: a candidate has {parts - 1} positive sizes, those of the inner loops")
    inner = tuple(candidates) or _inner_sizes(extent, parts - 1, policy)
    small = [sizes for sizes in inner if max_factor is None or max(sizes, default=1) <= max_factor]
    everything = [_with_outermost(sizes, extent) for sizes in small]
    exact = [sizes for sizes in everything if not no_tail or prod(sizes) == extent]
    return Knob(name, tuple(sizes for sizes in exact if filter is None or filter(sizes)))


def annotate_knob(name: str, loops: int, kinds: Kinds) -> Knob[Kinds]:
    """One of ``kinds`` for each of several loops, of which at most one is vectorized."""
    everything = product(dict.fromkeys(kinds), repeat=loops)
    return Knob(name, tuple(chosen for chosen in everything if chosen.count(LoopKind.VECTORIZED) <= 1))


def choice_knob(name: str, values: Sequence[int]) -> Knob[int]:
    """One of ``values``."""
    return Knob(name, tuple(dict.fromkeys(values)))


@lru_cache(maxsize=256)  # a template requests the same splits at each run
def _inner_sizes(extent: int, loops: int, policy: Policy) -> tuple[Sizes, ...]:
    return tuple(_products(_numbers(extent, policy), extent, loops, exact=policy is Policy.FACTORS))


def _products(numbers: Sequence[int], extent: int, count: int, exact: bool) -> Iterator[Sizes]:
    """Tuples of the ascending ``numbers`` with a product of at most ``extent``; ``exact``: that divides it."""
    if count == 0:
        yield ()
        return
    for number in numbers:
        if number > extent:
            return
        if not exact or extent % number == 0:
            yield from ((number, *rest) for rest in _products(numbers, extent // number, count - 1, exact))


def _numbers(extent: int, policy: Policy) -> tuple[int, ...]:
    factors = {number for number in range(1, extent + 1) if extent % number == 0}
    powers = {1 << exponent for exponent in range(extent.bit_length())}
    found = {Policy.FACTORS: factors, Policy.POWER2: powers, Policy.VERBOSE: factors | powers}
    return tuple(sorted(found[policy]))


def _with_outermost(inner: Sizes, extent: int) -> Sizes:
    return (-(-extent // prod(inner)), *inner)
