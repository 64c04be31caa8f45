"""Grid search: all candidates in the order of their indices, the first knob fastest."""

import numpy as np

from tilewright.space.space import Digits, Searchable, size
from tilewright.tune.search.ledger import Ledger, consecutive
from tilewright.tune.search.searcher import FloatArray

_CHUNK = 1 << 12


class GridSearcher:
    """Enumerates a space (``Searcher``), for spaces that are measured completely."""

    def __init__(self, space: Searchable) -> None:
        self._ledger = Ledger(space, seed=0)
        self._next = 0

    def propose(self, count: int) -> Digits:
        """The next candidates that are allowed and not measured."""
        found = np.empty((0, len(self._ledger.radices)), np.int64)
        total = size(self._ledger.space)
        while len(found) < count and self._next < total:
            found = np.concatenate([found, self._advance(count - len(found), total)])
        return self._ledger.propose(found)

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Marks them as measured."""
        self._ledger.learn(digits)

    def _advance(self, count: int, total: int) -> Digits:
        """Up to ``count`` candidates from a range of indices, possibly none."""
        chunk = consecutive(self._next, min(_CHUNK, total - self._next), self._ledger.space.radices)
        positions = np.flatnonzero(self._ledger.space.allowed(chunk) & self._ledger.untaken(chunk))[:count]
        self._next += int(positions[-1]) + 1 if len(positions) == count else len(chunk)
        return chunk[positions]
