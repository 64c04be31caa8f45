"""Beam search over incomplete programs, with early pruning: the way of the Halide auto-scheduler.

Adams et al., "Learning to Optimize Halide with Tree Search and Random Programs" (SIGGRAPH 2019); the baseline of Zheng
et al., "Ansor" (OSDI 2020), sections 2 and 7.4. Decisions are made one after the other, in the order in which the
generator of the space asks for them: an *incomplete candidate* has the first of them, and of all its continuations by
one more decision only those stay that the cost model prefers. The model rates complete programs: what is not decided
yet is as ``Candidates.completed`` says, the analytic choice's value where a space has one, and else the knob's first.
Where that is no candidate of the space, it is as in a random one; an incomplete candidate for which none of a few makes
a candidate is pruned.
"""

from dataclasses import dataclass, field

import numpy as np

from tilewright.space.space import Candidates, Digits, Mask
from tilewright.tune.search.ledger import Ledger
from tilewright.tune.search.searcher import FloatArray, Score


@dataclass(frozen=True, slots=True)
class Beam:
    """Parameters of a search."""

    width: int = 32
    """Incomplete candidates that stay after each decision."""
    rated: int = 512
    """Continuations that are rated after each decision, at most; of more, equally many of each incomplete candidate."""
    dropout: float = 0.1
    """The probability with which a continuation is left out, so that a batch and the next one are not all alike."""
    passes: int = 4
    """How often all decisions are made for a batch, at most: until it is full."""
    random: float = 0.05
    """The probability with which a candidate of a batch is a random one (epsilon)."""


_DRAWN = 512
"""Random candidates whose last decisions complete others."""
_TRIES = 4
"""Of completing an incomplete candidate so."""
NARROW = Beam(width=8, rated=64)
"""For a model that takes milliseconds for each candidate."""


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """A ``Searching``: beam search with other parameters."""

    beam: Beam = field(default_factory=Beam)
    asks_a_model: bool = True

    def searcher(self, space: Candidates, score: Score, seed: int) -> "BeamSearcher":
        """See ``Searching``."""
        return BeamSearcher(space, score, seed, self.beam)


class BeamSearcher:
    """What is left of the beam when everything is decided (``Searcher``).

    Where ``score`` tells nothing apart, what stays is drawn at random.
    """

    def __init__(self, space: Candidates, score: Score, seed: int = 0, beam: Beam | None = None) -> None:
        self._space = space
        self._ledger = Ledger(space, seed)
        self._score = score
        self._beam = beam or Beam()

    def propose(self, count: int) -> Digits:
        """The best of a few passes; then random ones, which also take the place of missing ones."""
        random = self._ledger.generator()
        planned = count - int(random.binomial(count, self._beam.random))
        found = np.empty((0, len(self._ledger.radices)), np.int64)
        for _ in range(self._beam.passes):
            if len(found) >= planned:
                break
            best = self._complete(planned - len(found), random)
            found = np.concatenate([found, self._ledger.propose(best)])
        others = self._ledger.propose(self._ledger.draw(count - len(found), random))
        return np.concatenate([found, others])

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Marks them as measured: throughputs come back through ``score``."""
        self._ledger.learn(digits)

    def _complete(self, count: int, random: np.random.Generator) -> Digits:
        """Up to ``count`` candidates that may be proposed, best first: all decisions, once."""
        knobs = len(self._ledger.radices)
        states, tails = np.zeros((1, knobs), np.int64), _Tails.drawn(self._space, random)
        for decided in range(1, knobs + 1):
            states = self._continued(states, decided, tails, random)
            if decided == knobs:
                states = states[self._ledger.untaken(states)]
            states = self._best(states, count if decided == knobs else self._beam.width)
        return states if knobs else states[:0]

    def _continued(self, states: Digits, decided: int, tails: "_Tails", random: np.random.Generator) -> Digits:
        """Continuations of ``states`` to so many decisions, completed, in random order; all are different."""
        radix = int(self._ledger.radices[decided - 1])
        made = np.repeat(states, radix, axis=0)
        made[:, decided - 1] = np.tile(np.arange(radix), len(states))
        parents = np.repeat(np.arange(len(states)), radix)
        made, is_allowed = self._completed(made, decided, tails, random)
        order = random.permutation(len(made))
        order = order[is_allowed[order]]
        each = max(self._beam.rated // max(len(states), 1), 1)
        order = order[_places(parents[order]) < each]
        kept = random.random(len(order)) >= self._beam.dropout
        return made[order[kept]] if kept.any() else made[order]

    def _completed(
        self, made: Digits, decided: int, tails: "_Tails", random: np.random.Generator
    ) -> tuple[Digits, Mask]:
        """``made``, completed, and which of them are candidates."""
        made = self._space.completed(made, decided)
        is_allowed = self._space.allowed(made)
        for _ in range(_TRIES):
            rows = np.flatnonzero(~is_allowed)
            if not len(rows):
                break
            made[rows, decided:] = tails.like(made[rows], random)[:, decided:]
            is_allowed[rows] = self._space.allowed(made[rows])
        return made, is_allowed

    def _best(self, states: Digits, count: int) -> Digits:
        """The ``count`` best; of equally good ones the first."""
        if len(states) <= 1:
            return states[:count]
        return states[np.argsort(-self._score(states), kind="stable")[:count]]


@dataclass(frozen=True, slots=True)
class _Tails:
    """Random candidates, in the order of their first decisions: in a union, of their members."""

    digits: Digits

    @staticmethod
    def drawn(space: Candidates, random: np.random.Generator) -> "_Tails":
        """Of a space; none, if it has none."""
        if 0 in space.radices or not space.radices:
            return _Tails(np.zeros((0, len(space.radices)), np.int64))
        drawn = space.sample(_DRAWN, random)
        return _Tails(drawn[np.argsort(drawn[:, 0], kind="stable")])

    def like(self, states: Digits, random: np.random.Generator) -> Digits:
        """For each of ``states`` a candidate, with the same first decision if there is one."""
        if not len(self.digits):
            return states
        begin = np.searchsorted(self.digits[:, 0], states[:, 0], side="left")
        end = np.searchsorted(self.digits[:, 0], states[:, 0], side="right")
        begin, end = np.where(begin < end, begin, 0), np.where(begin < end, end, len(self.digits))
        return self.digits[begin + (random.random(len(states)) * (end - begin)).astype(np.int64)]


def _places(groups: Digits) -> Digits:
    """For each element, how many of the same group are before it."""
    order = np.argsort(groups, kind="stable")
    grouped = groups[order]
    starts = np.searchsorted(grouped, grouped, side="left")
    places = np.empty(len(groups), np.int64)
    places[order] = np.arange(len(groups)) - starts
    return places
