"""How hard to look for a better graph, and how."""

from enum import Enum

from tilewright.base.choices import Choice


class Superopt(Choice):
    """What is spent on the search for a graph that computes the same and takes less time."""

    OFF = "off"
    """No search: only rules that always pay are applied."""
    FAST = "fast"
    """A search of some seconds; what the compiler's own model rates best is taken."""
    MAX = "max"
    """A search of up to a minute; the best few are measured, and the fastest is taken."""


class Strategy(Enum):
    """How the space of equal graphs is searched."""

    BACKTRACKING = "backtracking"
    """Graph after graph, the cheapest first; some may cost more than the best so far."""
    SATURATION = "saturation"
    """All that rules make is kept beside what there was; the cheapest graph is extracted at the end."""
