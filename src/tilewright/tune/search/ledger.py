"""The taken (proposed or learned) candidates of a searcher, which are never proposed again; and random other ones."""

import numpy as np

from tilewright.space.space import Digits, Mask, Searchable, size

_ENUMERABLE = 1 << 20
"""Size of a space that is enumerated when random candidates no longer find the rest."""
_FEW_DRAWS, _MANY_DRAWS = 1 << 12, 1 << 20
"""Minimum number of random attempts: in a space that can be enumerated, and in a larger one."""
_SMALL_CHUNK, _CHUNK = 1 << 8, 1 << 14
"""Number of candidates examined at once."""


class Ledger:
    """The candidates of ``space`` that are taken.

    The state and the random numbers depend only on the learned and the pending candidates: a searcher that has learned
    the same continues in the same way, also in another process.
    """

    def __init__(self, space: Searchable, seed: int) -> None:
        self.space = space
        self.radices = np.array(space.radices, np.int64)
        self._seed = seed
        self._taken: set[bytes] = set()
        self._pending: set[bytes] = set()
        self._learned = 0

    def generator(self) -> np.random.Generator:
        """The random generator for the next proposal."""
        return np.random.default_rng((self._seed, self._learned, len(self._pending)))

    def propose(self, digits: Digits) -> Digits:
        """Mark proposed candidates as taken; returns them."""
        keys = keys_of(digits)
        self._taken.update(keys)
        self._pending.update(keys)
        return digits

    def learn(self, digits: Digits) -> None:
        """Mark measured candidates as taken."""
        keys = keys_of(digits)
        self._taken.update(keys)
        self._pending.difference_update(keys)
        self._learned += len(digits)

    def untaken(self, digits: Digits) -> Mask:
        """Which candidates are not taken, allowed or not; of equal ones the first."""
        met: set[bytes] = set()
        mask = np.zeros(len(digits), np.bool_)
        for position, key in enumerate(keys_of(digits)):
            mask[position] = key not in self._taken and key not in met
            met.add(key)
        return mask

    def available(self, digits: Digits) -> Digits:
        """The candidates that may be proposed: allowed and not taken; of equal ones the first."""
        allowed = digits[self.space.allowed(digits)]
        return allowed[self.untaken(allowed)]

    def draw(self, count: int, random: np.random.Generator) -> Digits:
        """Up to ``count`` different available candidates, uniformly at random, without marking them as taken.

        Fewer only if no more exist, or, in a space of more than a million candidates, if a million random ones found no
        more.
        """
        large = size(self.space) > _ENUMERABLE
        found = self._tried(count, _MANY_DRAWS if large else _FEW_DRAWS, random)
        if len(found) == count or large:
            return found
        rest = self._enumerated()
        return rest[random.permutation(len(rest))[:count]]

    def _tried(self, count: int, draws: int, random: np.random.Generator) -> Digits:
        found = np.empty((0, len(self.radices)), np.int64)
        if self.radices.size and not self.radices.min():
            return found
        chunk = min(max(4 * count, _SMALL_CHUNK), _CHUNK)
        for _ in range(0, max(draws, 4 * count), chunk):
            if len(found) >= count:
                break
            tried = self.space.sample(chunk, random)
            found = self.available(np.concatenate([found, tried]))
        return found[:count]

    def _enumerated(self) -> Digits:
        total = size(self.space)
        starts = range(0, total, _CHUNK)
        chunks = [consecutive(start, min(_CHUNK, total - start), self.space.radices) for start in starts]
        found = [self.available(chunk) for chunk in chunks]
        return np.concatenate([np.empty((0, len(self.radices)), np.int64), *found])


def keys_of(digits: Digits) -> list[bytes]:
    """A unique key for each candidate."""
    return [row.tobytes() for row in np.ascontiguousarray(digits)]


def consecutive(start: int, count: int, radices: tuple[int, ...]) -> Digits:
    """The candidates with the indices from ``start`` on, ``(count, knobs)``; indices may be beyond 64 bits."""
    digits = np.empty((count, len(radices)), np.int64)
    carry = np.arange(count)
    for knob, radix in enumerate(radices):
        start, digit = divmod(start, radix)
        carry, digits[:, knob] = np.divmod(carry + digit, radix)
    return digits
