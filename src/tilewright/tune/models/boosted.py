"""Gradient-boosted trees (LightGBM), the cost model of Chen et al., NeurIPS 2018: quick to fit, good with few rows.

The hyperparameters were chosen on synthetic populations of 64 to 4,000 rows, by the ranking of held-out candidates and
by the quality of the 64 with the best scores. Depth and the number of leaves are AutoTVM's. Pairs with a logistic loss
did better than regression, most of all where throughputs differ by orders of magnitude, and better than or as well as
LightGBM's own rankings (LambdaRank takes seconds for 4,000 rows, XE-NDCG is worse at the top). The number of trees is
the best one on a held-out part (AutoTVM used the training rows); then the model is fitted to all rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.tune.models.boosting import SETTINGS, Part, Settings, best_count, grown
from tilewright.tune.models.losses import Loss, loss_of
from tilewright.tune.models.model import FloatArray, Measured, Objective
from tilewright.tune.models.optional import require
from tilewright.tune.models.rows import Rows, check_width, rows_of, split

if TYPE_CHECKING:
    import lightgbm

_TREES_OF_FEW_ROWS = 15  # where there are too few rows to hold some out
_FEWEST_TREES = 10  # without margins: a guess is better than nothing, which a small held-out part often suggests
_SETTINGS: Settings = {
    **SETTINGS,
    "max_depth": 3,
    "num_leaves": 8,
    "lambda_l2": 1.0,
    "min_gain_to_split": 1e-4,
    "min_sum_hessian_in_leaf": 0.2,
}


class BoostedTrees:
    """A ``ResidualModel``. ``seed`` chooses pairs and the held-out part. Raises ``BadInput`` if LightGBM is missing."""

    def __init__(self, objective: Objective = Objective.RANK, seed: int = 0) -> None:
        require("lightgbm", "tune")
        self._objective = objective
        self._seed = seed
        self._width: int | None = None
        self._offset = 0.0
        self._trees: lightgbm.Booster | None = None

    def fit(self, features: FloatArray, throughputs: FloatArray, margins: FloatArray | None = None) -> None:
        """See ``ResidualModel``. Takes 0.3 to 0.6 s for 1,000 candidates with 100 features, on one core."""
        self._learn(rows_of([Measured(features, throughputs)], margins))

    def fit_history(self, history: Sequence[Measured]) -> None:
        """Forget all, and learn from several tasks: candidates are compared within a task only."""
        self._learn(rows_of(history))

    def score(self, features: FloatArray) -> FloatArray:
        """See ``CostModel``; margins are not included."""
        if self._width is not None:
            check_width(features, self._width)
        if self._trees is None:
            return np.full(len(features), self._offset)
        return self._offset + self._trees.predict(features, num_threads=1)

    def _learn(self, rows: Rows) -> None:
        self._width, self._offset, self._trees = rows.features.shape[1], 0.0, None
        if not rows.tell_apart:
            return
        generator = np.random.default_rng(self._seed)
        count = self._best_count(rows, generator)
        loss = loss_of(self._objective, rows, generator)
        self._offset = loss.offset(rows.margins)
        if count:
            self._trees = grown(_part(rows, self._offset, loss), count, _SETTINGS)

    def _best_count(self, rows: Rows, generator: np.random.Generator) -> int:
        """The best number of trees on held-out rows; may be 0 with margins."""
        parts = split(rows, generator)
        if parts is None:
            return _TREES_OF_FEW_ROWS
        learned, held_out = parts
        loss, trial = (loss_of(self._objective, part, generator) for part in parts)
        offset = loss.offset(learned.margins)
        found = best_count(_part(learned, offset, loss), _part(held_out, offset, trial), _SETTINGS)
        return found if rows.margins.any() else max(found, _FEWEST_TREES)


def _part(rows: Rows, offset: float, loss: Loss) -> Part:
    return Part(rows.features, rows.margins + offset, loss)
