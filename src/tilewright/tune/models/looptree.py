"""The layout of a candidate's features over the loops of its program, for models over loops."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import BadInput
from tilewright.tune.models.model import FloatArray


@dataclass(frozen=True, slots=True)
class LoopTree:
    """The loops of all candidates of a structure, outer ones first, with a context vector for each.

    The features of a candidate are the context vectors in this order; missing loops are NaN. Raises ``BadInput`` if a
    loop comes before the one around it.
    """

    parents: tuple[int | None, ...]
    """The loop directly around each one; ``None``: the root."""
    per_loop: int
    """The length of a context vector."""

    def __post_init__(self) -> None:
        if any(parent is not None and not 0 <= parent < loop for loop, parent in enumerate(self.parents)):
            raise BadInput(f"each loop must come after the one around it; the parents are {self.parents}")

    @classmethod
    def chain(cls, loops: int, per_loop: int) -> "LoopTree":
        """A perfect nest."""
        return cls(tuple(loop - 1 if loop else None for loop in range(loops)), per_loop)

    @property
    def width(self) -> int:
        """The number of features of a candidate."""
        return len(self.parents) * self.per_loop

    def contexts(self, features: FloatArray) -> FloatArray:
        """(candidates, loops, per_loop) from (candidates, width)."""
        return features.reshape(len(features), len(self.parents), self.per_loop)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a network."""

    embedding: int = 128
    hidden: int = 128
    slots: int = 4


@dataclass(frozen=True, slots=True)
class Scaling:
    """Normalizes context features: (per_loop,) each, equal for all loops."""

    mean: FloatArray
    deviation: FloatArray

    @classmethod
    def of(cls, contexts: FloatArray) -> "Scaling":
        """By mean and standard deviation over all present loops; constant features become 0."""
        known = ~np.isnan(contexts)
        count = np.maximum(known.sum(axis=(0, 1)), 1)
        mean = np.where(known, contexts, 0.0).sum(axis=(0, 1)) / count
        variance = np.where(known, (contexts - mean) ** 2, 0.0).sum(axis=(0, 1)) / count
        return cls(mean, np.where(variance > 1e-12, np.sqrt(variance), 1.0))

    def scaled(self, contexts: FloatArray) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(candidates, loops, per_loop), 0 for unknown values; and (candidates, loops), 1 for present loops."""
        present = np.asarray(~np.isnan(contexts).all(axis=2), np.float32)
        values = np.where(np.isfinite(contexts), (contexts - self.mean) / self.deviation, 0.0)
        return values.astype(np.float32), present
