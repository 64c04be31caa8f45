"""How a device does what it is asked for: by itself, in an emulator, or by an agent on a board without Python.

A ``Way`` names the processes that measure kernels and run models; what a client sends is the same for all. A new way is
two such processes, and an ``Inventory`` that says what the device is.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.fleet.inventory import Inventory
from tilewright.fleet.model_child import CHILD as MODELS
from tilewright.measure.agent import Agent
from tilewright.measure.limits import Limits
from tilewright.measure.simulated import CHILD as SIMULATED_KERNELS
from tilewright.measure.simulated import LIMITS as SIMULATED_LIMITS
from tilewright.measure.worker import CHILD as KERNELS


@dataclass(frozen=True, slots=True)
class Way:
    """``measuring``, ``running``: what starts the processes for kernels and for models; ``limits``: of measurements.

    ``is_apart``: candidates run outside of the processes that measure them.
    """

    measuring: Sequence[str]
    running: Sequence[str]
    limits: Limits
    is_apart: bool = False

    def with_memory(self, memory_bytes: int) -> "Way":
        """The same, with so much memory for a measured kernel."""
        return replace(self, limits=replace(self.limits, memory_bytes=memory_bytes))


NATIVE = Way(KERNELS, MODELS, Limits())
SIMULATED = Way(SIMULATED_KERNELS, (sys.executable, "-P", "-m", "tilewright.fleet.simulated_models"), SIMULATED_LIMITS)


def by_agent(agent: Agent) -> Way:
    """Programs behind an agent."""
    measuring, running = (
        (sys.executable, "-P", "-m", f"tilewright.{module}", f"--agent={agent}")
        for module in ("measure.agent_child", "fleet.agent_models")
    )
    return Way(measuring, running, Limits(), is_apart=True)


def limits_for(device: Inventory) -> Limits:
    """What a device is expected to have, by which it is waited for."""
    return SIMULATED_LIMITS if device.simulated else Limits()
