"""``Timeline``: when the kernels of one run, and the chunks of its parallel loops, began and ended."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.base.arrays import Array

MOST_CHUNKS: Final = 1 << 16
"""Chunks of a run that are listed."""
_HEAD: Final = 2
_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a parallel loop: the worker that ran it (0 is the caller's thread), and the nanoseconds of a clock."""

    worker: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run, in nanoseconds of the system's monotonic clock."""

    begin: int
    ends: tuple[int, ...]
    """The end of each of the manifest's calls; each begins at the end of the one before."""
    chunks: tuple[Chunk, ...]
    """The chunks that the pool ran, in order. Loops that the caller runs alone have none."""


def new_list() -> Array:
    """An empty list of chunks, as ``runtime.abi`` describes it."""
    array = np.zeros(_HEAD + _WORDS * MOST_CHUNKS, np.int64)
    array[1] = MOST_CHUNKS
    return array


def timeline(times: Array, listed: Array) -> Timeline:
    """The run of which native code made these: ``times`` of the clock and the calls, and the list of chunks."""
    last, *passed = (int(number) for number in times)
    ends = [last]
    for duration in reversed(passed):
        ends.append(ends[-1] - duration)
    count = min(int(listed[0]), MOST_CHUNKS)
    rows = listed[_HEAD : _HEAD + _WORDS * count].reshape(count, _WORDS)
    chunks = sorted((Chunk(*(int(number) for number in row)) for row in rows), key=lambda chunk: chunk.begin)
    return Timeline(ends.pop(), tuple(reversed(ends)), tuple(chunks))
