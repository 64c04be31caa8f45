"""Options of the tuner: searchers, cost models, goals and schedulers."""

from enum import Enum


class Search(Enum):
    """The searchers."""

    ANNEALING = "annealing"
    """Simulated annealing on the cost model, which proposes good and diverse batches (Chen et al., 2018)."""
    GENETIC = "genetic"
    """What was fast is crossed and mutated."""
    EVOLUTION = "evolution"
    """What the cost model says is good among the descendants of what was fast (Zheng et al., 2020)."""
    BEAM = "beam"
    """Decisions one after the other; after each, only what the cost model prefers goes on (Adams et al., 2019)."""
    RANDOM = "random"
    GRID = "grid"
    """All candidates in order, for small spaces."""

    @property
    def asks_a_model(self) -> bool:
        """Whether candidates are rated before they are measured."""
        return self in (Search.ANNEALING, Search.EVOLUTION, Search.BEAM)


class Model(Enum):
    """The cost models."""

    TREES = "trees"
    """Gradient-boosted trees over the features of a candidate."""
    TREE_GRU = "tree-gru"
    """A recurrent network over the loops of a candidate (Chen et al., 2018), which must be scheduled for that: some
    milliseconds each, so fewer of them are looked at. Needs torch."""
    STATEMENTS = "statements"
    """Gradient-boosted trees over the innermost statements of a candidate (Zheng et al., 2020), one model for all
    kernels that are tuned together. Those of sketches are looked at by patterns, thousands a second; others must be
    scheduled for that, too."""
    RANDOM = "random"
    """Scores that say nothing: what is found with them is found without a model."""


class Spaces(Enum):
    """What is searched for a kernel."""

    TEMPLATES = "templates"
    """What the compiler itself chooses from, and the larger space of contractions."""
    SKETCHES = "sketches"
    """What is derived from the program alone (Zheng et al., 2020)."""
    ALL = "all"
    """Both."""


class Goal(Enum):
    """What is minimized over the networks that are tuned together (Zheng et al., 2020, table 2)."""

    SUM = "sum"
    """The sum of their latencies."""
    REQUIREMENTS = "requirements"
    """The same, but nothing is gained by a network that is faster than required."""
    SPEEDUP = "speedup"
    """The negated geometric mean of speedups."""


class Scheduling(Enum):
    """Which kernel is searched next."""

    GRADIENT = "gradient"
    """The one by which the goal is expected to come nearest (Zheng et al., 2020)."""
    ROUND_ROBIN = "round-robin"
    """One after the other: the baseline."""
