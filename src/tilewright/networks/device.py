"""Networks that are tuned for a device of a fleet, on devices of that kind."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.fleet.fleet import Fleet
from tilewright.fleet.remote import RemoteModels
from tilewright.fleet.runner import FleetRunner
from tilewright.graph import Array
from tilewright.measure.turns import Plan, Timing
from tilewright.model import CompiledModel
from tilewright.networks.comparison import ALONE, COMPARING, Comparison
from tilewright.target.target import Target
from tilewright.tune.measurer import Bench


class OnDevice:
    """A ``Place``: all devices of ``key`` measure candidates, and one at a time whole networks, which are compiled for
    its target."""

    def __init__(self, fleet: Fleet, key: str, priority: int = 0) -> None:
        self._fleet = fleet
        self._key = key
        self._priority = priority
        self._runner = FleetRunner(fleet, key, priority=priority)

    def simulated(self, target: Target) -> str:
        """Whose cycles the devices tell, if they are emulated."""
        del target  # it is theirs
        return self._fleet.simulated(self._key)

    def device(self) -> str:
        """The facts of the devices."""
        return self._fleet.facts(self._key)

    def bench(self) -> AbstractContextManager[Bench]:
        """The devices."""
        return self._runner

    def in_turns(self, before: CompiledModel, after: CompiledModel, feeds: Mapping[str, Array]) -> Comparison:
        """On a device. Raises ``FleetError`` if it is lost."""
        one, other = self._turns((before, after), feeds, COMPARING)
        return Comparison(one, other)

    def seconds_of(self, model: CompiledModel, feeds: Mapping[str, Array]) -> float:
        """On a device. Raises ``FleetError`` if it is lost."""
        (timing,) = self._turns((model,), feeds, ALONE)
        return timing.median

    def _turns(self, models: Sequence[CompiledModel], feeds: Mapping[str, Array], plan: Plan) -> list[Timing]:
        self._runner.close()  # it may hold the only device
        artifacts = [saved(model) for model in models]
        with self._fleet.request(self._key, priority=self._priority) as device:
            return RemoteModels(device, artifacts, models[0].executable.threads).turns(feeds, plan)


def saved(model: CompiledModel) -> bytes:
    """The artifact of a model."""
    with TemporaryDirectory(prefix="tilewright-artifact-") as folder:
        path = Path(folder) / "model.tw"
        model.save(path)
        return path.read_bytes()
