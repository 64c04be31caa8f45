"""``AcceleratedModel``: a model of which an accelerator computes regions, between native parts of the CPU.

It is a model in stages (``staged``): a stage is a native part, or a region that the device runs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.functional import Counters
from tilewright.base.arguments import FilePath, checked
from tilewright.base.errors import BadInput, Unsupported
from tilewright.graph import Node
from tilewright.insight.explain import Explanation, Finding, NodeFate
from tilewright.offload.device import timed
from tilewright.offload.partition import Split
from tilewright.offload.recognize import Stays
from tilewright.offload.region import Region
from tilewright.offload.shipped import part_of
from tilewright.offload.units import sources
from tilewright.ops.called import Caller
from tilewright.runtime import artifact
from tilewright.runtime.runnable import Pickled, RunnableModel
from tilewright.runtime.stages import Kind, Plan
from tilewright.staged import StagedModel, Whole, Work


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A region: the nodes of the model that it begins with, and what a run of it takes once micro-ops are loaded."""

    name: str
    nodes: tuple[str, ...]
    cycles: int
    milliseconds: float
    """At the clock of the configuration."""
    counters: Counters

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.nodes)} nodes, {self.cycles} cycles ({self.milliseconds:.3f} ms), "
            f"{self.counters.loaded} bytes loaded, {self.counters.stored} stored"
        )


class AcceleratedModel(StagedModel):
    """A model on two devices."""

    def __init__(self, whole: Whole, split: Split) -> None:
        super().__init__(whole)
        self._split = split
        self._reports: tuple[RegionReport, ...] | None = None

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        """What the accelerator computes, and what it takes by the cycle simulator, whatever device is used."""
        if self._reports is None:
            split = self._split
            timing, clock = split.accelerator.timing, split.accelerator.config.clock_mhz
            self._reports = tuple(_report(name, region, timing, clock) for name, region in split.regions.items())
        return self._reports

    @property
    def stays(self) -> tuple[Stays, ...]:
        """The sums of products and of quantized values that the CPU computes, and why."""
        return self._split.stays

    @property
    def last_reports(self) -> dict[str, Report]:
        """What the device reported of the last run, by region."""
        last = self._split.device.last
        return {name: last[region] for name, region in self._split.regions.items() if region in last}

    def emit(self, *_: object, **_named: object) -> NoReturn:
        """Raises ``Unsupported``."""
        raise Unsupported("what ships without Python runs on the CPU alone; leave accelerator= out")

    def _saved(self, work: Work, plan: Plan) -> tuple[Plan, Sequence[artifact.Artifact | artifact.Stages]]:
        """As the base; a region is a part of which the code is its program."""
        name = work.done.op.name if isinstance(work.done, Node) else ""
        if name not in self._split.regions:
            return super()._saved(work, plan)
        return replace(plan, kind=Kind.PART), [part_of(name, self._split.regions[name], self._split.accelerator)]

    def __reduce__(self) -> tuple[Callable[[Pickled], RunnableModel], tuple[Pickled]]:
        """Raises as ``save``, and ``Unsupported`` if it runs on a device of its user's own."""
        if self._split.regions and self._split.accelerator.connect is not None:
            raise Unsupported(
                "the model can't be pickled: it runs on a device of your own; save it, and load it with accelerator="
            )
        return super().__reduce__()

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """As the base, with a finding for each region, and for each node that could be in one and is not."""
        found = super().explain(places, records)
        fates = {place: name for name, region in self._split.regions.items() for place in sources(region.units)}
        computed = (NodeFate(place, Caller.ACCELERATOR.value, (name,)) for place, name in fates.items())
        others = (row for row in found.nodes if row.node not in fates and row.node not in self._split.regions)
        return replace(found, nodes=(*computed, *others), findings=(*self._told(), *found.findings))

    def _told(self) -> Iterator[Finding]:
        config = self._split.accelerator.config
        for report in self.regions:
            reason = str(report).removeprefix(f"{report.name}: ")
            step = f"at {config.clock_mhz} MHz, by the cycle simulator; it begins with {report.nodes[0]}"
            yield Finding("accelerator", report.name, reason, step)
        for item in self.stays:
            yield Finding("not accelerated", item.place, item.reason, f"the CPU computes this {item.operator}")


def _report(name: str, region: Region, timing: Timing, clock_mhz: int) -> RegionReport:
    report = timed(region, timing, runs=2)
    assert report.cycles is not None, "a stopwatch has them"
    assert report.counters is not None, "and these"
    cycles = report.cycles.total
    nodes = tuple(unit.place for unit in region.units)
    return RegionReport(name, nodes, cycles, cycles / (1000 * clock_mhz), report.counters)
