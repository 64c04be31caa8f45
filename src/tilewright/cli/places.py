"""Where verbs run a model: in this process, or on a device of a fleet."""

import argparse
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput
from tilewright.base.events import Listener, ignore
from tilewright.base.files import reason
from tilewright.cli.fleet_options import SIMULATED, fleet_of, for_simulation, on_device, refuse_without_device
from tilewright.cli.options import compiled, is_artifact, loaded
from tilewright.measure.turns import Plan, Timing

if TYPE_CHECKING:
    from tilewright.fleet.fleet import Leased
    from tilewright.fleet.remote import RemoteModels
    from tilewright.insight.profile import Profile
    from tilewright.model import CompiledModel
    from tilewright.runtime.runnable import RunnableModel
    from tilewright.simulation.cycles import Simulated


@dataclass(frozen=True, slots=True)
class Local:
    """This process."""

    model: "RunnableModel"

    def device(self) -> None:
        """There is none."""

    @property
    def simulated(self) -> str:
        """Nothing is."""
        return ""

    def run(self, feeds: Mapping[str, Array], timeout: float | None = None) -> list[Array]:
        """See ``RunnableModel.run``."""
        return self.model.run(None, feeds, timeout=timeout)

    def profile(self, feeds: Mapping[str, Array], seconds: float, *, roofs: bool) -> "Profile":
        """Times by kernel; work is known only of a model that was compiled here."""
        from tilewright.insight.profile import profile
        from tilewright.model import CompiledModel

        if isinstance(self.model, CompiledModel):
            return self.model.profile(feeds, seconds=seconds, roofs=roofs)
        return profile(self.model.executable, feeds, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A device. ``model`` tells of the model, and can be run only if this machine is of the same kind."""

    model: "RunnableModel"
    leased: "Leased"
    remote: "RemoteModels"

    def device(self) -> dict[str, object]:
        """Its name, and its load, clock speed and temperature after the last run, as JSON; of an emulated one, its core
        and cycles."""
        device = self.leased.device
        return {"name": device.name, "machine": dict(self.remote.machine), "simulated": device.simulated}

    @property
    def simulated(self) -> str:
        """Whose cycles its times are; empty if they are times."""
        return self.leased.device.simulated

    @property
    def threads(self) -> int:
        """Of a run."""
        return self.remote.threads

    def run(self, feeds: Mapping[str, Array], timeout: float | None = None) -> list[Array]:
        """See ``RunnableModel.run``. Raises ``FleetError`` if the device is lost."""
        return self.remote.run(feeds, timeout)

    def profile(self, feeds: Mapping[str, Array], seconds: float, *, roofs: bool) -> "Profile":
        """Times by kernel on the device, whose roofs are not known."""
        from tilewright.insight.profile import profile_of
        from tilewright.model import CompiledModel

        del roofs
        samples = self.remote.samples(feeds, seconds)
        known = self.model.compiled if isinstance(self.model, CompiledModel) else None
        return profile_of(samples, self.model.executable.manifest, feeds, known)

    def times(self, feeds: Mapping[str, Array], plan: Plan) -> Timing:
        """Of runs, in turns of the plan."""
        (timing,) = self.remote.turns(feeds, plan)
        return timing


@dataclass(slots=True)
class Emulated:
    """An emulator. What runs of it are, ``run`` has found: its cycles are those of all others."""

    model: "CompiledModel"
    _found: "Simulated | None" = None

    @property
    def threads(self) -> int:
        """Of a run."""
        return 1

    def device(self) -> dict[str, object]:
        """Its core, and the cycles of the last run, as JSON."""
        cycles = 0.0 if self._found is None else self._found.cost.cycles
        return {"name": f"{SIMULATED}: {self.simulated}", "machine": {"cycles": cycles}, "simulated": self.simulated}

    @property
    def simulated(self) -> str:
        """Whose cycles its times are."""
        from tilewright.simulation.cores import device_of

        return device_of(self.model.options.target)

    def run(self, feeds: Mapping[str, Array], timeout: float | None = None) -> list[Array]:
        """The outputs. Raises as ``simulate`` does."""
        from tilewright.networks.simulated import simulated_run

        del timeout
        self._found = simulated_run(self.model, feeds)
        return list(self._found.outputs)

    def times(self, feeds: Mapping[str, Array], plan: Plan) -> Timing:
        """Of the run that was, at 1 GHz."""
        from tilewright.networks.simulated import seconds

        del plan
        if self._found is None:
            self.run(feeds)
        assert self._found is not None
        return Timing(((seconds(self._found),),))


@contextmanager
def simulated_or_placed(options: argparse.Namespace) -> "Generator[Local | Elsewhere | Emulated]":
    """As ``placed``, also in an emulator. Raises ``Unsupported`` for a target that can't be simulated."""
    if options.device != SIMULATED:
        with placed(options) as place:
            yield place
        return
    if is_artifact(options.model):
        raise BadInput(f"--device {SIMULATED} compiles a model for --target: {options.model} is an artifact")
    yield Emulated(compiled(for_simulation(options), ignore))


@contextmanager
def placed(options: argparse.Namespace, listener: Listener = ignore) -> Generator[Local | Elsewhere]:
    """A context manager: the model that the options name, where it is to be run; a device is leased meanwhile.

    Raises as compiling and loading do, and ``FleetError``, ``FleetAuthError``, ``BadInput`` if there is no such device.
    """
    refuse_without_device(options)
    if options.device is None:
        yield Local(loaded(options, listener))
        return
    with fleet_of(options) as fleet:
        from tilewright.fleet.remote import RemoteModels

        model, artifact = _artifact(options if is_artifact(options.model) else on_device(options, fleet), listener)
        with fleet.request(options.device, priority=options.priority, timeout=options.wait) as leased:
            yield Elsewhere(model, leased, RemoteModels(leased, [artifact], options.threads))


def _artifact(options: argparse.Namespace, listener: Listener) -> "tuple[RunnableModel, bytes]":
    from tilewright.networks.device import saved

    if not is_artifact(options.model):
        model = compiled(options, listener)
        return model, saved(model)
    path: Path = options.model
    try:
        return loaded(options, listener), path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} can't be read: {reason(error)}") from error
