"""Finds the recipe with the smallest error, the sensitivity of each layer, and the layers that have to stay float."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.base.events import Advanced, Listener
from tilewright.base.quantization import Method, Metric
from tilewright.graph import Graph
from tilewright.quantization.accuracy import Reference, Score
from tilewright.quantization.insertion import quantized
from tilewright.quantization.layers import Layer
from tilewright.quantization.parameters import Parameters, Recipe
from tilewright.quantization.placement import place
from tilewright.quantization.simulation import Simulation
from tilewright.quantization.statistics import Build

FEW = 8
"""Samples with which recipes are compared, and layers measured one by one. The bound is checked with all."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A recipe, its numbers, and its error with all layers quantized."""

    recipe: Recipe
    numbers: Parameters
    score: Score


@dataclass(frozen=True, slots=True)
class Measuring:
    """What measures choices: a simulation of ``layers``, and the float outputs."""

    layers: Sequence[Layer]
    simulation: Simulation
    reference: Reference

    def score(self, chosen: Sequence[Layer], numbers: Parameters) -> Score:
        """The errors with the ``chosen`` layers quantized by ``numbers``."""
        return self.reference.score(self.simulation.with_layers(chosen, numbers))

    def best_recipe(self, methods: Sequence[Method], allowed: Recipe, make: Callable[[Recipe], Parameters]) -> Prepared:
        """The best of ``methods``; then the search for ranges and bias correction, if ``allowed``, only where the error
        (L2, of all layers together) is smaller with them."""

        def prepared(recipe: Recipe) -> Prepared:
            numbers = make(recipe)
            return Prepared(recipe, numbers, self.score(self.layers, numbers))

        best = min((prepared(replace(allowed, method=method)) for method in methods), key=_error)
        if best.recipe.correct:
            best = min(prepared(replace(best.recipe, correct=False)), best, key=_error)
        if best.recipe.search:
            best = min(prepared(replace(best.recipe, search=False)), best, key=_error)
        return best

    def sensitivities(self, numbers: Parameters, listener: Listener) -> list[Score]:
        """For each layer, the errors with it alone quantized."""
        found: list[Score] = []
        for layer in self.layers:
            found.append(self.score([layer], numbers))
            listener(Advanced("sensitivity", len(found), len(self.layers), layer.name))
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """The positions of the layers that are quantized, the errors of the model compiled so, and in the simulation with
    all layers quantized."""

    kept: frozenset[int]
    score: Score
    all_layers: Score


@dataclass(frozen=True, slots=True)
class Bounded:
    """The search for the layers that are quantized: all but the most sensitive ones, until the error is within
    ``bound``. ``measuring`` has all samples; ``scores`` are the sensitivities; ``build`` compiles ``graph``."""

    graph: Graph
    measuring: Measuring
    numbers: Parameters
    scores: Sequence[Score]
    metric: Metric
    bound: float
    build: Build

    def result(self) -> Found:
        """By bisection in the simulation; then the compiled model decides, and more layers stay float if it must be."""
        layers = self.measuring.layers
        all_layers = self._simulated(0)
        left = fewest(len(layers), lambda count: self._fits(self._simulated(count) if count else all_layers))
        more = 1
        while left < len(layers):
            score = self._compiled(left)
            if self._fits(score):
                return Found(frozenset(self._kept(left)), score, all_layers)
            left, more = min(left + more, len(layers)), 2 * more
        return Found(frozenset(), Score(0.0, None if all_layers.top1 is None else 0.0), all_layers)

    def _fits(self, score: Score) -> bool:
        return score.error(self.metric) <= self.bound

    def _kept(self, left: int) -> list[int]:
        """The positions of all layers but the ``left`` most sensitive ones, in order."""
        order = sorted(range(len(self.scores)), key=lambda position: self.scores[position].l2)
        return sorted(order[: len(order) - left])

    def _simulated(self, left: int) -> Score:
        layers = self.measuring.layers
        return self.measuring.score([layers[position] for position in self._kept(left)], self.numbers)

    def _compiled(self, left: int) -> Score:
        chosen = [self.measuring.layers[position] for position in self._kept(left)]
        made = quantized(self.graph, chosen, place(self.graph, chosen), self.numbers)
        return self.measuring.reference.score(self.build(made))


def _error(made: Prepared) -> float:
    return made.score.l2


def fewest(count: int, holds: Callable[[int], bool]) -> int:
    """A number up to ``count`` for which ``holds``, and for one less it does not (bisection). It must for ``count``."""
    if holds(0):
        return 0
    failing, holding = 0, count
    while holding - failing > 1:
        middle = (failing + holding) // 2
        if holds(middle):
            holding = middle
        else:
            failing = middle
    return holding
