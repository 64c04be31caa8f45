"""The searcher and the cost model of a tuning run: by name (``base.search``), as objects, or installed."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TypeAlias, TypeVar

from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.base.plugins import installed
from tilewright.base.search import Goal, Model, Scheduling, Search, Spaces
from tilewright.space.space import Candidates
from tilewright.tune.features.individuals import is_covered
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.models.model import Measured
from tilewright.tune.models.pretrained import pretrained
from tilewright.tune.models.random import RandomScores
from tilewright.tune.models.rater import OfKnobs, Rater, Rating, of_loops
from tilewright.tune.models.statements import Statements
from tilewright.tune.models.transfer import Transfer
from tilewright.tune.search.annealing import AnnealingSearcher, Plan
from tilewright.tune.search.beam import NARROW, BeamSearcher
from tilewright.tune.search.chains import Annealing
from tilewright.tune.search.evolution import Breeding, EvolutionSearcher
from tilewright.tune.search.genetic import GeneticSearcher
from tilewright.tune.search.grid import GridSearcher
from tilewright.tune.search.random import RandomSearcher
from tilewright.tune.search.searcher import Score, Searcher, Searching

SEARCHERS, COST_MODELS = "tilewright.searchers", "tilewright.cost_models"
"""Groups of entry points, in which packages name their ``Searching`` and ``Rating`` objects."""
Searches: TypeAlias = Search | Searching
Models: TypeAlias = Model | Rating
Named = TypeVar("Named", bound=Enum)
Other = TypeVar("Other")

FEW = Plan(annealing=Annealing(chains=16, steps=8, patience=8))
"""Annealing parameters for a model that takes milliseconds per candidate."""
LARGE = Breeding(population=2048)
"""Evolution, as in the paper, for a model that looks at whole populations at once, if patterns tell about them."""


def searcher_of(search: Searches, model: Models, space: Candidates, score: Score, seed: int) -> Searcher:
    """The searcher of ``space``, in which ``score``, of a ``model``, rates candidates."""
    match search:
        case Search.ANNEALING:
            return AnnealingSearcher(space, score, seed, FEW if _sees_programs(model) else None)
        case Search.GENETIC:
            return GeneticSearcher(space, seed)
        case Search.EVOLUTION:
            return EvolutionSearcher(
                space, score, seed, LARGE if _sees_statements(model) and is_covered(space) else None
            )
        case Search.BEAM:
            return BeamSearcher(space, score, seed, NARROW if _sees_programs(model) else None)
        case Search.RANDOM:
            return RandomSearcher(space, seed)
        case Search.GRID:
            return GridSearcher(space)
        case _:
            return search.searcher(space, score, seed)


def _sees_programs(model: Models) -> bool:
    return model is Model.TREE_GRU or _sees_statements(model)


def _sees_statements(model: Models) -> bool:
    return model is Model.STATEMENTS or isinstance(model, Statements)


def shared(model: Models, seed: int) -> Models:
    """``model`` for several kernels that are tuned together: if it can learn from all of them, an object that does."""
    return Statements(seed, pretrained()) if model is Model.STATEMENTS else model


def rater_of(
    model: Models, space: Candidates, seed: int, *, with_estimates: bool, history: Sequence[Measured] = ()
) -> Rater:
    """The rater of ``space``. Raises ``BadInput`` if a required package is not installed.

    ``history``: measurements of similar kernels, from which trees start (``tune.similar``).
    """
    match model:
        case Model.TREES:
            trees = BoostedTrees(seed=seed)
            if not history:
                return OfKnobs(space, trees, with_estimates=with_estimates)
            general = BoostedTrees(seed=seed)
            general.fit_history(history)
            return OfKnobs(space, Transfer(general, trees), with_estimates=with_estimates)
        case Model.TREE_GRU:
            return of_loops(space, seed)
        case Model.STATEMENTS:
            return Statements(seed, pretrained()).rater(space, seed)
        case Model.RANDOM:
            return OfKnobs(space, RandomScores(seed), with_estimates=with_estimates)
        case _:
            return model.rater(space, seed)


def search_named(name: str) -> Searches:
    """The search of that name: built in, or installed. Raises ``BadInput``, which lists the known ones."""
    return _named(name, "search", Search, installed(SEARCHERS, Searching).items())


def search_for(search: Searches | str | None, spaces: Spaces) -> Searches:
    """The search that is given, by name or as an object; without one, what suits ``spaces``."""
    if search is None:
        return Search.ANNEALING if spaces is Spaces.TEMPLATES else Search.EVOLUTION
    return search_named(search) if isinstance(search, str) else search


def spaces_named(name: str) -> Spaces:
    """What is searched. Raises ``BadInput`` that says what there is."""
    return _named(name, "space", Spaces, ())


def goal_named(name: str) -> Goal:
    """What is minimized. Raises ``BadInput`` that says what there is."""
    return _named(name, "objective", Goal, ())


def scheduling_named(name: str) -> Scheduling:
    """Which kernel is searched next. Raises ``BadInput`` that says what there is."""
    return _named(name, "scheduler", Scheduling, ())


def model_named(name: str) -> Models:
    """The cost model of that name: built in, or installed. Raises ``BadInput``, which lists the known ones."""
    return _named(name, "cost model", Model, installed(COST_MODELS, Rating).items())


def _named(name: str, what: str, kind: type[Named], others: Iterable[tuple[str, Other]]) -> Named | Other:
    known: dict[str, Named | Other] = {**dict(others), **{str(member.value): member for member in kind}}
    if name not in known:
        raise BadInput(f"there is no {what} called {shown(name)}; there is {', '.join(sorted(known))}")
    return known[name]
