"""``Searcher``: proposes candidates, and learns how fast they were."""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.space.space import Digits

FloatArray: TypeAlias = NDArray[np.float64]
"""(candidates,)."""


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
