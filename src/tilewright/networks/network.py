"""A network that is tuned: how it is compiled, with the analytic choices or with records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from tilewright.base.arrays import Array, random_array
from tilewright.base.errors import BadInput
from tilewright.base.events import Listener, ignore
from tilewright.base.settings import Settings
from tilewright.insight.places import sources
from tilewright.loops.identity import identity
from tilewright.measure.records import Records
from tilewright.measure.row import Record
from tilewright.model import CompiledModel
from tilewright.tune.model_tuner import Computed
from tilewright.tune.recorded import named

Compile: TypeAlias = Callable[[Settings, Listener], CompiledModel]
"""Compiles a network: each time in the same way, but for the records that the settings name."""


@dataclass(frozen=True, slots=True)
class Network:
    """``name``: in messages and results."""

    name: str
    compile: Compile


@dataclass(frozen=True)
class Untuned:
    """A network, compiled without records, and random inputs for it."""

    network: Network
    model: CompiledModel
    feeds: dict[str, Array]

    @staticmethod
    def of(network: Network, listener: Listener = ignore) -> "Untuned":
        """Compile it. Raises ``TilewrightError`` as compiling does, ``BadInput`` if a shape is known only in a run."""
        model = network.compile(replace(Settings.from_environment(), records=None), listener)
        generator = np.random.default_rng(0)
        feeds: dict[str, Array] = {}
        for spec in model.inputs:
            if spec.static_shape is None:
                raise BadInput(f"{network.name}: input {spec} has dimensions that are known at run time; give --shape")
            feeds[spec.name] = random_array(spec.dtype, spec.static_shape, generator)
        return Untuned(network, model, feeds)

    @property
    def threads(self) -> int:
        """Of a run."""
        return self.model.executable.threads

    @cached_property
    def names(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Its names of kernels, and their nodes, by the kernels' keys in records."""
        return {
            identity(named(kernel.naive)): (
                kernel.program.name,
                tuple(dict.fromkeys(source for group in kernel.groups for source in sources(group))),
            )
            for kernel in self.model.compiled.kernels
        }

    def with_records(self, found: Iterable[Record]) -> CompiledModel:
        """The network compiled with these records and no others."""
        with TemporaryDirectory(prefix="tilewright-tuned-") as folder:
            path = Path(folder) / "draft.db"
            with Records.open(path) as draft, draft.session({"draft": self.network.name}) as session:
                for record in found:
                    draft.add(session, record.job, record.outcome, record.state)
            return self.network.compile(replace(Settings.from_environment(), records=path), ignore)


def computed_of(model: CompiledModel) -> list[Computed]:
    """The kernels of a model, for a tuner."""
    return [Computed(kernel.naive, kernel.calls, kernel.constants) for kernel in model.compiled.kernels]
