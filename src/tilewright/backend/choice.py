"""Finds the back end that a user names: built in, installed, or given as an object."""

from tilewright.backend.api import Backend
from tilewright.backend.cpu.backend import CPU
from tilewright.backend.reference.backend import REFERENCE
from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.base.plugins import installed

GROUP = "tilewright.backends"
"""Group of entry points, in which installed packages name their back ends."""


def backend(given: Backend | str) -> Backend:
    """The back end itself, or the one of that name. Raises ``BadInput``, which lists the known ones."""
    if not isinstance(given, str):
        return given
    known = {**installed(GROUP, Backend), CPU.name: CPU, REFERENCE.name: REFERENCE}
    if given not in known:
        raise BadInput(f"backend={shown(given)}: give {', '.join(sorted(known))}, or a back end")
    return known[given]
