"""Splits loops by phase: a sum that reads at ``(y + 1) % 2`` reads the same for every second ``y``.

A transposed convolution has a filter for each phase. Over ``y // 2, y % 2`` it is an ordinary convolution inside of a
loop over phases: all positions of a register tile share the filter, and each phase stores its own outputs.
"""

from collections.abc import Mapping, Sequence
from math import lcm

from tilewright.kernels.relayout import Layouts
from tilewright.ops.shapes import simplified
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import ZERO, Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, walk
from tilewright.tensor.ir import Compute, Tensor, inputs_of, reads_of, topological_order


def split_phases(outputs: Sequence[Tensor], layouts: Layouts) -> Layouts:
    """``layouts`` with the spatial dimensions of a sum, and of its consumers, split by the strides of its phases.

    The order in memory is unchanged: only dimensions that are a multiple of their stride are split.
    """
    split = dict(layouts)
    for op in topological_order(outputs):
        if isinstance(op, Compute) and op.reduction is not None:
            strides = _strides(op)
            shape = tuple(axis.extent for axis in op.axes)
            before = set(topological_order(inputs_of(op)))
            for tensor, index_map in layouts.items():
                if tensor.shape == shape and tensor.op not in before:
                    split[tensor] = _split(index_map, tensor.shape, [strides.get(axis.var, 1) for axis in op.axes])
    return split


def _strides(op: Compute) -> Mapping[Var, int]:
    """The number of phases that the reads of ``op`` distinguish along its axes."""
    found: dict[Var, int] = {}
    axes = {axis.var for axis in op.axes[2:]}
    for _, indices in reads_of(op):
        for node in (node for index in indices for node in walk(index)):
            match node:
                case Binary(BinaryOp.MOD, place, Const(value=int() as stride)):
                    for v in free_vars(place) & axes:
                        found[v] = lcm(found.get(v, 1), stride)
                case _:
                    pass
    return found


def _split(index_map: IndexMap, shape: Sequence[Expr], strides: Sequence[int]) -> IndexMap:
    """``index_map`` with unblocked dimensions split by their strides, if these divide them."""
    places = zip(index_map.variables, shape, strides, strict=True)
    divided = {v: stride for v, extent, stride in places if stride > 1 and simplified(extent % stride) == ZERO}
    results: list[Expr] = []
    for result in index_map.results:
        stride = divided.get(result) if isinstance(result, Var) else None
        results.extend([result] if stride is None else [result // stride, result % stride])
    return IndexMap(index_map.variables, tuple(results))
