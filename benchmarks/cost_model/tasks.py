"""Tasks: the distinct kernels of the two networks.

The networks are compiled without minimal filtering, so that each convolution is one kernel.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewright import compile as compiled
from tilewright.base.search import Spaces
from tilewright.base.settings import Settings
from tilewright.loops.identity import identity
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.space.space import Candidates
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target
from tilewright.tune.recorded import named
from tilewright.tune.spaces import candidates_of

from .networks import NETWORKS


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel of ``network``; ``key`` is what records know it by."""

    network: str
    name: str
    key: str
    naive: Program

    def space(self) -> Candidates | None:
        """Templates and sketches; None if they leave nothing to choose."""
        return candidates_of(self.naive, Target.host(), Spaces.ALL, threads=1)

    @property
    def iterations(self) -> int:
        """Of all blocks, as the program stands."""
        blocks = (stmt for stmt in walk(self.naive.body) if isinstance(stmt, Block))
        return sum(
            prod(int(axis.extent.value) for axis in block.axes if isinstance(axis.extent, Const)) for block in blocks
        )


def tasks(networks: tuple[str, ...] = tuple(NETWORKS)) -> tuple[Task, ...]:
    """Those of ``networks``; what two networks share is of the first."""
    found: dict[str, Task] = {}
    for network in networks:
        for task in _tasks(network):
            found.setdefault(task.key, task)
    return tuple(found.values())


def _tasks(network: str) -> Iterator[Task]:
    untuned = replace(Settings.from_environment(), records=None)
    model = compiled(NETWORKS[network](), threads=1, math="strict", settings=untuned)
    for kernel in model.compiled.kernels:
        naive = named(kernel.naive)
        yield Task(network, kernel.naive.name, identity(naive), naive)
