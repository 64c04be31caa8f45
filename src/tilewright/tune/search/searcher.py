"""``Searcher``: proposes candidates, and learns from their throughputs."""

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tilewright.space.space import Candidates, Digits

FloatArray: TypeAlias = NDArray[np.float64]
"""Throughputs, (candidates,)."""
Score: TypeAlias = Callable[[Digits], FloatArray]
"""Scores of candidates, ``(candidates,)``: larger is better. Finite, and may be negative."""


class Searcher(Protocol):
    """A search strategy in a space. The same seed and the same calls give the same proposals."""

    def propose(self, count: int) -> Digits:
        """Up to ``count`` candidates, ``(candidates, knobs)``, never proposed before; fewer if the space is exhausted.

        Only allowed ones, and none passed to ``learn`` before.
        """
        ...

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Learn measurements: ``(candidates, knobs)``, and the throughput of each; 0 for failures.

        Candidates that were never proposed are allowed, such as those of an earlier search.
        """
        ...


@runtime_checkable
class Searching(Protocol):
    """A kind of search: creates a searcher for each space. For ``Setup.search``, or an entry point."""

    @property
    def asks_a_model(self) -> bool:
        """Whether it needs a fitted cost model."""
        ...

    def searcher(self, space: Candidates, score: Score, seed: int) -> Searcher:
        """A searcher of ``space``; ``score`` rates candidates by the data at the time of the call."""
        ...
