"""The searchers and cost models by their names (``base.search``)."""

from collections.abc import Callable

from tilewright.base.search import Model, Search
from tilewright.space.space import Digits, Floats, Searchable
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.models.model import CostModel
from tilewright.tune.models.random import RandomScores
from tilewright.tune.search.annealing import AnnealingSearcher
from tilewright.tune.search.genetic import GeneticSearcher
from tilewright.tune.search.grid import GridSearcher
from tilewright.tune.search.random import RandomSearcher
from tilewright.tune.search.searcher import Searcher


def searcher_of(search: Search, space: Searchable, score: Callable[[Digits], Floats], seed: int) -> Searcher:
    """The searcher of ``space``, in which ``score`` rates candidates."""
    match search:
        case Search.ANNEALING:
            return AnnealingSearcher(space, score, seed)
        case Search.GENETIC:
            return GeneticSearcher(space, seed)
        case Search.RANDOM:
            return RandomSearcher(space, seed)
        case Search.GRID:
            return GridSearcher(space)


def model_of(model: Model, seed: int) -> CostModel:
    """The cost model. Raises ``BadInput`` if a package that it needs is not installed."""
    match model:
        case Model.TREES:
            return BoostedTrees(seed=seed)
        case Model.RANDOM:
            return RandomScores(seed)
