"""Raters: cost models over the candidates of one space. What a model sees of a candidate is decided here.

``OfKnobs``: what the knobs are set to, and the analytic estimate. ``OfLoops``: what is to be known of a candidate must
be scheduled first, so it is asked for few of them.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.loops.program import Program
from tilewright.space.space import Candidates, Digits, Floats
from tilewright.tune.features.contexts import MOST_LOOPS, loop_contexts
from tilewright.tune.models.looptree import LoopTree
from tilewright.tune.models.model import CostModel
from tilewright.tune.models.treegru import TreeGRU

View: TypeAlias = Callable[[Program], Floats]
"""(features,) of a scheduled program. Raises ``Unsupported``."""


class Rater(Protocol):
    """Learns from measured candidates of one space which others are likely fast."""

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """Forget everything, and learn: (candidates, knobs), and what was measured of each; 0 for failures."""
        ...

    def score(self, digits: Digits) -> Floats:
        """(candidates,) from (candidates, knobs): larger is better, always finite."""
        ...


@runtime_checkable
class Rating(Protocol):
    """A kind of cost model: makes a rater for each space. What is given as ``Setup.model``, or installed."""

    def rater(self, space: Candidates, seed: int) -> Rater:
        """For the candidates of ``space``. Raises ``BadInput`` if a package that it needs is not installed."""
        ...


class OfKnobs:
    """A ``Rater``: ``model`` sees what the knobs are set to and, ``with_estimates``, what the analytic model thinks."""

    def __init__(self, space: Candidates, model: CostModel, *, with_estimates: bool = True) -> None:
        self._space = space
        self._model = model
        self._with_estimates = with_estimates

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """See ``Rater``."""
        self._model.fit(self._features(digits), throughputs)

    def score(self, digits: Digits) -> Floats:
        """See ``Rater``."""
        return self._model.score(self._features(digits))

    def _features(self, digits: Digits) -> Floats:
        return knob_view(self._space, digits, with_estimates=self._with_estimates)


def knob_view(space: Candidates, digits: Digits, *, with_estimates: bool) -> Floats:
    """(candidates, features): what the knobs are set to and, ``with_estimates``, what the analytic model thinks."""
    estimates = space.estimates(digits) if with_estimates else None
    known = [] if estimates is None else [np.log(estimates)[:, None]]
    return np.concatenate([space.features(digits), *known], axis=1)


class OfPrograms:
    """A ``Rater``: ``model`` sees ``width`` features of each candidate's program; NaN if it has none."""

    def __init__(self, space: Candidates, model: CostModel, view: View, width: int) -> None:
        self._space = space
        self._model = model
        self._view = view
        self._width = width
        self._known: dict[bytes, Floats] = {}

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """See ``Rater``."""
        self._model.fit(self._features(digits), throughputs)

    def score(self, digits: Digits) -> Floats:
        """See ``Rater``."""
        return self._model.score(self._features(digits))

    def _features(self, digits: Digits) -> Floats:
        return np.stack([self._of_one(one) for one in digits]) if len(digits) else np.zeros((0, self._width))

    def _of_one(self, digits: Digits) -> Floats:
        key = digits.tobytes()
        if key not in self._known:
            try:
                found = self._view(self._space.schedule(digits).program)
            except (ScheduleError, Unsupported):
                found = np.full(self._width, np.nan)
            self._known[key] = found
        return self._known[key]


def of_loops(space: Candidates, seed: int) -> OfPrograms:
    """TreeGRU over the loops of candidates."""
    analytic = space.analytic()
    first = np.zeros(len(space.radices), np.int64) if analytic is None else analytic
    per_loop = loop_contexts(space.schedule(first).program).shape[1]

    def view(program: Program) -> Floats:
        contexts = loop_contexts(program)
        if contexts.shape[1] != per_loop or len(contexts) > MOST_LOOPS:
            raise Unsupported(
                f"{program.name} has other accesses than the other candidates, or more than {MOST_LOOPS} loops"
            )
        padded = np.full((MOST_LOOPS, per_loop), np.nan)
        padded[MOST_LOOPS - len(contexts) :] = contexts
        return padded.ravel()

    tree = LoopTree.chain(MOST_LOOPS, per_loop)
    return OfPrograms(space, TreeGRU(tree, seed=seed), view, tree.width)
