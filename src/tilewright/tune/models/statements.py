"""A cost model over statements: the score of a program is the sum of what trees say of each (Zheng et al., OSDI 2020).

Features of statements (``features/statements.py``) mean the same in all programs, so one model learns from several
tasks. A label is the throughput as a part of the best one of its task. The loss of a program is ``y (sum - y)^2``: it
matters what fast programs are thought of, and failures teach nothing. Depth and rate are those of the paper; steps are
shorter where programs have many statements, as these add up. ``pretrained`` has what is known beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import BadInput
from tilewright.space.space import Candidates, Digits, Floats
from tilewright.tune.features.individuals import Individuals
from tilewright.tune.features.statements import StatementRows
from tilewright.tune.models.boosting import MOST_TREES, SETTINGS, Part, Settings, best_count, grown
from tilewright.tune.models.model import FloatArray, relative
from tilewright.tune.models.optional import require
from tilewright.tune.models.rater import Rater
from tilewright.tune.models.transfer import global_weight

if TYPE_CHECKING:
    import lightgbm

Indices: TypeAlias = NDArray[np.int64]
_HELD_OUT = 0.2
_LEAST_HELD_OUT = 4
_TREES_OF_FEW_PROGRAMS = 15
_FEWEST_TREES = 10
_SETTINGS: Settings = {
    **SETTINGS,
    "max_depth": 10,
    "lambda_l2": 1.0,
    "min_sum_hessian_in_leaf": 1e-3,
}


@dataclass(frozen=True, slots=True)
class MeasuredPrograms:
    """What was measured of one task: the statements of its programs, and throughputs (programs,), 0 for failures.

    Raises ``BadInput`` if they don't fit each other.
    """

    statements: StatementRows
    throughputs: FloatArray

    def __post_init__(self) -> None:
        if len(self.statements) != len(self.throughputs):
            raise BadInput(f"there are {len(self.statements)} programs, and {len(self.throughputs)} throughputs")


class SumLoss:
    """Of the sums of what is said of the statements of each program: a ``Loss`` of statements.

    A program weighs as much as its label, plus ``floor``.
    """

    def __init__(self, statements: StatementRows, labels: FloatArray, floor: float = 0.0) -> None:
        self._programs = statements.programs
        self._labels = labels
        self._weights = labels + floor

    def sums(self, scores: FloatArray) -> FloatArray:
        """(programs,) from (statements,)."""
        return np.bincount(self._programs, scores, len(self._labels)).astype(np.float64)

    def value(self, scores: FloatArray) -> float:
        """See ``Loss``: half the weighted square, over all weights."""
        total = float(self._weights.sum())
        errors = self._weights * (self.sums(scores) - self._labels) ** 2
        return float(np.sum(errors)) / (2 * total) if total else 0.0

    def slopes(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See ``Loss``."""
        weights = self._weights[self._programs]
        return (self.sums(scores) - self._labels)[self._programs] * weights, weights

    def offset(self, margins: FloatArray) -> float:
        """The best one number for each statement."""
        counts = self.sums(np.ones(len(self._programs)))
        among = float(np.sum(self._weights * counts**2))
        left = self._labels - self.sums(margins)
        return float(np.sum(self._weights * counts * left)) / among if among else 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """How many trees a model has at most, how many leaves each has, and the step of each (``rate``) at most.

    ``features``: the part of them that a tree is made from. ``floor``: added to the weight of each program.
    ``is_fixed``: not fewer trees where that is better for programs that are held out.
    """

    trees: int = MOST_TREES
    leaves: int = 15
    rate: float = 0.2
    features: float = 1.0
    floor: float = 0.0
    is_fixed: bool = False


ONLINE = Growth()
"""While a search waits. Few leaves suited made-up times of some hundred schedules best."""
BEFOREHAND = Growth(trees=1600, leaves=15, rate=0.05, features=0.2, floor=0.3, is_fixed=True)
"""Of what comes with the package."""


@dataclass(frozen=True, slots=True)
class StatementTrees:
    """What is said of a statement: ``offset``, and the sum of ``trees``, if there are any."""

    offset: float
    trees: "lightgbm.Booster | None"

    def score(self, rows: Floats) -> FloatArray:
        """(statements,) from (statements, ``NAMES``)."""
        if self.trees is None or not len(rows):
            return np.full(len(rows), self.offset)
        return self.offset + self.trees.predict(rows, num_threads=1)


NO_TREES = StatementTrees(0.0, None)


class StatementModel:
    """Learns from the measured programs of several tasks which others are likely fast.

    ``seed`` chooses the held-out part. ``prior`` has learned from other tasks: the score is the sum of what it says,
    times ``2^(-n/64)`` after ``n`` programs of a task (``transfer``; the mean of all tasks), and of trees that learn
    what it leaves over. Raises ``BadInput`` if LightGBM is missing.
    """

    def __init__(self, seed: int = 0, prior: StatementTrees | None = None, growth: Growth = ONLINE) -> None:
        require("lightgbm", "tune")
        self._seed = seed
        self._prior = prior
        self._weight = global_weight(0)
        self._growth = growth
        self.learned = NO_TREES

    def fit(self, history: Sequence[MeasuredPrograms]) -> None:
        """Forget everything but the prior, and learn from all tasks together."""
        self.learned, self._weight = NO_TREES, global_weight(0)
        statements = StatementRows.joined([measured.statements for measured in history])
        labels = np.concatenate([np.empty(0), *(relative(measured.throughputs) for measured in history)])
        known = np.flatnonzero((labels > 0) & (np.diff(statements.offsets) > 0))
        if not len(known):
            return
        self._weight = global_weight(len(known) // len(history))
        statements, labels = statements.take(known), labels[known]
        most = int(np.diff(statements.offsets).max())
        settings: Settings = {
            **_SETTINGS,
            "num_leaves": self._growth.leaves,
            "learning_rate": min(self._growth.rate, 1 / most),
            "feature_fraction": self._growth.features,
        }
        whole, offset = self._part(statements, labels)
        count = self._count(statements, labels, settings)
        self.learned = StatementTrees(offset, grown(whole, count, settings) if count else None)

    def score(self, statements: StatementRows) -> FloatArray:
        """(programs,): larger is better; 0 for programs without statements, and without a prior before the first fit.

        About the part of the best throughput of a task that a program has.
        """
        scores = self._margins(statements.rows) + self.learned.score(statements.rows)
        return np.bincount(statements.programs, scores, len(statements)).astype(np.float64)

    def _margins(self, rows: Floats) -> FloatArray:
        """(statements,): what the prior says of each, as far as it counts."""
        if self._prior is None or not self._weight:
            return np.zeros(len(rows))
        return self._weight * self._prior.score(rows)

    def _count(self, statements: StatementRows, labels: FloatArray, settings: Settings) -> int:
        """How many trees are best for programs that are not learned from; may be none beside a prior."""
        if self._growth.is_fixed:
            return self._growth.trees
        held_out = int(len(labels) * _HELD_OUT)
        if held_out < _LEAST_HELD_OUT:
            return _TREES_OF_FEW_PROGRAMS
        shuffled = np.random.default_rng(self._seed).permutation(len(labels))
        trial, learned = shuffled[:held_out], shuffled[held_out:]
        part, offset = self._part(statements.take(learned), labels[learned])
        tried, _ = self._part(statements.take(trial), labels[trial], offset)
        found = best_count(part, tried, settings, self._growth.trees)
        return found if self._prior is not None and self._weight else max(found, _FEWEST_TREES)

    def _part(self, statements: StatementRows, labels: FloatArray, offset: float | None = None) -> tuple[Part, float]:
        """What trees learn from, and the number that each statement starts with beside what the prior says."""
        loss, margins = SumLoss(statements, labels, self._growth.floor), self._margins(statements.rows)
        each = loss.offset(margins) if offset is None else offset
        return Part(statements.rows, margins + each, loss), each


class Statements:
    """A ``Rating``. All its raters share one model: what is measured of one space is learned for all.

    ``prior``: what the model starts from (``pretrained``).
    """

    def __init__(self, seed: int = 0, prior: StatementTrees | None = None) -> None:
        self._model = StatementModel(seed, prior)
        self._tasks: dict[int, MeasuredPrograms] = {}
        self._raters = 0

    def rater(self, space: Candidates, seed: int) -> Rater:
        """See ``Rating``."""
        del seed  # the model has one for all spaces
        self._raters += 1
        return _OfStatements(space, self, self._raters)

    def learn(self, task: int, measured: MeasuredPrograms) -> None:
        """Forget what was known of a task, and learn from all tasks."""
        self._tasks[task] = measured
        self._model.fit(list(self._tasks.values()))

    def score(self, statements: StatementRows) -> Floats:
        """See ``StatementModel``."""
        return self._model.score(statements)


class _OfStatements:
    """A ``Rater`` of one space. What has no schedule has no statements, and the score 0."""

    def __init__(self, space: Candidates, shared: Statements, task: int) -> None:
        self._individuals = Individuals(space)
        self._shared = shared
        self._task = task

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """See ``Rater``."""
        self._shared.learn(self._task, MeasuredPrograms(self._individuals.of(digits), throughputs))

    def score(self, digits: Digits) -> Floats:
        """See ``Rater``."""
        return self._shared.score(self._individuals.of(digits))

    def looked_at(self) -> str:
        """See ``Reporting``."""
        return str(self._individuals.counts)
