"""Winograd's minimal filtering F(m, r): ``m`` outputs of a filter with ``r`` taps from ``m + r - 1`` products.

``y = A^T [ (G g) * (B^T d) ]`` for ``m`` outputs ``y``, ``m + r - 1`` inputs ``d`` and a filter ``g``: polynomials are
multiplied by their values at ``m + r - 2`` points and at infinity (Toom and Cook; Winograd, "Arithmetic Complexity of
Computations", 1980). With a stride ``s``, each ``s``-th tap and input are a filter without one, and results are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.polynomial.polynomial import polyfromroots
from numpy.typing import NDArray

from tilewright.base.errors import BadProgram

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Filtering:
    """The algorithm for ``outputs`` outputs per tile of ``taps`` taps, and its matrices ``B^T``, ``A^T`` and ``G``.

    ``most_points``: those of the largest polynomial, on which errors depend.
    """

    outputs: int
    taps: int
    input: Matrix
    output: Matrix
    filter: Matrix
    stride: int = 1
    most_points: int = 1

    @property
    def points(self) -> int:
        """Inputs of a tile, and number of products."""
        return len(self.input)


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
    return Filtering(outputs, taps, data, result, weight, most_points=points)


def _of_phases(outputs: int, taps: int, stride: int) -> Filtering:
    phases = [filtering(outputs, count) for count in _phases(taps, stride)]
    points = sum(phase.points for phase in phases)
    data, result, weight = np.zeros((points, points)), np.zeros((outputs, points)), np.zeros((points, taps))
    first = 0
    for start, phase in enumerate(phases):
        rows = slice(first, first + phase.points)
        data[rows, start : start + stride * phase.points : stride] = phase.input
        result[:, rows] = phase.output
        weight[rows, start::stride] = phase.filter
        first += phase.points
    return Filtering(outputs, taps, data, result, weight, stride, max(phase.most_points for phase in phases))


def _phases(taps: int, stride: int) -> list[int]:
    """The taps of each phase."""
    return [len(range(start, taps, stride)) for start in range(stride)]


_ROOTS: Mapping[int, tuple[float, ...]] = MappingProxyType(
    {
        3: (0.0, 1.0),
        4: (0.0, 1.0, -1.0),
        6: (0.0, 0.625, -0.625, 1.5, -1.5),
        8: (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0),
        10: (0.0, 0.375, -0.375, 0.75, -0.75, 1.25, -1.25, 2.5, -2.5),
    }
)
"""Finite interpolation points, by the number of all points. With the six of F(4, 3), errors are 2.4 times smaller than
at 0, 1, -1, 2, -2; the eight and ten are among the best of multiples of 1/8. All entries of the data's and the results'
matrices are exact. On the choice of points: Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks" (2020)."""


def has_filtering(outputs: int, taps: int, stride: int = 1) -> bool:
    """Whether there is an algorithm for so many, and this stride."""
    if stride > 1:
        return stride <= taps and all(has_filtering(outputs, count) for count in _phases(taps, stride))
    return outputs >= 1 and (taps == 1 or (taps > 1 and outputs + taps - 1 in _ROOTS))


@cache
def filtering(outputs: int, taps: int, stride: int = 1) -> Filtering:
    """F(outputs, taps), of one tap the identity. Raises ``BadProgram`` if there is none for so many."""
    if not has_filtering(outputs, taps, stride):
        what = f"{outputs} outputs and {taps} taps with a stride of {stride}"
        raise BadProgram(f"there is no minimal filtering of {what}")
    if stride > 1:
        return _of_phases(outputs, taps, stride)
    if taps == 1:
        return Filtering(outputs, taps, np.eye(outputs), np.eye(outputs), np.ones((outputs, 1)))
    return _toom_cook(outputs, taps, _ROOTS[outputs + taps - 1])
