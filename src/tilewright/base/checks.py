"""What becomes of an index that lies outside of what it indexes, where only the data decide it."""

from enum import Enum

from tilewright.base.errors import BadInput


class Checks(Enum):
    """Memory is safe either way, also while another thread changes the indices: each is read once."""

    ON = "on"
    """The run raises ``IndexOutOfRange``, which names the node, the index and the extent; nothing is returned."""
    OFF = "off"
    """The nearest index within is taken, and nobody is told."""

    @staticmethod
    def named(name: "Checks | str") -> "Checks":
        """The choice called ``name``. Raises ``BadInput`` if there is none."""
        known = {checks.value: checks for checks in Checks}
        found = name if isinstance(name, Checks) else known.get(name)
        if found is None:
            raise BadInput(f"checks={name!r} is no choice for checks of indices; there is {', '.join(known)}")
        return found
