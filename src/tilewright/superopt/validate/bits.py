"""Compares runs of two compiled graphs bit by bit, as ``math="strict"`` promises: rules must not change one.

Rules that are exact in an operator's floats may not be so in compiled code: another group of operators may be added in
another order, or contract another product and sum. Feeds are normal floats, floats of all magnitudes, and some that are
infinite, NaN, zeros with a sign, or the tiniest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

import numpy as np

from tilewright.base.arrays import has_same_bits
from tilewright.base.dtypes import DType, f16, f64
from tilewright.graph import Array, Graph
from tilewright.superopt.validate.validation import RUN_TIME_EXTENT, random_feeds
from tilewright.target.machine import GUESSED_EXTENT

Run: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]
"""Runs a compiled graph on inputs by name, and returns its outputs in order."""


class _Floats(Enum):
    """What the floats of a feed are."""

    NORMAL = "normal"
    OF_ALL_SIZES = "of all sizes"
    SPECIAL = "special"


_SEEDS, _MOST_SEEDS = 2, 24
_ENOUGH = 4096
"""Elements of outputs that are compared, if so many seeds suffice: few may be equal by chance."""
_SPECIAL = 0.03
"""The fraction of special elements: more would make all sums NaN."""
_EXPONENTS: Mapping[DType, int] = {f16: 12, f64: 300}
"""Of powers of two, by which elements are multiplied; of other floats 100."""


def differing(graph: Graph, before: Run, after: Run) -> str | None:
    """The name of the first output of which a bit differs; None if none does. NaN equals NaN.

    ``graph``: that of ``before``, whose inputs and outputs ``after`` has.
    """
    compared = 0
    for seed in range(_MOST_SEEDS):
        for feeds in telling_feeds(graph, seed):
            for output, old, new in zip(graph.outputs, before(feeds), after(feeds), strict=True):
                if not has_same_bits(old, new):
                    return output.name
                compared += old.size
        if seed + 1 >= _SEEDS and compared >= _ENOUGH:
            break
    return None


def telling_feeds(graph: Graph, seed: int) -> Iterator[dict[str, Array]]:
    """Feeds with floats of each kind, at one or two sizes of run-time extents."""
    for size in (RUN_TIME_EXTENT, GUESSED_EXTENT) if graph.extents else (RUN_TIME_EXTENT,):
        feeds = random_feeds(graph, seed, size)
        for kind in _Floats:
            random = np.random.default_rng(seed)
            yield {value.name: _drawn(value.dtype, feeds[value.name], kind, random) for value in graph.inputs}


def _drawn(dtype: DType, array: Array, kind: _Floats, random: np.random.Generator) -> Array:
    """``array`` of normal floats, or of small integers, which may be indices, with other elements."""
    if dtype.is_int and dtype.bits == _BYTE:
        return random.integers(int(dtype.min), int(dtype.max) + 1, array.shape).astype(dtype.numpy)
    if not dtype.is_float or kind is _Floats.NORMAL:
        return array
    wide = array.astype(np.float64)
    if kind is _Floats.OF_ALL_SIZES:
        most = _EXPONENTS.get(dtype, 100)
        wide *= 2.0 ** random.integers(-most, most + 1, array.shape)
    else:
        special = random.choice(_SPECIALS, array.shape)
        wide = np.where(random.random(array.shape) < _SPECIAL, special, wide)
    with np.errstate(over="ignore", under="ignore"):
        return wide.astype(dtype.numpy)


_BYTE = 8
_SPECIALS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -6e-8, 6e4, -3e38])
