"""The values of many indices at once: ``touched.Values`` over arrays, for populations of candidates."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
_SHIFT = 31
"""Bits of a count, beside a factor, in one number that is sorted by."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of factors, each times a number from 0 on that is below a count: arrays (candidates,)."""

    terms: tuple[tuple[Ints, Ints], ...]
    extent: Ints
    """Values are below it."""


@dataclass(frozen=True, slots=True)
class ManyValues:
    """How many values, and how far the last one is from the first one: (sums, candidates)."""

    counts: Ints
    spans: Ints


def values_of(sums: Sequence[Sum], candidates: int) -> ManyValues:
    """The values of all ``sums``."""
    found = ManyValues(np.ones((len(sums), candidates), np.int64), np.zeros((len(sums), candidates), np.int64))
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for position, one in enumerate(sums):
        by_size[len(one.terms)].append(position)
    for size, positions in by_size.items():
        if size:
            chosen = [sums[position] for position in positions]
            keys = np.array([[(f << _SHIFT) | c for f, c in one.terms] for one in chosen]).transpose(1, 0, 2)
            extents = np.array([one.extent for one in chosen])
            found.counts[positions], found.spans[positions] = _added_up(_sorted(keys), extents)
    return found


def _sorted(keys: Ints) -> Ints:
    """(terms, sums, candidates): smaller ones first, by exchanging neighbours: terms are few."""
    if len(keys) > 1:
        for last in range(len(keys) - 1, 0, -1):
            for place in range(last):
                low = np.minimum(keys[place], keys[place + 1])
                np.maximum(keys[place], keys[place + 1], out=keys[place + 1])
                keys[place] = low
    return keys


def _added_up(keys: Ints, extents: Ints) -> tuple[Ints, Ints]:
    """``Values.plus`` of one term after the other, and clipped."""
    count, span, step = np.ones_like(extents), np.zeros_like(extents), np.zeros_like(extents)
    for key in keys:
        factor, times = key >> _SHIFT, key & ((1 << _SHIFT) - 1)
        is_added = (times > 1) & (factor > 0)
        common = _gcd(step, factor)
        most = span // np.maximum(common, 1) + factor * (times - 1) // np.maximum(common, 1) + 1
        is_dense = (common == step) & ((count - 1) * step == span)
        apart: Ints = count * times
        is_apart = (count == 1) | (factor > span)
        together: Ints = np.where(is_apart, apart, np.where(is_dense, most, np.minimum(most, apart)))
        count = np.where(is_added, together, count)
        step = np.where(is_added, common, step)
        span = span + np.where(is_added, factor * (times - 1), 0)
    return np.minimum(count, extents), np.minimum(span, extents - 1)


def _gcd(step: Ints, factor: Ints) -> Ints:
    """``np.gcd``, which is slow, where neither is a multiple of the other only."""
    result = np.where(step == 0, factor, step)
    is_hard = (step != 0) & (factor % np.maximum(step, 1) != 0)
    if is_hard.any():
        result[is_hard] = np.gcd(step[is_hard], factor[is_hard])
    return result
