"""Compares the values of a compiled model with a reference: every value that leaves a kernel, in order.

All intermediate values come from a second main program over the same kernels, in which nothing shares memory; the
outputs come from the model itself, so a fault of the memory plan shows as outputs that differ although no value does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

from tilewright import interface
from tilewright.backend.api import Emission
from tilewright.base.choices import Choice
from tilewright.base.store import Store
from tilewright.compilation import Compiled
from tilewright.graph import Array, Value
from tilewright.insight.console import plain_console
from tilewright.insight.names import cell, plain
from tilewright.insight.places import calls_of, sources
from tilewright.insight.references import Reference
from tilewright.kernels.packing import unpack
from tilewright.loops.ir import Alloc, Buffer, Call, Loop, Region, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import transform_stmts, walk
from tilewright.measure.difference import Difference, difference
from tilewright.runtime.executable import Executable
from tilewright.symbolic.expr import Var, const

TOLERANCE = 1e-4


class Against(Choice):
    """References for a comparison."""

    ONNXRUNTIME = "onnxruntime"
    """ONNX Runtime, node by node, without its optimizations."""
    REFERENCE = "reference"
    """The te evaluator, in float64 wherever an operator allows it."""


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """The difference of one value. ``kernel`` and ``nodes`` compute it; ``kernel`` is empty for the model's outputs."""

    value: str
    kernel: str
    nodes: tuple[str, ...]
    euclidean: float
    largest: float
    agrees: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """All compared values, in order of computation; the model's outputs come last."""

    against: str
    tolerance: float
    values: tuple[ValueComparison, ...]
    notes: tuple[str, ...] = ()
    """Values that were not compared, or not in float64, with the reasons."""

    @property
    def first(self) -> ValueComparison | None:
        """The first value that differs."""
        return next((value for value in self.values if not value.agrees), None)

    @property
    def agrees(self) -> bool:
        """Whether no value differs."""
        return self.first is None

    def to_json(self) -> dict[str, object]:
        """All fields, as JSON values: infinite numbers become None."""
        rows = [_finite(asdict(value)) for value in self.values]
        first = None if self.first is None else self.first.value
        fields = {"against": self.against, "tolerance": self.tolerance, "agrees": self.agrees, "first": first}
        return {**fields, "values": rows, "notes": list(self.notes)}

    def show(self, console: "Console | None" = None) -> None:
        """Print the table and the verdict."""
        from rich.table import Table

        out = console or plain_console()
        table = Table(title=f"Difference from {self.against}")
        for heading in ("value", "kernel", "|y-r|/|r|", "max|y-r|/max|r|", "nodes"):
            table.add_column(heading, justify="right" if "|" in heading else "left")
        for row in self.values:
            style = None if row.agrees else "red"
            numbers = (f"{row.euclidean:.1e}", f"{row.largest:.1e}")
            table.add_row(cell([row.value]), row.kernel or "(output)", *numbers, cell(row.nodes), style=style)
        out.print(table)
        for note in self.notes:
            out.print(f"note: {note}", highlight=False, markup=False)
        out.print(_verdict(self), highlight=False, markup=False)


def _verdict(comparison: Comparison) -> str:
    first = comparison.first
    if first is None:
        return f"no value differs by more than {comparison.tolerance:g} (values: {len(comparison.values)})"
    if first.kernel:
        return f"first to differ: {plain(first.value)}, made by kernel {first.kernel} for {plain(*first.nodes)}"
    inside = any(value.kernel for value in comparison.values)
    return f"output {plain(first.value)} differs" + (
        ", although all values before it agree: suspect the memory plan, and report it" if inside else ""
    )


def _finite(row: dict[str, object]) -> dict[str, object]:
    return {name: None if isinstance(v, float) and not isfinite(v) else v for name, v in row.items()}


def compare(
    compiled: Compiled,
    outputs: Sequence[Array],
    values: Mapping[str, Array],
    reference: Reference,
    against: str,
    tolerance: float = TOLERANCE,
) -> Comparison:
    """Compare ``outputs`` and the intermediate ``values`` (by name) with ``reference``, where it has a value."""
    rows: list[ValueComparison] = []
    missing: list[str] = []
    for call in calls_of(compiled):
        for value in call.group.outputs:
            name = compiled.name_in_model(value.name)
            expected = reference.values.get(name)
            if value.name in values and expected is not None:
                found = difference(_row_major(compiled, value, values[value.name], expected), expected)
                rows.append(_row(name, call.kernel.program.name, sources(call.group), found, tolerance))
            elif values:
                missing.append(value.name)
    names = [spec.name for spec in compiled.executable.manifest.outputs]
    rows += _of_outputs(names, outputs, reference, tolerance)
    missing += [name for name in names if name not in reference.values]
    notes = [*reference.notes]
    if missing:
        notes.append(f"not in the reference, or of a computed extent: {plain(*missing)}")
    return Comparison(against, tolerance, tuple(rows), tuple(notes))


def compare_outputs(
    names: Sequence[str], outputs: Sequence[Array], reference: Reference, against: str, tolerance: float = TOLERANCE
) -> Comparison:
    """Compare ``outputs`` with those of ``reference``, which has all ``names``."""
    return Comparison(against, tolerance, tuple(_of_outputs(names, outputs, reference, tolerance)), reference.notes)


def _of_outputs(
    names: Sequence[str], outputs: Sequence[Array], reference: Reference, tolerance: float
) -> list[ValueComparison]:
    pairs = zip(names, outputs, strict=True)
    known = ((name, output) for name, output in pairs if name in reference.values)
    return [_row(name, "", (), difference(output, reference.values[name]), tolerance) for name, output in known]


def _row(name: str, kernel: str, nodes: tuple[str, ...], found: Difference, tolerance: float) -> ValueComparison:
    return ValueComparison(name, kernel, nodes, found.euclidean, found.largest, found.worst <= tolerance)


def _row_major(compiled: Compiled, value: Value, stored: Array, expected: Array) -> Array:
    """``stored`` in the layout and the shape of ``expected``."""
    index_map = compiled.layouts.get(value)
    if index_map is not None:
        return unpack(stored, index_map, expected.shape)
    return stored.reshape(expected.shape) if stored.size == expected.size else stored


def all_values(compiled: Compiled, feeds: Mapping[str, Array], cache: Store | None = None) -> dict[str, Array]:
    """All values that leave a kernel, and the outputs, as they are stored, by name."""
    whole = exposed(compiled, cache)
    names = [spec.name for spec in whole.manifest.outputs]
    return dict(zip(names, whole.run(feeds), strict=True))


def exposed(compiled: Compiled, cache: Store | None = None) -> Executable:
    """The model with all values that leave a kernel as outputs, in separate memory."""
    main = _expose(compiled.main)
    known = compiled.executable.manifest
    constants = len(known.constants)
    options = compiled.options
    programs = [kernel.program for kernel in compiled.kernels]
    emission = Emission(constants, options.checked, options.checks)
    image = options.backend.emit(main, programs, options.target, emission).link(cache)
    added = [Value(buffer.name, buffer.dtype, buffer.shape) for buffer in main.params[len(compiled.main.params) :]]
    stored = [Value(spec.name, spec.dtype, tuple(map(const, spec.static_shape or ()))) for spec in known.constants]
    graph = compiled.graph
    limits = interface.limits_of(graph, main.dims)
    manifest = interface.manifest(graph.inputs, [*graph.outputs, *added], stored, main.dims, image.needs, limits)
    return image.launch(manifest, compiled.executable.constants, compiled.executable.threads)


def _expose(main: Program) -> Program:
    """``main`` with its allocations as additional outputs; those in a loop over parts of a batch as whole values."""
    moved = {stmt.buffer: stmt.buffer for stmt in walk(main.body) if isinstance(stmt, Alloc)}
    parts: dict[Buffer, Var] = {}
    for loop in (stmt for stmt in walk(main.body) if isinstance(stmt, Loop)):
        for buffer in (stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)):
            parts[buffer] = loop.var
            moved[buffer] = replace(buffer, shape=(loop.extent * buffer.shape[0], *buffer.shape[1:]))

    def whole(region: Region) -> Region:
        buffer, part = region.buffer, parts.get(region.buffer)
        if part is None:
            return region
        first = (part * buffer.shape[0], buffer.shape[0])
        return Region(moved[buffer], (first, *region.ranges[1:]))

    def leave(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Call):
            return replace(stmt, args=tuple(map(whole, stmt.args)))
        return stmt.body if isinstance(stmt, Alloc) else None

    body = transform_stmts(main.body, leave)
    added = tuple(moved.values())
    return replace(main, params=(*main.params, *added), body=body, outputs=main.outputs + len(added))
