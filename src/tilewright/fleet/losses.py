"""Whether a job is the cause of the devices that were lost while they measured it, or chance is.

A job that brings down devices must not have all of them, and where power fails again and again, or a network does, jobs
lose devices without any fault of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_DEVICES = 3
MOST_LOSSES = 6
"""How many devices a job may lose, and how often the same few, without a suspicion."""
CHANCE = 1e-6
"""A suspect is innocent if so many losses are likelier than this, at the rate at which other jobs lose devices."""
ALL_LOSSES = 16
"""So many are enough in any case: where all devices are lost all the time, there is an end, too."""


@dataclass(slots=True)
class Losses:
    """Of all jobs: how many measurements were ``tried``, and how many of these ``lost`` their device."""

    tried: int = 0
    lost: int = 0

    def convict(self, devices: Sequence[str]) -> bool:
        """Whether a job is to be given up that has lost ``devices``."""
        own = len(devices)
        if len(set(devices)) < MOST_DEVICES and own < MOST_LOSSES:
            return False
        others = max(0, self.lost - own) / max(1, self.tried - own)
        return own >= ALL_LOSSES or others**own <= CHANCE
