"""The search itself: algorithms of nodes, network by network, and then schedules of all kernels together."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tilewright.base.errors import BadInput
from tilewright.measure.records import Records
from tilewright.model import CompiledModel
from tilewright.networks.network import Untuned, computed_of
from tilewright.networks.place import HERE, Place
from tilewright.networks.plan import Plan
from tilewright.tune.measurer import Measurer
from tilewright.tune.model_tuner import Gain, ModelTuner, Progress, between_bytes
from tilewright.tune.ways import WayTuner


class Watch(Protocol):
    """Is told how a search goes."""

    def say(self, text: str) -> None:
        """What happens; only now and then of importance."""
        ...

    def show(self, progress: Progress, seconds_left: float) -> None:
        """The state after a round."""
        ...

    def warn(self, text: str) -> None:
        """What a user should know."""
        ...


class Unwatched:
    """Tells nobody."""

    def say(self, text: str) -> None:
        """Nothing."""

    def show(self, progress: Progress, seconds_left: float) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a search: ``ways``, of each network, algorithms with which it is faster, or None; schedules of
    kernels, in ``gains``. ``bases``: each network with its algorithms, for which schedules were searched."""

    ways: tuple[WayTuner | None, ...]
    bases: tuple[CompiledModel, ...]
    tuner: ModelTuner
    gains: tuple[Gain, ...]


class Search:
    """The search for networks that are compiled for one target and number of threads."""

    def __init__(
        self,
        networks: Sequence[Untuned],
        plan: Plan,
        records: Records,
        measurer: Measurer,
        watch: Watch,
        place: Place = HERE,
    ) -> None:
        self._place = place
        self._networks = networks
        self._plan = plan
        self._records = records
        self._measurer = measurer
        self._watch = watch
        first = networks[0]
        self._target, self._threads = first.model.options.target, first.threads
        self._simulated, self._device = place.simulated(self._target), place.device()
        self.ways = tuple(map(self._ways_of, networks))
        """How each network's nodes may be computed."""

    def _ways_of(self, network: Untuned) -> WayTuner:
        between = between_bytes(computed_of(network.model), self._target)
        return WayTuner(network.model.compiled.choices, self._threads, between, self._simulated, self._device)

    def run(self) -> Found:
        """Compare algorithms in at most half of the time, search schedules in the rest, and confirm them.

        Raises ``BadInput`` for a network in which nothing is open.
        """
        begin, seconds = time.monotonic(), 60 * self._plan.minutes
        self._measure_ways(begin, seconds / 2)
        bases = tuple(map(self._with_ways, self._networks, self.ways))
        left = begin + seconds - time.monotonic()
        tuner = self._tuner(bases)
        for place, (network, ways) in enumerate(zip(self._networks, self.ways, strict=True)):
            if not ways.jobs and not any(kernel.calls[place] for kernel in tuner.kernels):
                raise BadInput(
                    f"{network.network.name} has no kernel with fixed extents and something to choose; give --shape"
                )
        self._search(tuner, time.monotonic() + left)
        used = (
            None if base is network.model else ways
            for network, base, ways in zip(self._networks, bases, self.ways, strict=True)
        )
        return Found(tuple(used), bases, tuner, tuple(tuner.confirm()))

    def _measure_ways(self, begin: float, seconds: float) -> None:
        """Each network has an equal part of the time; what one leaves goes to the next."""
        for number, ways in enumerate(self.ways, 1):
            end = begin + seconds * number / len(self.ways)
            for done in ways.measure(self._measurer, partial(_is_before, end)):
                self._watch.say(f"{done} of {len(ways.jobs)} kernels measured, of all ways to compute nodes")

    def _with_ways(self, network: Untuned, ways: WayTuner) -> CompiledModel:
        """The network with measured algorithms and layouts if it is faster with them; else as it was."""
        found = tuple(ways.used(self._records))
        after = network.with_records(found) if found else network.model
        if after.compiled.choices.decisions == network.model.compiled.choices.decisions:
            return network.model
        return after if self._place.in_turns(network.model, after, network.feeds).is_kept else network.model

    def _tuner(self, bases: Sequence[CompiledModel]) -> ModelTuner:
        pairs = zip(bases, self._networks, strict=True)
        untuned = (
            [self._place.seconds_of(base, network.feeds) for base, network in pairs]
            if self._plan.measures_first
            else []
        )
        return ModelTuner(
            [computed_of(base) for base in bases],
            self._target,
            self._measurer,
            replace(self._plan.setup(self._threads), simulated=self._simulated, device=self._device),
            self._records,
            self._plan.scheduler(untuned),
        )

    def _search(self, tuner: ModelTuner, end: float) -> None:
        for progress in tuner.run(partial(_is_before, end)):
            self._watch.show(progress, end - time.monotonic())
        for kernel in tuner.kernels:
            if causes := kernel.tuner.history.causes():
                self._watch.warn(f"{kernel.name}: {causes}")


def _is_before(end: float) -> bool:
    return time.monotonic() < end
