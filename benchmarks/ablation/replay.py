"""Searches in tables: what a searcher proposes is looked up instead of measured."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import numpy as np

from tilewright.space.space import Digits
from tilewright.tune.kernel_tuner import Setup
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.models.looptree import LoopTree
from tilewright.tune.models.model import CostModel, Measured, Objective
from tilewright.tune.models.transfer import Transfer
from tilewright.tune.models.treegru import TreeGRU
from tilewright.tune.search.annealing import AnnealingSearcher, Plan
from tilewright.tune.search.genetic import GeneticSearcher
from tilewright.tune.search.random import RandomSearcher
from tilewright.tune.search.searcher import Searcher

from .features import Floats
from .table import Table, TableSpace

SETUP = Setup()
"""Rounds are as large as when a model is tuned (the paper has 64 trials in each)."""


Model = Callable[[Table, int], CostModel]
"""Makes a model for a table and a seed. Can be sent to other processes."""


class View(Enum):
    """What a model sees of candidates."""

    CONTEXTS = "contexts"
    CURVES = "curves"


def features(table: Table, view: View) -> Floats:
    """(candidates, numbers)."""
    return table.curves if view is View.CURVES else table.contexts.reshape(len(table.digits), -1)


@dataclass(frozen=True, slots=True)
class Learned:
    """A search by annealing on a learned model."""

    model: Model
    view: View = View.CONTEXTS
    plan: Plan = field(default_factory=Plan)


class Baseline(Enum):
    """Searches without a model."""

    RANDOM = "random"
    GENETIC = "genetic"


Way = Baseline | Learned


def curve(table: Table, way: Way, trials: int, seed: int) -> Floats:
    """The best time after each trial, as a multiple of the table's best one: (trials,)."""
    space = TableSpace(table)
    throughputs = 1.0 / table.microseconds
    seen: list[int] = []
    model, known = None, np.zeros((0, 0))
    if isinstance(way, Learned):
        model, known = way.model(table, seed), features(table, way.view)

    def score(digits: Digits) -> Floats:
        assert model is not None, "only a learned search asks for scores"
        return model.score(known[space.rows(digits)])

    searcher = _searcher(space, way, seed, score)
    best = table.microseconds.min()
    while len(seen) < trials and not (table.microseconds[seen] == best).any():
        batch = searcher.propose(min(SETUP.round_size(len(seen)), trials - len(seen)))
        if not len(batch):
            break
        rows = space.rows(batch)
        seen.extend(rows.tolist())
        searcher.learn(batch, throughputs[rows])
        if model is not None:
            model.fit(known[seen], throughputs[seen])
    found = np.minimum.accumulate(table.microseconds[seen]) / best
    return np.concatenate([found, np.full(trials - len(found), found[-1])])


def _searcher(space: TableSpace, way: Way, seed: int, score: Callable[[Digits], Floats]) -> Searcher:
    match way:
        case Baseline.RANDOM:
            return RandomSearcher(space, seed)
        case Baseline.GENETIC:
            return GeneticSearcher(space, seed)
        case Learned(plan=plan):
            return AnnealingSearcher(space, score, seed, plan)


def trees(objective: Objective) -> Model:
    """Boosted trees."""
    return partial(_trees, objective)


def tree_gru(objective: Objective) -> Model:
    """The recurrent network."""
    return partial(_tree_gru, objective)


def transferred(others: list[Table]) -> Model:
    """Boosted trees on top of those that have learned the tables of other layers."""
    general = BoostedTrees()
    general.fit_history([Measured(features(table, View.CURVES), 1.0 / table.microseconds) for table in others])
    return partial(_transfer, general)


def _trees(objective: Objective, _: Table, seed: int) -> CostModel:
    return BoostedTrees(objective, seed)


def _tree_gru(objective: Objective, table: Table, seed: int) -> CostModel:
    return TreeGRU(LoopTree.chain(*table.contexts.shape[1:]), objective, seed)


def _transfer(general: CostModel, _: Table, seed: int) -> CostModel:
    return Transfer(general, BoostedTrees(seed=seed))
