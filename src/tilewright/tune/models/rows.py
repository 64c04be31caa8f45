"""Measured candidates as a model learns from them: whatever belongs to a candidate moves with it.

AutoTVM shuffled candidates and labels but not the margins, so that they stood beside the wrong candidates; here nobody
selects or shuffles one array alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import BadInput
from tilewright.tune.models.model import FloatArray, Measured, relative

Indices: TypeAlias = NDArray[np.int64]

_HELD_OUT = 0.2
_LEAST_HELD_OUT = 4  # rows; the loss on fewer says nothing


@dataclass(frozen=True, slots=True)
class Rows:
    """Candidates and all that belongs to each."""

    features: FloatArray
    """(candidates, features)."""
    labels: FloatArray
    """(candidates,), in [0, 1]; comparable within a task only."""
    tasks: Indices
    """(candidates,): the number of the task that each belongs to; ascending."""
    margins: FloatArray
    """(candidates,): scores that a model's own are added to."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Rows":
        """Some of the rows."""
        return Rows(self.features[indices], self.labels[indices], self.tasks[indices], self.margins[indices])

    @property
    def tell_apart(self) -> bool:
        """Whether two candidates of one task have different labels: without that there is nothing to learn."""
        same_task = np.diff(self.tasks) == 0
        return bool(np.any(same_task & (np.diff(self.labels) != 0)))


def rows_of(history: Sequence[Measured], margins: FloatArray | None = None) -> Rows:
    """The rows of all tasks, each with labels relative to its best candidate; margins are 0 where none are given.

    Raises ``BadInput`` if the arrays don't fit each other.
    """
    if not history:
        return Rows(np.zeros((0, 0)), np.zeros(0), np.zeros(0, np.int64), np.zeros(0))
    for measured in history:
        _check_fits(measured.features, "throughputs", measured.throughputs)
    if len(widths := {measured.features.shape[1] for measured in history}) > 1:
        raise BadInput(f"the tasks of a history must have equally many features, not {sorted(widths)}")
    features = np.concatenate([measured.features for measured in history])
    if margins is not None:
        _check_fits(features, "margins", margins)
    return Rows(
        features,
        np.concatenate([relative(measured.throughputs) for measured in history]),
        np.repeat(np.arange(len(history)), [len(measured.features) for measured in history]),
        np.zeros(len(features)) if margins is None else margins,
    )


def check_width(features: FloatArray, width: int) -> None:
    """Raise ``BadInput`` unless these are candidates with as many features as those that a model was fitted on."""
    if features.ndim != 2 or features.shape[1] != width:
        raise BadInput(f"features must have the shape (candidates, {width}) as in the fit, not {features.shape}")


def split(rows: Rows, generator: np.random.Generator) -> tuple[Rows, Rows] | None:
    """A part to learn from and one, a fifth at random, to try it on; ``None`` if there are too few rows for that."""
    held_out = int(len(rows) * _HELD_OUT)
    if held_out < _LEAST_HELD_OUT:
        return None
    shuffled = generator.permutation(len(rows))
    # Sorted, as the rows of a task must stay together.
    return rows.take(np.sort(shuffled[held_out:])), rows.take(np.sort(shuffled[:held_out]))


def _check_fits(features: FloatArray, name: str, values: FloatArray) -> None:
    if features.ndim != 2 or values.shape != features.shape[:1]:
        raise BadInput(
            f"features must have the shape (candidates, features) and {name} (candidates,); "
            f"they have {features.shape} and {values.shape}"
        )
