"""Networks tuned for an AArch64 processor that is not here, in simulated cycles (``tilewright.simulation``)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from tilewright.graph import Array
from tilewright.measure.simulated import simulating
from tilewright.measure.turns import Timing
from tilewright.model import CompiledModel
from tilewright.networks.comparison import Comparison
from tilewright.runtime.sizing import default_threads
from tilewright.simulation.cores import device_of
from tilewright.simulation.cycles import HERTZ, simulate
from tilewright.simulation.cycles import Simulated as Run
from tilewright.target.target import Target
from tilewright.tune.measurer import Bench


class Simulated:
    """A ``Place``: what runs here is emulated, on all processors at once, as that does not change its cycles."""

    def simulated(self, target: Target) -> str:
        """The core. Raises ``Unsupported`` if there is no table of it."""
        return device_of(target)

    def device(self) -> str:
        """Nothing: cycles are the same on every machine."""
        return ""

    def bench(self) -> AbstractContextManager[Bench]:
        """Child processes with an emulator each."""
        return simulating(default_threads())

    def in_turns(self, before: CompiledModel, after: CompiledModel, feeds: Mapping[str, Array]) -> Comparison:
        """One run of each: another one has as many cycles."""
        first, second = (Timing(((self.seconds_of(model, feeds),),)) for model in (before, after))
        return Comparison(first, second)

    def seconds_of(self, model: CompiledModel, feeds: Mapping[str, Array]) -> float:
        """Of a run with empty caches, at 1 GHz."""
        return seconds(simulated_run(model, feeds))


def seconds(run: Run) -> float:
    """What its cycles take at 1 GHz."""
    return run.cost.cycles / HERTZ


def simulated_run(model: CompiledModel, feeds: Mapping[str, Array]) -> Run:
    """A run of a compiled model in an emulator. Raises as ``simulate`` does."""
    return simulate(model.contents(), feeds)
