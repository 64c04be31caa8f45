"""Which core is simulated for a target, and what records call it. Needs neither an emulator nor a disassembler."""

from dataclasses import replace

from tilewright.base.errors import Unsupported
from tilewright.target.cores import CORES, Core
from tilewright.target.target import Architecture, Target

VERSION = 1
"""Of the model: measurements by another version are of another device."""


def core_of(target: Target) -> Core:
    """The core of ``target``, with its caches. Raises ``Unsupported`` if there is no table of it."""
    if target.arch is not Architecture.AARCH64 or target.cpu not in CORES:
        known = ", ".join(CORES)
        raise Unsupported(f"cycles of {target.arch.value},{target.cpu} can't be simulated; of aarch64: {known}")
    core = CORES[target.cpu]
    third = None if core.l3 is None or not target.l3_bytes else replace(core.l3, bytes=target.l3_bytes)
    first, second = replace(core.l1, bytes=target.l1_bytes), replace(core.l2, bytes=target.l2_bytes)
    return replace(core, l1=first, l2=second, l3=third)


def device_of(target: Target) -> str:
    """What ``measure.job.Timing.simulated`` says of measurements for ``target``: the core, and the version of the
    model.

    Raises ``Unsupported`` if it can't be simulated.
    """
    core_of(target)
    return f"{target.cpu} {VERSION}"
