"""Training rows: measured candidates with labels, tasks and margins, selected and shuffled together.

AutoTVM shuffled candidates and labels but not the margins, which then belonged to wrong candidates; this class prevents
that.
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
_LEAST_HELD_OUT = 4  # minimum rows of a held-out part


@dataclass(frozen=True, slots=True)
class Rows:
    """Candidates and all their data."""

    features: FloatArray
    """(candidates, features)."""
    labels: FloatArray
    """(candidates,), in [0, 1]; comparable within a task only."""
    tasks: Indices
    """(candidates,): the task number of each; ascending."""
    margins: FloatArray
    """(candidates,): scores to which a model's own are added."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Rows":
        """Some of the rows."""
        return Rows(self.features[indices], self.labels[indices], self.tasks[indices], self.margins[indices])

    @property
    def tell_apart(self) -> bool:
        """Whether two candidates of one task have different labels: otherwise nothing can be learned."""
        same_task = np.diff(self.tasks) == 0
        return bool(np.any(same_task & (np.diff(self.labels) != 0)))


def rows_of(history: Sequence[Measured], margins: FloatArray | None = None) -> Rows:
    """The rows of all tasks, each with labels relative to its best candidate; margins are 0 if not given.

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
    """Raise ``BadInput`` unless these candidates have as many features as those of the fit."""
    if features.ndim != 2 or features.shape[1] != width:
        raise BadInput(f"features must have the shape (candidates, {width}) as in the fit, not {features.shape}")


def split(rows: Rows, generator: np.random.Generator) -> tuple[Rows, Rows] | None:
    """A training part and a held-out part of a random fifth; the latter is ``None`` if there are too few rows."""
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
