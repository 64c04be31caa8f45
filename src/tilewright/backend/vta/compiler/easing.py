"""Both ends of a program in smaller steps, as nothing hides what is loaded first, and what is stored last."""

from collections.abc import Sequence

from tilewright.backend.vta.compiler.beginning import begun
from tilewright.backend.vta.compiler.ending import ended
from tilewright.backend.vta.compiler.recording import Recorded
from tilewright.backend.vta.config import Config


def eased(steps: Sequence[Recorded], config: Config) -> list[Recorded]:
    """Steps that do the same, for the same virtual threads."""
    return ended(begun(steps, config), config)
