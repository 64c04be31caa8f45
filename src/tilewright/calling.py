"""A model of native parts with calls of Python functions between them (``ops.called``).

Sizes are fixed; models with run-time extents have a version for each size (``specialize``). Values between the parts
are arrays, so what passes from one to another is written to memory, and no pass sees both sides of a call.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from tilewright.backend.api import Needs
from tilewright.base.arguments import FilePath, checked
from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput, Timeout, Unsupported
from tilewright.base.settings import Settings
from tilewright.compilation import Compiled, Options
from tilewright.composed import ComposedModel
from tilewright.graph import Graph, Node
from tilewright.insight.compare import TOLERANCE, Against, Comparison
from tilewright.insight.explain import Explanation, Fate, Finding, Memory, NodeFate
from tilewright.insight.profile import LEAST_RUNS, KernelProfile, Profile
from tilewright.interface import manifest
from tilewright.model import CompiledModel, Seconds, Tolerance
from tilewright.ops.called import CalledOperator
from tilewright.runtime.executable import Executable


@dataclass(slots=True)
class Step:
    """A native part, or a call; the values that it reads and makes; and the time that it took so far."""

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    work: CompiledModel | Node
    seconds: float = 0.0

    def run(self, arrays: Mapping[str, Array], threads: int | None, timeout: float | None) -> Sequence[Array]:
        """The values that it makes. Raises as ``Executable.run`` does, and whatever the function raises."""
        if isinstance(self.work, CompiledModel):
            feeds = {name: arrays[name] for name in self.reads}
            return self.work.executable.run(feeds, threads=threads, timeout=timeout)
        assert isinstance(self.work.op, CalledOperator), "other nodes are in native parts"
        return self.work.op.on([arrays[name] for name in self.reads], self.work.source)[: len(self.makes)]


def step_of(work: CompiledModel | Node, at: int) -> Step:
    """The step that does ``work``."""
    if isinstance(work, CompiledModel):
        reads, makes = (tuple(spec.name for spec in specs) for specs in (work.inputs, work.outputs))
        return Step(f"part{at}", reads, makes, work)
    reads = tuple(value.name for value in work.inputs if value is not None)
    return Step(f"{work.op.name} ({Fate.PYTHON.value})", reads, tuple(value.name for value in work.outputs), work)


class CallingExecutable(Executable):
    """Runs the steps in order."""

    def __init__(self, graph: Graph, steps: Sequence[Step], options: Options) -> None:
        calls = tuple(step.name for step in steps)
        policies = (options.math, options.checks, options.precision)
        made = manifest(graph.inputs, graph.outputs, (), (), Needs(calls=calls), (), *policies)
        super().__init__(made, (), options.threads)
        self.steps = steps
        self._kept = {value.name: array for value, array in graph.constants.items()}

    @property
    def kept_bytes(self) -> int:
        """Bytes of workspace kept for later calls, of all parts."""
        return sum(step.work.executable.kept_bytes for step in self.steps if isinstance(step.work, CompiledModel))

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        """The timeout is checked before each step; it does not stop a Python function."""
        inputs = self._accept(feeds)
        results = self._outputs(out, inputs, self._static_shapes)
        given = {spec.name: array for spec, array in zip(self.manifest.inputs, inputs, strict=True)}
        passed = [0.0] * len(self.steps)
        arrays: dict[str, Array] = {}
        for _ in range(runs):
            arrays = {**self._kept, **given}
            self._once(arrays, threads or self.threads, timeout, passed)
        for spec, result in zip(self.manifest.outputs, results, strict=True):
            result[...] = arrays[spec.name]
        return results, passed

    def _once(self, arrays: dict[str, Array], threads: int, timeout: float | None, passed: list[float]) -> None:
        """Run all steps, and add to ``arrays`` what they make, and to ``passed`` the time of each."""
        end = None if timeout is None else time.perf_counter() + timeout
        for at, step in enumerate(self.steps):
            begin = time.perf_counter()
            if end is not None and begin >= end:
                raise Timeout(f"{step.name} was not begun: the run took longer than its timeout")
            made = step.run(arrays, threads, None if end is None else end - begin)
            arrays.update(zip(step.makes, made, strict=True))
            seconds = time.perf_counter() - begin
            passed[at] += seconds
            step.seconds += seconds


@dataclass(frozen=True, slots=True)
class Whole:
    """The graph, and how its steps are done."""

    graph: Graph
    options: Options
    work: Sequence[CompiledModel | Node]
    steps: Sequence[Step] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", [step_of(one, at) for at, one in enumerate(self.work)])


class CallingModel(ComposedModel):
    """A model that calls Python functions between its native parts."""

    def __init__(self, whole: Whole) -> None:
        super().__init__(whole.options)
        self._whole = whole
        self._own = CallingExecutable(whole.graph, whole.steps, whole.options)
        self._executable = self._own

    @property
    def parts(self) -> tuple[CompiledModel, ...]:
        """The native parts, in the order in which they run."""
        return tuple(one for one in self._whole.work if isinstance(one, CompiledModel))

    @property
    def is_cached(self) -> bool:
        """Whether it came from the cache of models: never."""
        return False

    @property
    def compiled(self) -> Compiled:
        """Raises ``Unsupported``: each of the ``parts`` has its own."""
        raise Unsupported(f"this model has {len(self.parts)} native parts with calls between them: see model.parts")

    @checked(BadInput)
    def save(
        self,
        path: FilePath,
        *,
        signed: bool = True,
        key: FilePath | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Raises ``Unsupported``: an artifact holds native code only."""
        names = ", ".join(dict.fromkeys(node.op.name for node in self._calls()))
        raise Unsupported(
            f"{path} is not written: the model calls Python functions ({names}), and an artifact holds native code "
            "only; define these operators by te (docs/own-operators.md), or compile the model where it runs"
        )

    @checked(BadInput)
    def profile(self, *inputs: object, seconds: Seconds = 1.0, roofs: bool = True) -> Profile:
        """The time of each kernel, and of each call of a Python function, for these inputs."""
        feeds = self._feeds(inputs)
        arrays: dict[str, Array] = {**{v.name: a for v, a in self._whole.graph.constants.items()}, **feeds}
        rows: list[KernelProfile] = []
        peak, share = None, seconds / len(self._whole.steps)
        for step in self._whole.steps:
            made = step.run(arrays, None, None)
            if isinstance(step.work, CompiledModel):
                own = {name: arrays[name] for name in step.reads}
                found = step.work.profile(own, seconds=share, roofs=roofs and peak is None)
                peak = peak or found.peak
                rows += [replace(row, kernel=f"{step.name}.{row.kernel}") for row in found.kernels]
            else:
                times = _times(step, arrays, share)
                rows.append(KernelProfile(step.name, (step.work.source,), median(times) * 1e6, 0.0))
            arrays.update(zip(step.makes, made, strict=True))
        total = sum(row.microseconds for row in rows)
        rows = [replace(row, share=row.microseconds / total if total else 0.0) for row in rows]
        whole = [_timed(self._own, feeds) for _ in range(LEAST_RUNS)]
        microseconds = median(whole) * 1e6
        around = max(microseconds - total, 0.0)
        return Profile(LEAST_RUNS, self._own.threads, microseconds, around, tuple(rows), peak)

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """Of all parts, with a finding for each call: its share of the time of all runs so far."""
        found = [part.explain((), records) for part in self.parts]
        kernels = tuple(
            replace(fact, kernel=f"{name}.{fact.kernel}")
            for name, one in zip(self._part_names(), found, strict=True)
            for fact in one.kernels
        )
        called = {node.source: NodeFate(node.source, Fate.PYTHON.value, ()) for node in self._calls()}
        native = {
            row.node: replace(row, kernels=tuple(f"{name}.{kernel}" for kernel in row.kernels))
            for name, one in zip(self._part_names(), found, strict=True)
            for row in one.nodes
        }
        known = {**native, **called}
        others = (NodeFate(place, Fate.FOLDED.value, ()) for place in places if place not in known)
        weights = sum(one.memory.weight_bytes for one in found)
        options = self.options
        return Explanation(
            str(options.target),
            self._own.threads,
            options.math.value,
            options.precision.value,
            options.checks.value,
            Memory(weights, None, options.memory_limit),
            options.superopt.value,
            tuple(rule for one in found for rule in one.rules),
            kernels,
            (*known.values(), *others),
            (*(finding for one in found for finding in one.findings), *self._findings()),
        )

    def _findings(self) -> Iterator[Finding]:
        total = sum(step.seconds for step in self._whole.steps)
        for step in self._whole.steps:
            if isinstance(step.work, Node):
                share = f"{step.seconds / total:.1%} of the time of its runs" if total else "it has not run yet"
                reason = f"a Python function computes the operator {step.work.op.name} ({share})"
                yield Finding("fallback", step.work.source, reason, "define the operator by te (docs/own-operators.md)")

    @checked(BadInput)
    def compare(
        self,
        *inputs: object,
        against: Against | str = Against.ONNXRUNTIME,
        per_layer: bool = True,
        tolerance: Tolerance = TOLERANCE,
    ) -> Comparison:
        """Raises ``Unsupported``: nothing else computes what the functions do."""
        raise Unsupported("the model calls Python functions, which nothing can be compared with: see model.parts")

    def _calls(self) -> Iterator[Node]:
        return (one for one in self._whole.work if isinstance(one, Node))

    def _part_names(self) -> Iterator[str]:
        return (step.name for step in self._whole.steps if isinstance(step.work, CompiledModel))


def _times(step: Step, arrays: Mapping[str, Array], seconds: float) -> list[float]:
    """The seconds of some runs of a step."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < end:
        begin = time.perf_counter()
        step.run(arrays, None, None)
        times.append(time.perf_counter() - begin)
    return times


def _timed(executable: Executable, feeds: Mapping[str, Array]) -> float:
    begin = time.perf_counter()
    executable.run(feeds)
    return time.perf_counter() - begin
