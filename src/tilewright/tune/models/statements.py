"""A cost model over statements: the score of a program is the sum of what trees say of each (Zheng et al., OSDI 2020).

Features of statements (``features/statements.py``) mean the same in all programs, so one model learns from several
tasks. A label is the throughput as a part of the best one of its task. The loss of a program is ``y (sum - y)^2``: it
matters what fast programs are thought of, and failures teach nothing. Depth and rate are those of the paper. Leaves are
fewer, which suited made-up times of some hundred schedules better; steps are shorter where programs have many
statements, as these add up.
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
from tilewright.tune.models.boosting import SETTINGS, Part, Settings, best_count, grown
from tilewright.tune.models.model import FloatArray, relative
from tilewright.tune.models.optional import require
from tilewright.tune.models.rater import Rater

if TYPE_CHECKING:
    import lightgbm

Indices: TypeAlias = NDArray[np.int64]
_HELD_OUT = 0.2
_LEAST_HELD_OUT = 4
_TREES_OF_FEW_PROGRAMS = 15
_FEWEST_TREES = 10
_RATE = 0.2
_SETTINGS: Settings = {
    **SETTINGS,
    "max_depth": 10,
    "num_leaves": 15,
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
    """Of the sums of what is said of the statements of each program: a ``Loss`` of statements."""

    def __init__(self, statements: StatementRows, labels: FloatArray) -> None:
        self._programs = statements.programs
        self._labels = labels

    def sums(self, scores: FloatArray) -> FloatArray:
        """(programs,) from (statements,)."""
        return np.bincount(self._programs, scores, len(self._labels)).astype(np.float64)

    def value(self, scores: FloatArray) -> float:
        """See ``Loss``: half the weighted square, over all weights."""
        total = float(self._labels.sum())
        return float(np.sum(self._labels * (self.sums(scores) - self._labels) ** 2)) / (2 * total) if total else 0.0

    def slopes(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See ``Loss``."""
        weights = self._labels[self._programs]
        return (self.sums(scores) - self._labels)[self._programs] * weights, weights

    def offset(self, margins: FloatArray) -> float:
        """The best one number for each statement."""
        counts = self.sums(np.ones(len(self._programs)))
        among = float(np.sum(self._labels * counts**2))
        return float(np.sum(self._labels * counts * (self._labels - self.sums(margins)))) / among if among else 0.0


class StatementModel:
    """Learns from the measured programs of several tasks which others are likely fast.

    ``seed`` chooses the held-out part. Raises ``BadInput`` if LightGBM is missing.
    """

    def __init__(self, seed: int = 0) -> None:
        require("lightgbm", "tune")
        self._seed = seed
        self._offset = 0.0
        self._trees: lightgbm.Booster | None = None

    def fit(self, history: Sequence[MeasuredPrograms]) -> None:
        """Forget everything, and learn from all tasks together."""
        self._offset, self._trees = 0.0, None
        statements = StatementRows.joined([measured.statements for measured in history])
        labels = np.concatenate([np.empty(0), *(relative(measured.throughputs) for measured in history)])
        known = np.flatnonzero((labels > 0) & (np.diff(statements.offsets) > 0))
        if not len(known):
            return
        statements, labels = statements.take(known), labels[known]
        most = int(np.diff(statements.offsets).max())
        settings = {**_SETTINGS, "learning_rate": min(_RATE, 1 / most)}
        whole = _part(statements, labels)
        self._offset = float(whole.start[0])
        self._trees = grown(whole, self._count(statements, labels, settings), settings)

    def score(self, statements: StatementRows) -> FloatArray:
        """(programs,): larger is better; 0 before the first fit, and for programs without statements.

        About the part of the best throughput of a task that a program has.
        """
        counts = np.diff(statements.offsets)
        if self._trees is None or not len(statements.rows):
            return counts * self._offset
        scores = self._trees.predict(statements.rows, num_threads=1)
        return np.bincount(statements.programs, scores, len(counts)) + counts * self._offset

    def _count(self, statements: StatementRows, labels: FloatArray, settings: Settings) -> int:
        """How many trees are best for programs that are not learned from."""
        held_out = int(len(labels) * _HELD_OUT)
        if held_out < _LEAST_HELD_OUT:
            return _TREES_OF_FEW_PROGRAMS
        shuffled = np.random.default_rng(self._seed).permutation(len(labels))
        trial, learned = shuffled[:held_out], shuffled[held_out:]
        part = _part(statements.take(learned), labels[learned])
        tried = _part(statements.take(trial), labels[trial], float(part.start[0]))
        return max(best_count(part, tried, settings), _FEWEST_TREES)


def _part(statements: StatementRows, labels: FloatArray, offset: float | None = None) -> Part:
    loss, rows = SumLoss(statements, labels), statements.rows
    each = loss.offset(np.zeros(len(rows))) if offset is None else offset
    return Part(rows, np.full(len(rows), each), loss)


class Statements:
    """A ``Rating``. All its raters share one model: what is measured of one space is learned for all."""

    def __init__(self, seed: int = 0) -> None:
        self._model = StatementModel(seed)
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
    """A ``Rater`` of one space. What has no schedule has no statements, and the score 0; so has what is left out."""

    def __init__(self, space: Candidates, shared: Statements, task: int) -> None:
        self._individuals = Individuals(space)
        self._shared = shared
        self._task = task

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """See ``Rater``."""
        self._shared.learn(self._task, MeasuredPrograms(self._individuals.of(digits, limited=False), throughputs))

    def score(self, digits: Digits) -> Floats:
        """See ``Rater``."""
        return self._shared.score(self._individuals.of(digits))

    def looked_at(self) -> str:
        """See ``Reporting``."""
        return str(self._individuals.counts)
