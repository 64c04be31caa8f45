"""``LibraryModel``: a model of which a library computes units, between native parts.

It is a model in stages (``staged``): a stage is a native part, or a call of the library.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from tilewright import __version__
from tilewright.base.arguments import FilePath, checked
from tilewright.base.errors import BadInput, Unsupported
from tilewright.graph import Node
from tilewright.insight.explain import Explanation, Fate, Finding, NodeFate
from tilewright.offload.library.placing import Placed, Placing
from tilewright.offload.library.units import Kept
from tilewright.runtime import artifact
from tilewright.runtime.library.onednn import NAME
from tilewright.runtime.library.step import StepExecutable, written
from tilewright.runtime.stages import Plan
from tilewright.staged import ExecutedOperator, StagedModel, Whole, Work


class LibraryModel(StagedModel):
    """A model with calls of a library."""

    def __init__(self, whole: Whole, placing: Placing) -> None:
        super().__init__(whole)
        self._placing = placing

    @property
    def library(self) -> str:
        """The library and its version."""
        return f"{NAME} {self._placing.version}"

    @property
    def calls(self) -> Mapping[str, Placed]:
        """What the library computes, by the names of stages."""
        return self._placing.calls

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The convolutions and products of our own kernels, and why."""
        return self._placing.kept

    def emit(self, *_: object, **_named: object) -> NoReturn:
        """Raises ``Unsupported``."""
        raise Unsupported("what ships without Python has no library; leave library= out")

    def _saved(self, work: Work, plan: Plan) -> tuple[Plan, Sequence[artifact.Artifact | artifact.Stages]]:
        """As the base; a call is a part of which the code is its function."""
        op = work.done.op if isinstance(work.done, Node) else None
        if not isinstance(op, ExecutedOperator) or not isinstance(op.executable, StepExecutable):
            return super()._saved(work, plan)
        step = op.executable
        build = artifact.Build(__version__, None, self.library, NAME, ())
        return plan, [artifact.Artifact(build, step.manifest, (written(step.function),), step.constants)]

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """As the base, with a finding for each call, and for each convolution and product that is none."""
        found = super().explain(places, records)
        fates = {node.source: name for name, placed in self.calls.items() for node in placed.unit.nodes if node.source}
        computed = (NodeFate(place, Fate.LIBRARY.value, (name,)) for place, name in fates.items())
        others = (row for row in found.nodes if row.node not in fates)
        return replace(found, nodes=(*computed, *others), findings=(*self._told(), *found.findings))

    def _told(self) -> Iterator[Finding]:
        threads = f"measured when the model was compiled, threads: {self._own.threads}"
        for placed in self.calls.values():
            times = placed.times
            reason, step = f"{self.library} computes it", "it was not measured: library='onednn' gives what is faster"
            if times is not None:
                reason += f" in {times.library:.1f} us, our own kernel in {times.own:.1f} us"
                step = threads
            yield Finding("library", placed.unit.place, reason, step)
        if self._placing.whole is not None:
            own, split = self._placing.whole
            reason = f"with calls of {self.library} it takes {split:.1f} us, and {own:.1f} us without"
            yield Finding("library", "the model", reason, threads)
        for item in self.kept:
            yield Finding("not by library", item.place, item.reason, f"our own kernel computes this {item.operator}")
