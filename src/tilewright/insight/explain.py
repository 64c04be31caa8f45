"""Explains a compilation: the kernel of each node, the schedule of each kernel, and missed optimizations with reasons.

Every finding has a reason and a next step. Reasons follow from the structure of the graph and of the schedules; an
unknown reason is stated as unknown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

from tilewright.base.superopt import Superopt
from tilewright.compilation import Compiled
from tilewright.graph import Graph, Node, Value
from tilewright.graph.ir import walk_back
from tilewright.insight.console import plain_console
from tilewright.insight.names import cell, plain
from tilewright.insight.places import calls_of, sources
from tilewright.loops.ir import Block, Loop, LoopKind
from tilewright.loops.visit import walk
from tilewright.ops import FusionKind
from tilewright.passes.alternatives.api import AS_IT_IS
from tilewright.passes.choose import Choices
from tilewright.passes.rules import floats_of
from tilewright.passes.scheduled import ScheduledKernel
from tilewright.superopt.search.result import Applied, LeftOut
from tilewright.symbolic.expr import Const, Expr, given_name
from tilewright.target.machine import GUESSED_EXTENT
from tilewright.target.target import Target

UNTUNED = "untuned"
"""The kind of the finding that some kernels were not tuned."""


class Fate(Enum):
    """The result of compiling a node of the model."""

    KERNEL = "kernel"
    """A kernel computes it, or reads through it."""
    FOLDED = "folded"
    """It depends on constants only, and was computed while compiling."""
    UNUSED = "unused"
    """No output needs it."""
    DISSOLVED = "dissolved"
    """It has no effect, duplicates another node, or was rewritten into others."""
    PYTHON = "python"
    """A Python function computes it (``ops.called``)."""
    ACCELERATOR = "accelerator"
    """A program of an accelerator computes it (``offload``)."""
    LIBRARY = "library"
    """A library computes it (``offload.library``)."""
    STAGE = "stage"
    """It runs between native parts: it decides shapes, or what runs (``passes.parts``)."""


@dataclass(frozen=True, slots=True)
class NodeFate:
    """One node of the user's model."""

    node: str
    fate: str
    kernels: tuple[str, ...]
    way: str = ""
    """The algorithm, if it is not the default one: the name of a way (``passes.alternatives``)."""


@dataclass(frozen=True, slots=True)
class KernelFact:
    """One kernel: the number of its calls, its nodes, and the properties of its loops."""

    kernel: str
    calls: int
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    types: tuple[str, ...]
    """The types in which its arguments are stored, inputs before results."""
    vectorized: bool
    threads: int
    """The number of threads: that of the model if the kernel has a parallel loop, else 1."""
    measured_us: float | None
    """The time of its schedule when it was tuned; None for the analytic choice."""
    simulated: str = ""
    """The core, and the version of its model, if that time is thousands of its simulated cycles."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A missed optimization, or a property that a user may want to change."""

    kind: str
    """``not parallel``, ``not vectorized``, ``untuned``, ``records``, ``measured``, ``run-time extent``, ``in parts``,
    ``fallback``, ``stage``, ``accelerator``, ``not accelerated``, ``library``, ``not by library`` or
    ``bounds checks``."""
    subject: str
    reason: str
    next_step: str


@dataclass(frozen=True, slots=True)
class RuleFact:
    """A rule that the search for a better graph applied, the number of applications, its evidence, and what it does to
    floats."""

    rule: str
    times: int
    evidence: str
    """``proved`` and so on (``passes.rules.Evidence``); empty without a proof in its file."""
    floats: str
    """``exact`` and so on (``passes.rules.Floats``)."""

    def __str__(self) -> str:
        return f"{self.rule} ({self.times} times, {self.evidence or 'its file states no proof'}, {self.floats})"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a model besides its inputs and outputs. ``limit``: the memory limit of the compilation."""

    weight_bytes: int
    """Bytes of the constants, packed for kernels."""
    workspace_bytes: int | None
    """Bytes of workspace of one run; None if they depend on run-time extents."""
    limit: int | None

    def __str__(self) -> str:
        workspace = "as inputs need it" if self.workspace_bytes is None else f"{self.workspace_bytes} bytes"
        limit = "" if self.limit is None else f"; limit: {self.limit} bytes"
        return f"weights: {self.weight_bytes} bytes, workspace: {workspace}{limit}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one compilation."""

    target: str
    threads: int
    math: str
    precision: str
    checks: str
    """The policy for out-of-range indices (``base.checks``)."""
    memory: Memory
    superopt: str
    """The effort of the search for a better graph (``base.superopt``)."""
    rules: tuple[RuleFact, ...]
    """The rules that the search applied, in order of first use."""
    left_out: tuple[LeftOut, ...]
    """The rules that ``math`` left out, where they match."""
    kernels: tuple[KernelFact, ...]
    nodes: tuple[NodeFate, ...]
    findings: tuple[Finding, ...]
    cached: bool = False
    """Whether the model came from the cache of models, and was compiled again to be explained."""

    def to_json(self) -> dict[str, object]:
        """All fields, as values that JSON has."""
        return {**asdict(self), "left_out": [one.to_json() for one in self.left_out]}

    def show(self, console: "Console | None" = None) -> None:
        """Print rules, kernels, nodes without a kernel, and findings."""
        out = console or plain_console()
        policies = f"math: {self.math}; precision: {self.precision}; checks: {self.checks}"
        compiled = f"compiled for {self.target}; threads: {self.threads}; {policies}"
        out.print(compiled, highlight=False, markup=False, soft_wrap=True)
        out.print(str(self.memory), highlight=False, markup=False, soft_wrap=True)
        if self.superopt != Superopt.OFF.value:
            told = ", ".join(map(str, self.rules)) or "none"
            text = f"rules applied by superopt={self.superopt}: {told}"
            out.print(text, highlight=False, markup=False, soft_wrap=True)
        if self.left_out:
            text = f"left out by math={self.math}: {', '.join(map(str, self.left_out))}"
            out.print(text, highlight=False, markup=False, soft_wrap=True)
        if self.cached:
            out.print("it came from the cache of models, and was compiled again to be explained", highlight=False)
        out.print(_kernel_table(self.kernels))
        for fate in (Fate.FOLDED, Fate.DISSOLVED, Fate.UNUSED):
            names = [row.node for row in self.nodes if row.fate == fate.value]
            if names:
                out.print(
                    f"{fate.value} ({len(names)}): {plain(*names)}", highlight=False, markup=False, soft_wrap=True
                )
        for way in dict.fromkeys(row.way for row in self.nodes if row.way):
            names = [row.node for row in self.nodes if row.way == way]
            text = f"computed by {way} ({len(names)}): {plain(*names)}"
            out.print(text, highlight=False, markup=False, soft_wrap=True)
        for finding in self.findings:
            text = f"{finding.kind}: {plain(finding.subject)}: {finding.reason}; {finding.next_step}"
            out.print(text, highlight=False, markup=False, soft_wrap=True)


def _kernel_table(kernels: Sequence[KernelFact]) -> "Table":
    from rich.table import Table

    table = Table(title="Kernels")
    for heading in ("kernel", "calls", "types", "vector", "threads", "schedule", "operators", "nodes"):
        table.add_column(heading, justify="right" if heading in ("calls", "threads") else "left")
    for row in kernels:
        marks = ("yes" if row.vectorized else "no", str(row.threads))
        schedule = "analytic choice" if row.measured_us is None else f"tuned, {row.measured_us:.1f} {_unit(row)}"
        types = " ".join(dict.fromkeys(row.types))
        table.add_row(row.kernel, str(row.calls), types, *marks, schedule, ", ".join(row.operators), cell(row.nodes))
    return table


def _unit(row: KernelFact) -> str:
    return f"thousand simulated cycles ({row.simulated})" if row.simulated else "us"


def explain(compiled: Compiled, imported: Graph, places: Iterable[str] = ()) -> Explanation:
    """The explanation of ``compiled``. ``places``: all nodes of the model, including those evaluated at import."""
    options = compiled.options
    kernels = tuple(_fact(kernel, compiled.executable.threads) for kernel in compiled.kernels)
    findings = [finding for kernel in compiled.kernels for finding in _loop_findings(kernel, compiled.options.target)]
    findings += _dim_findings(compiled)
    findings += _in_parts(compiled)
    findings += _untuned(compiled.kernels)
    findings += _measured(compiled.choices)
    if options.checked:
        findings.append(Finding("bounds checks", "all kernels", "TILEWRIGHT_BOUNDS_CHECK is on", "unset it for speed"))
    return Explanation(
        str(options.target),
        compiled.executable.threads,
        options.math.value,
        options.precision.value,
        options.checks.value,
        _memory(compiled),
        options.superopt.value,
        tuple(_rules(compiled.applied)),
        compiled.left_out,
        kernels,
        _fates(compiled, imported, places),
        tuple(findings),
    )


def _rules(applied: Sequence[Applied]) -> Iterator[RuleFact]:
    rules = {step.rule.name: step.rule for step in applied}
    for name, times in Counter(step.rule.name for step in applied).items():
        proof = rules[name].proof
        evidence = "" if proof is None else proof.evidence.value
        yield RuleFact(name, times, evidence, floats_of(rules[name]).value)


def _memory(compiled: Compiled) -> Memory:
    weights = sum(array.nbytes for array in compiled.executable.constants)
    workspace = compiled.executable.manifest.workspace
    return Memory(weights, workspace if isinstance(workspace, int) else None, compiled.options.memory_limit)


def _fact(kernel: ScheduledKernel, threads: int) -> KernelFact:
    kinds = _loop_kinds(kernel)
    operators = dict.fromkeys(node.op.name for node in kernel.groups[0].nodes)
    nodes = dict.fromkeys(source for group in kernel.groups for source in sources(group))
    return KernelFact(
        kernel.program.name,
        kernel.calls,
        tuple(operators),
        tuple(nodes),
        tuple(str(parameter.dtype) for parameter in kernel.program.params),
        LoopKind.VECTORIZED in kinds,
        threads if LoopKind.PARALLEL in kinds else 1,
        kernel.measured_us,
        kernel.simulated,
    )


def _loop_kinds(kernel: ScheduledKernel) -> frozenset[LoopKind]:
    return frozenset(stmt.kind for stmt in walk(kernel.program.body) if isinstance(stmt, Loop))


# Nodes ---------------------------------------------------------------------------------------------------------------


def _fates(compiled: Compiled, imported: Graph, places: Iterable[str]) -> tuple[NodeFate, ...]:
    kernels: dict[str, dict[str, None]] = {}
    for kernel in compiled.kernels:
        for source in (source for group in kernel.groups for source in sources(group)):
            kernels.setdefault(source, {})[kernel.program.name] = None
    constant, needed = _constant_nodes(imported), set(walk_back(imported))
    nodes: dict[str, list[Node]] = {place: [] for place in places}
    for node in imported.nodes:
        nodes.setdefault(node.source, []).append(node)
    ways = {node.source: way.name for node, way in compiled.choices.ways() if way.algorithm != AS_IT_IS}

    def fate(source: str) -> NodeFate:
        known = _fate(source in kernels, nodes[source], constant, needed).value
        return NodeFate(source, known, tuple(kernels.get(source, ())), ways.get(source, ""))

    return tuple(map(fate, nodes))


def _fate(in_kernel: bool, nodes: Sequence[Node], constant: set[Node], needed: set[Node]) -> Fate:
    if in_kernel:
        return Fate.KERNEL
    if constant.issuperset(nodes):  # importing computes shapes: then there is no node at all
        return Fate.FOLDED
    return Fate.DISSOLVED if needed.intersection(nodes) else Fate.UNUSED


def _constant_nodes(graph: Graph) -> set[Node]:
    """The nodes that depend on constants only."""
    known: set[Value] = set(graph.constants)
    found: set[Node] = set()
    for node in graph.nodes:
        if all(value is None or value in known for value in node.inputs):
            found.add(node)
            known.update(node.outputs)
    return found


# Findings ------------------------------------------------------------------------------------------------------------


def _loop_findings(kernel: ScheduledKernel, target: Target) -> Iterator[Finding]:
    kinds, name = _loop_kinds(kernel), kernel.program.name
    if LoopKind.PARALLEL not in kinds:
        reason, step = _why_serial(kernel, target)
        yield Finding("not parallel", name, reason, step)
    if LoopKind.VECTORIZED not in kinds:
        reason, step = _why_scalar(kernel)
        yield Finding("not vectorized", name, reason, step)


_READ_SCHEDULE = "TILEWRIGHT_PRINT=schedule shows its loops"
_IS_EXTERN = "its operator has a body in loop IR, which the analytic schedule leaves as it is"


def _why_serial(kernel: ScheduledKernel, target: Target) -> tuple[str, str]:
    blocks = (stmt for stmt in walk(kernel.naive.body) if isinstance(stmt, Block))
    points = max((_points(axis.extent for axis in block.axes) for block in blocks), default=0)
    least = target.machine.parallel_work
    if points < least:
        return f"{points} points are fewer than {least}: handing out work would cost more", "nothing to do"
    if _is_opaque(kernel):
        return _IS_EXTERN, _READ_SCHEDULE
    return "the analytic schedule spreads no loop of it; why is not known", _READ_SCHEDULE


def _why_scalar(kernel: ScheduledKernel) -> tuple[str, str]:
    if _is_opaque(kernel):
        return _IS_EXTERN, _READ_SCHEDULE
    if all(_points(result.shape) <= 1 for result in kernel.program.results):
        return "its result has one element", "nothing to do"
    return "the analytic schedule has no vector form for it; why is not known", _READ_SCHEDULE


def _points(extents: Iterable[Expr]) -> int:
    return prod(int(e.value) if isinstance(e, Const) else GUESSED_EXTENT for e in extents)


def _is_opaque(kernel: ScheduledKernel) -> bool:
    return any(node.op.kind is FusionKind.OPAQUE for node in kernel.groups[0].nodes)


def _dim_findings(compiled: Compiled) -> Iterator[Finding]:
    for dim in compiled.main.dims:
        bound = "no bound is given" if dim.bound is None else f"at most {dim.bound}"
        if dim.bound is not None and compiled.graph.bounds.get(dim.var) == dim.bound:
            bound += ", as the model has a table of that length"
        expected = GUESSED_EXTENT if dim.bound is None else dim.bound
        reason = f"known at run time only ({bound}); kernels take all sizes, and are scheduled as if it were {expected}"
        step = "give shapes= (--shape) for one compiled for its size"
        yield Finding("run-time extent", given_name(dim.var), reason, step)


def _in_parts(compiled: Compiled) -> Iterator[Finding]:
    for times, alike in groupby(calls_of(compiled), lambda call: call.times):
        calls = list(alike)
        if times > 1:
            nodes = [source for call in calls for source in sources(call.group)]
            reason = (
                f"each of these {len(calls)} kernels runs {times} times, for a part of the batch: what they pass on "
                "stays in a near cache"
            )
            yield Finding("in parts", " to ".join(dict.fromkeys((*nodes[:1], *nodes[-1:]))), reason, "nothing to do")


def _untuned(kernels: Sequence[ScheduledKernel]) -> Iterator[Finding]:
    untuned = [kernel for kernel in kernels if kernel.measured_us is None]
    if untuned:
        reason = "their schedules are the analytic choice, and no record of a measurement is used"
        step = "tilewright tune searches for better ones"
        yield Finding(UNTUNED, f"{len(untuned)} of {len(kernels)} kernels", reason, step)


def _measured(choices: Choices) -> Iterator[Finding]:
    for node, way in choices.ways():
        if way.measured_us is not None:
            reason = (
                f"computed {way.name}, which took {way.measured_us:.1f} us when all ways to compute it were measured"
            )
            yield Finding("measured", node.source or node.outputs[0].name, reason, "nothing to do")
