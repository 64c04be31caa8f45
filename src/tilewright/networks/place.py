"""Where candidates and whole networks are measured: by default on this machine (``networks.device``: elsewhere)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from tilewright.graph import Array
from tilewright.measure.pool import Pool
from tilewright.model import CompiledModel
from tilewright.networks.comparison import Comparison, in_turns, seconds_of
from tilewright.runtime.sizing import default_threads
from tilewright.target.target import Target
from tilewright.tune.measurer import Bench


class Place(Protocol):
    """Measures."""

    def simulated(self, target: Target) -> str:
        """Whose cycles are simulated for ``target``: see ``measure.job.Timing``; empty where code is timed."""
        ...

    def device(self) -> str:
        """What times depend on there beside the target: see ``measure.job.Timing``; empty on this machine."""
        ...

    def bench(self) -> AbstractContextManager[Bench]:
        """What measures candidates, until the context ends."""
        ...

    def in_turns(self, before: CompiledModel, after: CompiledModel, feeds: Mapping[str, Array]) -> Comparison:
        """Both networks on the same inputs."""
        ...

    def seconds_of(self, model: CompiledModel, feeds: Mapping[str, Array]) -> float:
        """The median time of a run."""
        ...


class Here:
    """This machine."""

    def simulated(self, target: Target) -> str:
        """None."""
        return ""

    def device(self) -> str:
        """Nothing."""
        return ""

    def bench(self) -> AbstractContextManager[Bench]:
        """A pool of child processes."""
        return Pool(default_threads())

    def in_turns(self, before: CompiledModel, after: CompiledModel, feeds: Mapping[str, Array]) -> Comparison:
        """In this process."""
        return in_turns(before, after, feeds)

    def seconds_of(self, model: CompiledModel, feeds: Mapping[str, Array]) -> float:
        """In this process."""
        return seconds_of(model, feeds)


HERE = Here()
