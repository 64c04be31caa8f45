"""Options of the super-optimizer: effort and strategy of the search for a faster graph."""

from enum import Enum

from tilewright.base.choices import Choice


class Superopt(Choice):
    """The effort of the search for an equivalent graph that takes less time."""

    OFF = "off"
    """No search: only rules that always pay are applied."""
    FAST = "fast"
    """A search of some seconds; the graph that the compiler's cost model rates best is taken."""
    MAX = "max"
    """A search of up to a minute; the best few graphs are measured, and the fastest is taken."""


class Strategy(Enum):
    """How the space of equivalent graphs is searched."""

    BACKTRACKING = "backtracking"
    """Best-first search over graphs, which may visit graphs that cost more than the best so far."""
    SATURATION = "saturation"
    """Equality saturation: rules only add terms; the cheapest graph is extracted at the end."""
