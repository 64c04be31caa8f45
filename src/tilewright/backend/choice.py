"""Finds the back end that a user names: built in, installed, or given as an object."""

from tilewright.backend.api import Backend
from tilewright.backend.cpu.backend import CPU
from tilewright.backend.reference.backend import REFERENCE
from tilewright.backend.vta.backend import Accelerator
from tilewright.backend.vta.config import PRESETS, TINY, VTA
from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.base.plugins import installed

GROUP = "tilewright.backends"
"""Group of entry points, in which installed packages name their back ends."""


def backend(given: Backend | str) -> Backend:
    """The back end itself, or the one of that name. Raises ``BadInput``, which lists the known ones."""
    if not isinstance(given, str):
        return given
    name, _, words = given.partition(",")
    if name == Accelerator.name:
        return _accelerator(words)
    known = {**installed(GROUP, Backend), CPU.name: CPU, REFERENCE.name: REFERENCE}
    if given not in known:
        names = sorted((*known, Accelerator.name))
        raise BadInput(f"backend={shown(given)}: give {', '.join(names)}, or a back end")
    return known[given]


def _accelerator(config: str) -> Accelerator:
    """The accelerator, perhaps with another configuration: ``large``. Each has a device of its own."""
    presets = {**PRESETS, TINY.name: TINY}
    if config and config not in presets:
        raise BadInput(f"backend={shown(f'{Accelerator.name},{config}')}: its configurations are {', '.join(presets)}")
    return Accelerator(presets[config] if config else VTA)
