"""Winograd's minimal filtering F(m, r): ``m`` outputs of a filter with ``r`` taps from ``m + r - 1`` products.

``y = A^T [ (G g) * (B^T d) ]`` for ``m`` outputs ``y``, ``m + r - 1`` inputs ``d`` and a filter ``g``: polynomials are
multiplied by their values at ``m + r - 2`` points and at infinity (Toom and Cook; Winograd, "Arithmetic Complexity of
Computations", 1980).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.polynomial.polynomial import polyfromroots
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Filtering:
    """The algorithm for ``outputs`` outputs per tile of ``taps`` taps, and its matrices ``B^T``, ``A^T`` and ``G``."""

    outputs: int
    taps: int
    input: Matrix
    output: Matrix
    filter: Matrix

    @property
    def points(self) -> int:
        """Inputs of a tile, and number of products."""
        return self.outputs + self.taps - 1


def _toom_cook(outputs: int, taps: int, roots: Sequence[float]) -> Filtering:
    points = outputs + taps - 1
    data, result, weight = np.zeros((points, points)), np.zeros((outputs, points)), np.zeros((points, taps))
    for row, root in enumerate(roots):
        others = [other for other in roots if other != root]
        data[row, :-1] = polyfromroots(others)
        result[:, row] = root ** np.arange(outputs)
        weight[row] = root ** np.arange(taps) / np.prod(root - np.array(others))
    data[-1] = polyfromroots(roots)
    result[-1, -1] = weight[-1, -1] = 1.0
    return Filtering(outputs, taps, data, result, weight)


FILTERINGS: Mapping[int, Filtering] = MappingProxyType(
    {
        2: _toom_cook(2, 3, (0.0, 1.0, -1.0)),
        3: _toom_cook(3, 2, (0.0, 1.0, -1.0)),
        4: _toom_cook(4, 3, (0.0, 0.625, -0.625, 1.5, -1.5)),
    }
)
"""Interpolation points by number of outputs. At the points of F(4, 3), errors are 2.4 times smaller than at 0, 1, -1,
2, -2; all entries of the matrices are exact. On the choice of points: Barabasz et al., "Error Analysis and Improving
the Accuracy of Winograd Convolution for Deep Neural Networks" (2020)."""
