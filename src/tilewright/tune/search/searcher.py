"""``Searcher``: proposes candidates, and learns how fast they were."""

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tilewright.space.space import Digits, Searchable

FloatArray: TypeAlias = NDArray[np.float64]
"""(candidates,)."""
Score: TypeAlias = Callable[[Digits], FloatArray]
"""How good candidates are thought to be, ``(candidates,)``: more is better. Finite, and may be negative."""


class Searcher(Protocol):
    """A way through a space. The same seed and the same calls give the same proposals."""

    def propose(self, count: int) -> Digits:
        """Up to ``count`` candidates, ``(candidates, knobs)``, never proposed before; fewer if the space is exhausted.

        Only allowed ones, and none that ``learn`` was told about.
        """
        ...

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """What was measured: ``(candidates, knobs)``, and for each how much it computes in a second; 0 for failures.

        Candidates that were never proposed are welcome, such as those of an earlier search.
        """
        ...


@runtime_checkable
class Searching(Protocol):
    """A kind of search: makes a searcher for each space. What is given as ``Setup.search``, or installed."""

    @property
    def asks_a_model(self) -> bool:
        """Whether a cost model is to be fitted, so that scores say something."""
        ...

    def searcher(self, space: Searchable, score: Score, seed: int) -> Searcher:
        """A searcher of ``space``; ``score`` rates candidates by what is known when it is called."""
        ...
