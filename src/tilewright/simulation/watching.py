"""What is counted while code is emulated: how often each basic block runs, and which lines the caches lack."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewright.backend.cpu.llvm import compile_object
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.memory import Pages
from tilewright.simulation.emulator import Emulator
from tilewright.simulation.watching_text import ACCESS, BLOCK, LINE_BITS, TEXT
from tilewright.target.cores import Cache
from tilewright.target.target import Target

_WORD = 8
_HEAD = 512
"""Bytes before the tables in the memory that is counted in."""
_NEVER = (1 << 64) - 1
LINE = 1 << LINE_BITS


@cache
def _functions() -> LoadedImage:
    return load_image([compile_object(TEXT, Target.of(Target.host().arch))])


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: its place in the code, how often it ran, and how often it was reached by a jump back."""

    address: int
    bytes: int
    times: int
    backs: int


class Blocks:
    """Counts the blocks of the code at ``base``, which has ``size`` bytes."""

    def __init__(self, emulator: Emulator, base: int, size: int) -> None:
        self._base = base
        self._state = Pages(_HEAD + 3 * _WORD * (size // 4))
        self._head = np.frombuffer(self._state.view(), np.uint64, 7)
        self._head[:] = (base, size, 0, self._state.address + _HEAD, 0, _NEVER, emulator.stop)
        emulator.on_block(_functions().symbol(BLOCK), self._state)

    @property
    def instructions(self) -> int:
        """That ran."""
        return int(self._head[4]) // 4

    def stop_after(self, instructions: int) -> None:
        """Stop the emulator once so many have run, at the end of a block."""
        self._head[5] = 4 * instructions

    def found(self) -> Iterator[Block]:
        """The blocks that ran, by their addresses."""
        table = np.frombuffer(self._state.view(), np.int64, offset=_HEAD)
        rows = table[: len(table) // 3 * 3].reshape(-1, 3)
        for word in np.flatnonzero(rows[:, 0]):
            times, backs, size = map(int, rows[word])
            yield Block(self._base + 4 * int(word), size, times, backs)


@dataclass(frozen=True, slots=True)
class Misses:
    """Of one cache: lines that it lacked; ``streamed``: those of them that follow a line which it had."""

    all: float
    streamed: float

    def __sub__(self, other: "Misses") -> "Misses":
        return Misses(self.all - other.all, self.streamed - other.streamed)

    def and_more(self, other: "Misses", times: float) -> "Misses":
        """With those of ``other``, so many times."""
        return Misses(self.all + times * other.all, self.streamed + times * other.streamed)


class Caches:
    """Two caches, empty at first, each of which evicts what was not used for longest."""

    def __init__(self, emulator: Emulator, near: Cache, far: Cache) -> None:
        shapes = [_shape(cache) for cache in (near, far)]
        words = [sets * ways for sets, ways in shapes]
        self._state = Pages(_HEAD + _WORD * sum(words))
        self._head = np.frombuffer(self._state.view(), np.int64, 11)
        table = self._state.address + _HEAD
        for place, ((sets, ways), count) in enumerate(zip(shapes, words, strict=True)):
            self._head[1 + 5 * place : 4 + 5 * place] = (sets - 1, ways, table)
            table += _WORD * count
        emulator.on_access(_functions().symbol(ACCESS), self._state)

    def found(self) -> tuple[Misses, Misses]:
        """What the near cache lacked, and what the far one lacked of that."""
        near, far = (Misses(int(self._head[at]), int(self._head[at + 1])) for at in (4, 9))
        return near, far


def _shape(cache: Cache) -> tuple[int, int]:
    """Sets, a power of two, and ways of about as many bytes."""
    sets = 1 << max(0, (cache.bytes // (LINE * cache.ways)).bit_length() - 1)
    return sets, max(1, cache.bytes // (LINE * sets))
