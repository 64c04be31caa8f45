"""A batch that is good and diverse: Equation 3 of Chen et al., NeurIPS 2018."""

import numpy as np

from tilewright.space.space import Digits, Mask
from tilewright.tune.search.searcher import FloatArray


def select_diverse(digits: Digits, scores: FloatArray, count: int, diversity: float) -> Digits:
    """``count`` of the candidates (or all), chosen greedily, best first, for what the batch is worth: the sum
    of its scores, and ``diversity`` for each different value of each knob.

    The objective is submodular: if no score is negative, the result has at least ``1 - 1/e`` of the optimum (Nemhauser
    et al., 1978). Adding a constant to all scores changes nothing.
    """
    offsets = _offsets(digits)
    used: Mask = np.zeros(int(offsets.max(initial=-1)) + 1, np.bool_)
    left = scores.astype(np.float64)  # a copy
    chosen: list[int] = []
    for _ in range(min(count, len(digits))):
        gains = left + diversity * (~used[offsets]).sum(axis=1)
        chosen.append(int(np.argmax(gains)))
        left[chosen[-1]] = -np.inf
        used[offsets[chosen[-1]]] = True
    return digits[chosen]


def _offsets(digits: Digits) -> Digits:
    """For each candidate and knob the index of the value in a list of all values of all knobs."""
    radices = digits.max(axis=0, initial=0) + 1
    return digits + np.cumsum(radices) - radices
