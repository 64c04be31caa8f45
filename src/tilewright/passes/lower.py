"""Groups to kernels: the te program of a group in the layouts of its values, and the naive loop program of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.target import Target
from tilewright.cost.tiles import Problem, choose_tile
from tilewright.graph import Value
from tilewright.kernels.contraction import UNKNOWN_EXTENT
from tilewright.kernels.packing import constant_layouts
from tilewright.kernels.relayout import dissolve_views, relayout, spread
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.passes.fuse import Group
from tilewright.passes.layout import LaidOut
from tilewright.schedule.index_map import IndexMap
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel before scheduling: arguments are inputs, then outputs, in the order of the program's parameters."""

    program: Program
    arguments: tuple[Value, ...]
    packings: Mapping[Value, IndexMap]
    """How constants among the arguments are stored for it."""


def to_kernel(group: Group, laid_out: LaidOut, target: Target, bounds: Mapping[str, int]) -> Kernel:
    """The naive program of ``group``; parameters are named by position, so that equal groups give equal programs."""
    graph, layouts = laid_out.graph, laid_out.layouts
    inputs = {v: placeholder(v.shape, v.dtype, f"p{position}") for position, v in enumerate(group.inputs)}
    constants = {tensor: value for value, tensor in inputs.items() if value in graph.constants}
    outputs = dissolve_views(_expand(group, inputs), constants)
    known = {inputs[v]: layouts[v] for v in group.inputs if v in layouts}
    known.update((t, layouts[v]) for t, v in zip(outputs, group.outputs, strict=True) if v in layouts)
    known = spread(outputs, known)
    packings = constant_layouts(outputs, constants, known, _Widths(target))
    made = relayout(outputs, {**known, **packings})
    order = [made.get(inputs[value], inputs[value]) for value in group.inputs]
    program = lower([made[tensor] for tensor in outputs], name="kernel", inputs=order, dims=bounds)
    return Kernel(program, (*group.inputs, *group.outputs), {constants[t]: packings[t] for t in packings})


def _expand(group: Group, inputs: Mapping[Value, Tensor]) -> list[Tensor]:
    """The te program of the whole group."""
    known = dict(inputs)
    for node in group.nodes:
        results = node.op.apply([None if v is None else known[v] for v in node.inputs], dict(node.attributes))
        known.update(zip(node.outputs, results, strict=False))
    return [known[value] for value in group.outputs]


@dataclass(frozen=True, slots=True)
class _Widths:
    """The width of the register tile of a matrix product."""

    target: Target

    def __call__(self, vector: int | None, rows: int | None, itemsize: int) -> int:
        columns, lines = (UNKNOWN_EXTENT if extent is None else extent for extent in (vector, rows))
        return choose_tile(Problem(columns, lines, 1, itemsize), self.target).lanes
