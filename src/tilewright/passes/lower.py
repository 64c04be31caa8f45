"""Groups to kernels: the te program of a group, its constants packed, and the naive loop program of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.target import Target
from tilewright.cost.tiles import Problem, choose_tile
from tilewright.graph import Graph, Value
from tilewright.kernels.packing import Packing
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.passes.fuse import Group
from tilewright.symbolic.expr import Binary, Const, Read
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Compute, Placeholder, Tensor, topological_order

UNKNOWN_EXTENT = 128
"""What the analytic model takes for an extent that is known at run time only and has no bound."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel before scheduling: arguments are inputs, then outputs, in the order of the program's parameters."""

    program: Program
    arguments: tuple[Value, ...]
    packings: Mapping[Value, Packing]


def to_kernel(group: Group, graph: Graph, target: Target, bounds: Mapping[str, int]) -> Kernel:
    """The naive program of ``group``; parameters are named by position, so that equal groups give equal programs."""
    names = {value: f"p{position}" for position, value in enumerate(group.inputs)}
    inputs = {value: placeholder(value.shape, value.dtype, names[value]) for value in group.inputs}
    packings = _choose_packings(group, graph, inputs, target)
    given = dict(inputs)
    for value, packing in packings.items():
        given[value] = packing.unpacked(inputs[value])
    outputs = _expand(group, given)
    order = [_parameter(given[value]) for value in group.inputs]
    program = lower(outputs, name="kernel", inputs=order, dims=bounds)
    return Kernel(program, (*group.inputs, *group.outputs), packings)


def _parameter(tensor: Tensor) -> Tensor:
    """The placeholder behind an input: itself, or the packed one that it is read from."""
    (root,) = [op for op in topological_order([tensor]) if isinstance(op, Placeholder)]
    return next(t for t in _all_tensors(tensor) if t.op is root)


def _all_tensors(tensor: Tensor) -> list[Tensor]:
    found = [tensor]
    if isinstance(tensor.op, Compute):
        for body in tensor.op.values:
            found += [body.source] if isinstance(body, Read) and isinstance(body.source, Tensor) else []
    return found


def _expand(group: Group, inputs: Mapping[Value, Tensor]) -> list[Tensor]:
    """The te program of the whole group."""
    known = dict(inputs)
    for node in group.nodes:
        results = node.op.apply([None if v is None else known[v] for v in node.inputs], dict(node.attributes))
        known.update(zip(node.outputs, results, strict=False))
    return [known[value] for value in group.outputs]


def _choose_packings(
    group: Group, graph: Graph, inputs: Mapping[Value, Tensor], target: Target
) -> dict[Value, Packing]:
    """Constant matrices that a contraction reads as its panel are packed in panels of the tile's width."""
    constants = {inputs[v]: v for v in group.inputs if v in graph.constants}
    found: dict[Value, Packing] = {}
    for op in topological_order(_expand(group, inputs)):
        operand = _panel(op)
        if operand is not None and operand in constants and isinstance(op, Compute):
            problem = Problem(_extent(op, -1), _extent(op, -2), 1, operand.dtype.itemsize)
            found[constants[operand]] = Packing.panels(choose_tile(problem, target).lanes)
    return found


def _panel(op: object) -> Tensor | None:
    """The matrix ``B[k, n]`` of a sum of products into ``[..., n]``."""
    if not isinstance(op, Compute) or op.reduction is None or len(op.reduction.axes) != 1 or not op.axes:
        return None
    match op.reduction.sources[0]:
        case Binary(BinaryOp.MUL, Read(), Read(source, indices)) if isinstance(source, Tensor):
            wanted = (op.reduction.axes[0].var, op.axes[-1].var)
            return source if indices == wanted else None
        case _:
            return None


def _extent(op: Compute, position: int) -> int:
    if len(op.axes) < -position:
        return 1
    extent = op.axes[position].extent
    return int(extent.value) if isinstance(extent, Const) else UNKNOWN_EXTENT
