"""Raters: cost models over the candidates of one space, with a choice of features.

``OfKnobs``: what the knobs are set to, and the analytic estimate. ``OfPrograms`` (and ``statements``): what is to be
known of a candidate must be scheduled first, so it is asked for few of them.
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
"""(features,) of a scheduled program, or of each of its statements. Raises ``Unsupported``."""


class Rater(Protocol):
    """Learns from measured candidates of one space to score others."""

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """Forget all, and learn: (candidates, knobs), and their throughputs; 0 for failures."""
        ...

    def score(self, digits: Digits) -> Floats:
        """(candidates,) from (candidates, knobs): larger is better, always finite."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """A ``Rater`` that says how it looked at candidates."""

    def looked_at(self) -> str:
        """How many candidates were looked at in which way; for people."""
        ...


@runtime_checkable
class Rating(Protocol):
    """A kind of cost model: creates a rater for each space. For ``Setup.model``, or an entry point."""

    def rater(self, space: Candidates, seed: int) -> Rater:
        """For the candidates of ``space``. Raises ``BadInput`` if a package that it needs is not installed."""
        ...


class OfKnobs:
    """A ``Rater``: ``model`` gets values of the knobs and, ``with_estimates``, analytic estimates."""

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


class Seen:
    """What ``view`` says of the program of each candidate of ``space``, each looked at once."""

    def __init__(self, space: Candidates, view: View) -> None:
        self._space = space
        self._view = view
        self._known: dict[bytes, Floats | None] = {}

    def of(self, digits: Digits) -> list[Floats | None]:
        """None of a candidate that has no schedule, or that can't be viewed."""
        return [self._of_one(one) for one in digits]

    def _of_one(self, digits: Digits) -> Floats | None:
        key = digits.tobytes()
        if key not in self._known:
            try:
                self._known[key] = self._view(self._space.schedule(digits).program)
            except (ScheduleError, Unsupported):
                self._known[key] = None
        return self._known[key]


class OfPrograms:
    """A ``Rater``: ``model`` gets ``width`` features of each candidate's program; NaN if it has none."""

    def __init__(self, space: Candidates, model: CostModel, view: View, width: int) -> None:
        self._model = model
        self._seen = Seen(space, view)
        self._width = width

    def fit(self, digits: Digits, throughputs: Floats) -> None:
        """See ``Rater``."""
        self._model.fit(self._features(digits), throughputs)

    def score(self, digits: Digits) -> Floats:
        """See ``Rater``."""
        return self._model.score(self._features(digits))

    def _features(self, digits: Digits) -> Floats:
        features = np.full((len(digits), self._width), np.nan)
        for place, seen in enumerate(self._seen.of(digits)):
            if seen is not None:
                features[place] = seen
        return features


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
