"""Parallel simulated annealing on a function that rates candidates (Chen et al., NeurIPS 2018, section 4)."""

from dataclasses import dataclass

import numpy as np

from tilewright.space.space import Digits
from tilewright.tune.search.ledger import Ledger, keys_of
from tilewright.tune.search.searcher import FloatArray, Score


@dataclass(frozen=True, slots=True)
class Annealing:
    """The length and number of the chains."""

    chains: int = 128
    steps: int = 500
    """Maximum number of steps."""
    patience: int = 50
    """Steps without a change of the best candidates after which to stop."""


class Chains:
    """Random walks through a space. Each search continues the chains, even if the scores have changed."""

    def __init__(self, ledger: Ledger, annealing: Annealing) -> None:
        self._ledger = ledger
        self._annealing = annealing
        self._points: Digits | None = None

    def search(self, score: Score, keep: int, random: np.random.Generator) -> "Best":
        """The best ``keep`` candidates met by the chains that are not taken; fewer if they met fewer."""
        points = self._ledger.draw(self._annealing.chains, random) if self._points is None else self._points
        best = Best(self._ledger, keep)
        if keep and len(points):
            self._points = self._walk(points, score, best, random)
        return best

    def _walk(self, points: Digits, score: Score, best: "Best", random: np.random.Generator) -> Digits:
        scores = score(points)
        best.offer(points, scores)
        unchanged = 0
        for step in range(self._annealing.steps):
            temperature = 1 - step / self._annealing.steps
            moved = neighbours(points, self._ledger.radices, random)
            found = self._rated(moved, score)
            accepted = random.random(len(points)) < np.exp(np.minimum((found - scores) / temperature, 0))
            points = np.where(accepted[:, None], moved, points)
            scores = np.where(accepted, found, scores)
            unchanged = 0 if best.offer(moved, found) else unchanged + 1
            if unchanged == self._annealing.patience:
                break
        return points

    def _rated(self, digits: Digits, score: Score) -> FloatArray:
        """The scores; minus infinity for candidates that are not allowed, so that no chain moves there."""
        allowed = self._ledger.space.allowed(digits)
        found = np.full(len(digits), -np.inf)
        if allowed.any():
            found[allowed] = score(digits[allowed])
        return found


class Best:
    """The ``keep`` best of all offered candidates that are not taken, best first."""

    def __init__(self, ledger: Ledger, keep: int) -> None:
        self._ledger = ledger
        self._keep = keep
        self._keys: set[bytes] = set()
        self.digits: Digits = np.empty((0, len(ledger.radices)), np.int64)
        self.scores: FloatArray = np.empty(0, np.float64)

    def offer(self, digits: Digits, scores: FloatArray) -> bool:
        """Offer these candidates; returns whether one entered the best. Of equal ones the first stays."""
        worst = self.scores[-1] if len(self.scores) == self._keep else -np.inf
        good = scores > worst
        digits, scores = digits[good], scores[good]
        new = self._ledger.untaken(digits)
        new &= np.array([key not in self._keys for key in keys_of(digits)], np.bool_)
        if not new.any():
            return False
        merged = np.concatenate([self.digits, digits[new]])
        rated = np.concatenate([self.scores, scores[new]])
        order = np.argsort(-rated, kind="stable")[: self._keep]
        self.digits, self.scores = merged[order], rated[order]
        self._keys = set(keys_of(self.digits))
        return True


def neighbours(points: Digits, radices: Digits, random: np.random.Generator) -> Digits:
    """For each candidate a neighbour, which differs in one knob; itself if no knob has a second value."""
    movable = np.flatnonzero(radices > 1)
    moved = points.copy()
    if movable.size:
        rows = np.arange(len(points))
        knobs = movable[random.integers(0, movable.size, len(points))]
        steps = random.integers(1, radices[knobs])
        moved[rows, knobs] = (points[rows, knobs] + steps) % radices[knobs]
    return moved
