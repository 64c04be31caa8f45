"""How hard to look for a better graph, and how."""

from enum import Enum

from tilewright.base.errors import BadInput
from tilewright.base.names import shown


class Superopt(Enum):
    """What is spent on the search for a graph that computes the same and takes less time."""

    OFF = "off"
    """No search: only rules that always pay are applied."""
    FAST = "fast"
    """A search of some seconds; what the compiler's own model rates best is taken."""
    MAX = "max"
    """A search of up to a minute; the best few are measured, and the fastest is taken."""

    @staticmethod
    def named(name: "Superopt | str") -> "Superopt":
        """The level called ``name``. Raises ``BadInput`` if there is none."""
        known = {level.value: level for level in Superopt}
        found = name if isinstance(name, Superopt) else known.get(name)
        if found is None:
            raise BadInput(f"superopt={shown(name)} is no level of the search; there is {', '.join(known)}")
        return found


class Strategy(Enum):
    """How the space of equal graphs is searched."""

    BACKTRACKING = "backtracking"
    """Graph after graph, the cheapest first; some may cost more than the best so far."""
    SATURATION = "saturation"
    """All that rules make is kept beside what there was; the cheapest graph is extracted at the end."""
