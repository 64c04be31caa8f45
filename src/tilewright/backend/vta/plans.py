"""The order in which NumPy can run the micro-ops of one instruction: many at once, with the result of one by one.

GEMM only adds to accumulators, modulo 2^32, and reads none: products may be added in any order. All micro-ops with one
``dst`` become one sum; accumulators whose sums have the same wgt tiles become the rows of one matrix product. ALU reads
what it wrote, so its micro-ops are run in *levels*: those of a level do not depend on each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.backend.vta.footprints import Indices, Steps


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """``acc[dst[i]] += sum over k of inp[src[i, k]] @ wgt[wgt[k]].T``; no dst occurs twice."""

    dst: Indices
    """(n,)"""
    src: Indices
    """(n, k)"""
    wgt: Indices
    """(k,)"""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """``acc[dst[i]] = f(acc[dst[i]], acc[src[i]])`` for all ``i`` at once."""

    dst: Indices
    src: Indices


def sums_of(taken: Steps) -> tuple[Sums, ...]:
    """The micro-ops of GEMM as sums."""
    if not len(taken.dst):
        return ()
    order = np.lexsort((taken.src, taken.wgt, taken.dst))
    dst, src, wgt = taken.dst[order], taken.src[order], taken.wgt[order]
    starts = np.flatnonzero(np.concatenate(([True], dst[1:] != dst[:-1])))
    counts = np.diff(np.append(starts, len(dst)))
    found: list[Sums] = []
    for count in np.unique(counts):
        chosen = starts[counts == count]
        members: Indices = chosen[:, None] + np.arange(int(count), dtype=np.int64)
        for rows in _equal_rows(wgt[members]):
            found.append(Sums(dst[chosen[rows]], src[members[rows]], wgt[members[rows[0]]]))
    return tuple(found)


def _equal_rows(rows: Indices) -> Iterator[Indices]:
    """The numbers of equal rows, group after group."""
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    changes = np.flatnonzero(np.any(ordered[1:] != ordered[:-1], axis=1)) + 1
    yield from np.split(order, changes)


def levels_of(taken: Steps, use_immediate: bool) -> tuple[Level, ...]:
    """The micro-ops of ALU as levels, one after another."""
    if not len(taken.dst):
        return ()
    src = taken.dst if use_immediate else taken.src
    chained = np.any(np.isin(src, taken.dst) & (src != taken.dst))
    numbers = _numbers_of_chains(taken.dst, src) if chained else _occurrences(taken.dst)
    order = np.argsort(numbers, kind="stable")
    changes = np.flatnonzero(np.diff(numbers[order])) + 1
    return tuple(Level(taken.dst[rows], src[rows]) for rows in np.split(order, changes))


def _occurrences(values: Indices) -> Indices:
    """How many equal values stand before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return numbers


def _numbers_of_chains(dst: Indices, src: Indices) -> Indices:
    """The level of each micro-op where some read what others write: one after all whose order matters to it."""
    after_writes = np.zeros(int(max(dst.max(), src.max())) + 1, np.int64)
    after_reads = np.zeros_like(after_writes)
    numbers = np.empty(len(dst), np.int64)
    for position, (to, source) in enumerate(zip(dst.tolist(), src.tolist(), strict=True)):
        level = max(after_writes[to], after_reads[to], after_writes[source])
        numbers[position] = level
        after_writes[to] = level + 1
        after_reads[source] = max(after_reads[source], level + 1)
    return numbers
