"""``StagedModel``: a model that is compiled in stages (``passes.parts``): native parts, and between them what decides
shapes when the model runs: sizes that are read off data, branches, loops, and calls of Python functions.

Values between the parts are arrays, so what passes from one to another is written to memory, and no pass sees both
sides of a cut. A call of a Python function needs sizes that are known; all else may have run-time extents.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

from tilewright.base.arguments import FilePath, checked
from tilewright.base.arrays import Array
from tilewright.base.dtypes import STORED, DType
from tilewright.base.errors import BadInput, InternalError, Unsupported
from tilewright.base.settings import Settings
from tilewright.compilation import Compiled, Options
from tilewright.composed import ComposedModel
from tilewright.frontend.api import Source
from tilewright.graph import Graph, Node, Value
from tilewright.graph.control import Branch, Repeat
from tilewright.insight.compare import TOLERANCE, Against, Comparison, compare_outputs
from tilewright.insight.explain import Explanation, Fate, Finding, Memory, NodeFate
from tilewright.insight.profile import KernelProfile, Profile
from tilewright.insight.references import Reference
from tilewright.interface import staged_manifest
from tilewright.measure.samples import LEAST_RUNS
from tilewright.model import CompiledModel, Seconds, Tolerance
from tilewright.ops.called import CalledOperator, Caller
from tilewright.ops.hosted import READ_SIZES, VIEW, WITNESS
from tilewright.passes.between import Between
from tilewright.runtime import artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.loading import InMemory
from tilewright.runtime.runnable import Pickled, RunnableModel, unpickled
from tilewright.runtime.stages import Kind, Plan, Stage, StagedExecutable

Bodies: TypeAlias = tuple[CompiledModel, ...]
"""The models that a stage runs."""


@dataclass(frozen=True, slots=True)
class Work:
    """A native part, or a node that runs between parts, with the models of its bodies."""

    done: Graph | Node
    bodies: Bodies


@dataclass(frozen=True, slots=True)
class Whole:
    """A graph, how it was compiled, and the work of its stages in order."""

    graph: Graph
    options: Options
    source: Source
    work: Sequence[Work]


@dataclass(frozen=True, slots=True)
class CallStage(Stage):
    """A call of a Python function, or of an accelerator."""

    node: Node

    def run(self, arrays: Mapping[str, Array], threads: int | None, end: float | None) -> Sequence[Array]:
        """What the function returns. It raises what the function raises."""
        operator = self.node.op
        assert isinstance(operator, CalledOperator), "others have a kind of their own"
        found = operator.on([arrays[name] for name in self.plan.reads], self.node.source)
        return found[: len(self.plan.makes)]


@dataclass(frozen=True, slots=True)
class ExecutedOperator(CalledOperator):
    """An operator that an executable computes, on as many threads as native parts.

    The executable's inputs and outputs have the names of the node's.
    """

    executable: Executable = field(kw_only=True, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)


def stage_of(done: Graph | Node, at: int, executables: Sequence[Executable]) -> Stage:
    """The stage of a native part or a node, the one with the number ``at``; ``executables``: those of its bodies."""
    if isinstance(done, Graph):
        return Stage(_plan(Kind.PART, f"part{at}", done.inputs, done.outputs), executables)
    node = done
    name, reads = f"{node.source} [{at}]", [value for value in node.inputs if value is not None]
    match node.op:
        case ExecutedOperator(executable=own):
            return Stage(_plan(Kind.PART, f"{node.op.name} ({node.op.by.value})", reads, node.outputs), (own,))
        case CalledOperator():
            return CallStage(_plan(Kind.CALL, f"{node.op.name} ({node.op.by.value})", reads, node.outputs), (), node)
        case Branch():
            return Stage(_plan(Kind.BRANCH, name, reads, node.outputs), executables)
        case Repeat(states=states):
            return Stage(_plan(Kind.LOOP, name, reads, node.outputs, states), executables)
        case op if op is READ_SIZES:
            return Stage(_plan(Kind.SIZES, name, reads, node.outputs), ())
        case op if op is VIEW:
            to = dict(node.attributes)["to"]
            assert isinstance(to, DType), "as the operator declares it"
            return Stage(_plan(Kind.VIEW, name, reads, node.outputs, STORED.index(to)), ())
        case op if op is WITNESS:
            axis = dict(node.attributes)["axis"]
            assert isinstance(axis, int), "as passes.parts makes it"
            return Stage(_plan(Kind.WITNESS, name, reads, node.outputs, axis), ())
        case op:
            raise InternalError(f"{op} is no stage")


def _plan(kind: Kind, name: str, reads: Sequence[Value], makes: Sequence[Value], number: int = 0) -> Plan:
    return Plan(kind, name, tuple(value.name for value in reads), tuple(value.name for value in makes), number)


class StagedModel(ComposedModel):
    """A model in stages: native parts, and what runs between them."""

    def __init__(self, whole: Whole) -> None:
        super().__init__(whole.options)
        self._whole = whole
        stages = [
            stage_of(work.done, at, [model.executable for model in work.bodies]) for at, work in enumerate(whole.work)
        ]
        read = {name for stage in stages for name in stage.plan.reads}
        own = {value: array for value, array in whole.graph.constants.items() if value.name in read}
        options = whole.options
        policies = (options.math, options.checks, options.precision)
        manifest = staged_manifest(whole.graph, list(own), options.bounds, *policies)
        self._own = StagedExecutable(manifest, list(own.values()), stages, options.threads)
        self._executable = self._own

    @property
    def graph(self) -> Graph:
        """The imported graph."""
        return self._whole.graph

    @property
    def parts(self) -> tuple[CompiledModel, ...]:
        """The native parts, in the order in which they run."""
        return tuple(model for work in self._whole.work if isinstance(work.done, Graph) for model in work.bodies)

    @property
    def stages(self) -> tuple[Plan, ...]:
        """The stages, in the order in which they run."""
        return tuple(stage.plan for stage in self._own.stages)

    @property
    def is_cached(self) -> bool:
        """Whether all of its parts came from the cache of models."""
        return all(model.is_cached for work in self._whole.work for model in work.bodies)

    @property
    def compiled(self) -> Compiled:
        """Raises ``Unsupported``: each of the ``parts`` has its own."""
        raise Unsupported(f"this model has {len(self.parts)} native parts with stages between them: see model.parts")

    @checked(BadInput)
    def save(
        self,
        path: FilePath,
        *,
        signed: bool = True,
        key: FilePath | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Write all stages as one file. Otherwise as ``CompiledModel.save``.

        Raises ``Unsupported`` if the model calls Python functions: an artifact holds native code only.
        """
        key_dir = (settings or Settings.from_environment()).key_dir
        secret = None if key is None else artifact.SecretKey(key)
        artifact.save_stages(self._stages(), path, key_dir, signed=signed, key=secret, inputs=self._files())

    def contents(self) -> artifact.Artifact:
        """Raises ``Unsupported``: its artifact has stages."""
        raise Unsupported("a version in stages can't be in one file with others: save it by itself (model.version)")

    def _stages(self) -> artifact.Stages:
        """Raises ``Unsupported`` if the model calls Python functions, or if a part can't be saved."""
        called = dict.fromkeys(node.op.name for node in self._nodes() if calls_python(node))
        if called:
            raise Unsupported(
                f"the model can't be saved: it calls Python functions ({', '.join(called)}), and an artifact holds "
                "native code only; define these operators by te (docs/own-operators.md), or compile it where it runs"
            )
        saved = [self._saved(work, plan) for work, plan in zip(self._whole.work, self.stages, strict=True)]
        plans, bodies = tuple(plan for plan, _ in saved), tuple(body for _, own in saved for body in own)
        return artifact.Stages(self._own.manifest, plans, bodies, self._own.constants)

    def _saved(self, work: Work, plan: Plan) -> tuple[Plan, Sequence[artifact.Artifact | artifact.Stages]]:
        """A stage as an artifact has it, with its bodies."""
        return plan, [self._content(model) for model in work.bodies]

    @staticmethod
    def _content(model: CompiledModel) -> artifact.Artifact | artifact.Stages:
        return model._stages() if isinstance(model, StagedModel) else model.contents()

    def _files(self) -> tuple[Path, ...]:
        return self._whole.source.files()

    def __reduce__(self) -> tuple[Callable[[Pickled], RunnableModel], tuple[Pickled]]:
        """Raises as ``save``."""
        return unpickled, (InMemory.of(self._stages(), self._options.threads),)

    @checked(BadInput)
    def profile(self, *inputs: object, seconds: Seconds = 1.0, roofs: bool = True) -> Profile:
        """The time of each kernel of the parts, and of each stage between them, for these inputs."""
        feeds = self._feeds(inputs)
        arrays: dict[str, Array] = {**{v.name: a for v, a in self.graph.constants.items()}, **feeds}
        rows: list[KernelProfile] = []
        peak, share = None, seconds / len(self._whole.work)
        for work, stage in zip(self._whole.work, self._own.stages, strict=True):
            made = stage.run(arrays, None, None)
            if isinstance(work.done, Graph):
                own = {name: arrays[name] for name in stage.plan.reads}
                found = work.bodies[0].profile(own, seconds=share, roofs=roofs and peak is None)
                peak = peak or found.peak
                rows += [replace(row, kernel=f"{stage.plan.name}.{row.kernel}") for row in found.kernels]
            else:
                times = _times(lambda stage=stage: stage.run(arrays, None, None), share)
                rows.append(KernelProfile(stage.plan.name, (work.done.source,), median(times) * 1e6, 0.0))
            arrays.update(zip(stage.plan.makes, made, strict=True))
        total = sum(row.microseconds for row in rows)
        rows = [replace(row, share=row.microseconds / total if total else 0.0) for row in rows]
        whole = [_timed(lambda: self._own.run(feeds)) for _ in range(LEAST_RUNS)]
        microseconds = median(whole) * 1e6
        around = max(microseconds - total, 0.0)
        return Profile(LEAST_RUNS, self._own.threads, microseconds, around, tuple(rows), peak)

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """Of all parts and bodies, with a finding for each stage between parts: why it is there, and its share of the
        time of all runs so far."""
        named = [
            (stage.plan.name, model)
            for work, stage in zip(self._whole.work, self._own.stages, strict=True)
            for model in work.bodies
        ]
        found = [(name, model.explain((), records)) for name, model in named]
        kernels = tuple(replace(fact, kernel=f"{name}.{fact.kernel}") for name, one in found for fact in one.kernels)
        known: dict[str, NodeFate] = {}
        for name, one in found:
            for row in one.nodes:
                known[row.node] = replace(row, kernels=tuple(f"{name}.{kernel}" for kernel in row.kernels))
        for node in self._nodes():
            fate = Fate(node.op.by.value) if isinstance(node.op, CalledOperator) else Fate.STAGE
            known.setdefault(node.source, NodeFate(node.source, fate.value, ()))
        others = (NodeFate(place, Fate.FOLDED.value, ()) for place in places if place not in known)
        weights, options = sum(one.memory.weight_bytes for _, one in found), self.options
        return Explanation(
            str(options.target),
            self._own.threads,
            options.math.value,
            options.precision.value,
            options.checks.value,
            Memory(weights, None, options.memory_limit),
            options.superopt.value,
            tuple(rule for _, one in found for rule in one.rules),
            tuple(fact for _, one in found for fact in one.left_out),
            kernels,
            (*known.values(), *others),
            (*(finding for _, one in found for finding in one.findings), *self._findings()),
        )

    def _findings(self) -> Iterator[Finding]:
        total = sum(self._own.seconds)
        for work, seconds in zip(self._whole.work, self._own.seconds, strict=True):
            if isinstance(work.done, Node):
                share = f"{seconds / total:.1%} of the time of its runs" if total else "it has not run yet"
                yield _finding(work.done, share)

    @checked(BadInput)
    def compare(
        self,
        *inputs: object,
        against: Against | str = Against.ONNXRUNTIME,
        per_layer: bool = True,
        tolerance: Tolerance = TOLERANCE,
    ) -> Comparison:
        """The outputs, by ONNX Runtime; ``per_layer`` has no effect. Raises as the base, and ``Unsupported`` for the
        reference in float64, and if the model calls Python functions: nothing else computes what these do."""
        if any(map(calls_python, self._nodes())):
            raise Unsupported("the model calls Python functions, which nothing can be compared with: see model.parts")
        chosen = Against.named(against)
        if chosen is not Against.ONNXRUNTIME:
            raise Unsupported("the reference in float64 has no stages: compare with against='onnxruntime'")
        feeds, names = self._feeds(inputs), [spec.name for spec in self.outputs]
        reference = Reference(self._whole.source.by_onnxruntime(feeds, names))
        return compare_outputs(names, self.run(None, feeds), reference, chosen.value, tolerance)

    def _nodes(self) -> Iterator[Node]:
        return (work.done for work in self._whole.work if isinstance(work.done, Node))


def calls_python(node: Node) -> bool:
    """Whether ``node`` calls a Python function of the user."""
    return isinstance(node.op, CalledOperator) and node.op.by is Caller.PYTHON


def _finding(node: Node, share: str) -> Finding:
    kind, found = "fallback" if calls_python(node) else "stage", Between.of(node)
    return Finding(kind, found.place, f"{found.reason} ({share})", found.remedy)


def _timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _times(run: Callable[[], object], seconds: float) -> list[float]:
    """The seconds of some runs."""
    end = time.perf_counter() + seconds
    times = [_timed(run) for _ in range(LEAST_RUNS)]
    while time.perf_counter() < end:
        times.append(_timed(run))
    return times
