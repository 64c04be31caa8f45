"""The time of a compiled model, in all and by layer."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tilewright.base.arrays import Array
from tilewright.compilation import Compiled
from tilewright.insight.profile import profile

SECONDS = 1.0
"""Length of the measurement of a model."""


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of one run: of the ``whole``, and of the kernels of each of ``layers``, by name."""

    whole: float
    layers: Mapping[str, float]


def times_of(compiled: Compiled, feeds: Mapping[str, Array], layers: Collection[str]) -> Times:
    """The times of a model on ``feeds``. A kernel counts for the one of ``layers`` (their names) that it computes."""
    found = profile(compiled.executable, feeds, compiled, seconds=SECONDS)
    times: dict[str, float] = defaultdict(float)
    for kernel in found.kernels:
        layer = next((node for node in kernel.nodes if node in layers), None)
        if layer is not None:
            times[layer] += kernel.microseconds
    return Times(found.microseconds, times)
