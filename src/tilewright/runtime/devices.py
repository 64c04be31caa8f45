"""Parts of artifacts that are not for processors: programs of devices, and what opens these.

The ``architecture`` of such a part is the name of a kind of device (``artifact.DEVICES``). Its module has a function
``opening``. It is imported when a model with such a part is loaded, and not before: this folder needs none of it.
"""

from importlib import import_module
from typing import Protocol, cast

from tilewright.base.errors import BadInput
from tilewright.runtime.artifact.artifact import DEVICES, Artifact
from tilewright.runtime.executable import Executable


class Opener(Protocol):
    """Runs the programs of one model, on one device."""

    def executable(self, found: Artifact) -> Executable:
        """What runs a program. Raises ``BadInput`` if the device is not what it is for."""
        ...


class Opening(Protocol):
    """Makes openers."""

    def __call__(self, accelerator: object) -> Opener:
        """``accelerator``: what ``load`` was given; None: the device that the artifact names."""
        ...


class Openers:
    """The openers of one model, each made when it is first needed."""

    def __init__(self, accelerator: object = None) -> None:
        self.accelerator = accelerator
        self._made: dict[str, Opener] = {}

    def executable(self, found: Artifact) -> Executable:
        """What runs a part for a device."""
        kind = found.build.architecture
        if kind not in self._made:
            opening = cast(Opening, import_module(DEVICES[kind]).opening)
            self._made[kind] = opening(self.accelerator)
        return self._made[kind].executable(found)

    def require_used(self) -> None:
        """Raise ``BadInput`` if an accelerator was given and no part is for one."""
        if self.accelerator is not None and not self._made:
            raise BadInput(f"accelerator={self.accelerator}: no part of the model is for an accelerator; leave it out")
