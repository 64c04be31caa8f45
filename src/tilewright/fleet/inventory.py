"""``Inventory``: what a device says of itself when it joins a fleet."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tilewright import __version__
from tilewright.base import fields
from tilewright.base.errors import BadInput
from tilewright.base.files import text_of
from tilewright.base.names import shown
from tilewright.measure.machine import machine_state
from tilewright.simulation.cores import device_of
from tilewright.target.target import Target

MOST_NAME = 64
"""Characters of a name or key."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """``name``: of this device alone; ``key``: of all devices that are alike. A request names either.

    ``target``: the text of a ``Target``; ``memory_bytes``: 0 if nobody knows; ``system``: the kernel and its release;
    ``governor``: of the processor's clock speed, empty if the system does not say; ``machine``: load, clock speed and
    temperature when it joined; ``simulated``: whose cycles it tells in place of times (``measure.job.Timing``), empty
    if it is what it says.
    """

    name: str
    key: str
    target: str
    cores: int
    memory_bytes: int
    system: str
    governor: str
    version: str
    machine: Mapping[str, float] = field(default_factory=dict[str, float])
    simulated: str = ""

    @staticmethod
    def of_this_machine(name: str, key: str | None = None, root: Path = Path("/sys")) -> "Inventory":
        """This machine. ``key``: by default the name of its processor; ``root``: the kernel's folder of devices.

        Raises ``BadInput`` for a name or key that is empty, too long or has other characters than letters, digits,
        ``-``, ``_`` and ``.``.
        """
        target = Target.host()
        return Inventory(
            checked_name(name),
            checked_name(target.cpu if key is None else key),
            str(target),
            target.cores,
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            f"{platform.system()} {platform.release()}",
            text_of(root / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            __version__,
            machine_state(root),
        )

    @staticmethod
    def emulated(name: str, key: str | None, target: Target) -> "Inventory":
        """An emulator of ``target`` on this machine. ``key``: by default ``simulated-`` and its processor.

        Raises as ``of_this_machine``, and ``Unsupported`` for a target whose cycles can't be simulated.
        """
        core = device_of(target)
        here = Inventory.of_this_machine(name, f"simulated-{target.cpu}" if key is None else key)
        system = f"emulator on {here.system}"
        return replace(here, target=str(target), cores=1, system=system, governor="", machine={}, simulated=core)

    @staticmethod
    def behind_agent(name: str, key: str | None, target: Target) -> "Inventory":
        """A board without Python. ``key``: by default its processor. Raises as ``of_this_machine``."""
        key = checked_name(target.cpu if key is None else key)
        return Inventory(checked_name(name), key, str(target), 1, 0, "programs, by an agent", "", __version__)

    @property
    def facts(self) -> str:
        """What its times depend on beside the target: what kind of board it is, by the key, and the governor of its
        clock speed. Empty if it tells cycles, which do not."""
        return "" if self.simulated else ", ".join(filter(None, (self.key, self.governor)))

    def message(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)

    @staticmethod
    def read(message: object) -> "Inventory":
        """From JSON. Raises ``KeyError``, ``TypeError`` or ``BadInput`` if it is malformed."""
        found = fields.mapping(message)
        texts = (fields.text(found[name]) for name in ("target", "system", "governor", "version"))
        target, system, governor, version = texts
        return Inventory(
            checked_name(fields.text(found["name"])),
            checked_name(fields.text(found["key"])),
            target,
            fields.whole(found["cores"]),
            fields.whole(found["memory_bytes"]),
            system,
            governor,
            version,
            fields.numbers(found["machine"]),
            fields.text(found.get("simulated", "")),
        )

    def answers_to(self, key: str) -> bool:
        """Whether a request for ``key`` means this device, too."""
        return key in (self.name, self.key)


def checked_name(name: str) -> str:
    """A name or key. Raises ``BadInput``."""
    if (
        not 0 < len(name) <= MOST_NAME
        or not name.isascii()
        or not name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    ):
        raise BadInput(f"{shown(name)} can't name a device: use up to {MOST_NAME} letters, digits, -, _ and .")
    return name
