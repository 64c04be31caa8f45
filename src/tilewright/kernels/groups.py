"""Splits filters by group: a sum that reads channel ``f // 29 * 2 + c`` reads the same for 29 filters ``f``.

Over ``f // 29, f % 29`` a convolution in groups is an ordinary one inside of a loop over groups: the filters of a
register tile share what they read. Likewise in blocks of channels, if those of a group fill several: over
``f // 16, f % 16 // 8`` instead of the block ``f // 8``, a tile may have two blocks. The order in memory is unchanged.
"""

from collections.abc import Sequence

from tilewright.kernels.relayout import Layouts, operations, split
from tilewright.schedule.index_map import Digit, IndexMap, digit
from tilewright.symbolic.expr import Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, walk
from tilewright.tensor.ir import Compute, Tensor, inputs_of, reads_of, topological_order


def split_groups(outputs: Sequence[Tensor], layouts: Layouts) -> Layouts:
    """``layouts`` with the filters of a sum in groups, and of its consumers, split by group: all filters if every one
    of ``outputs`` is stored plain, else the blocks of those that are stored in blocks."""
    found, is_plain = dict(layouts), not layouts.keys() & set(outputs)
    for op in topological_order(outputs):
        size = _size(op) if isinstance(op, Compute) else None
        if isinstance(op, Compute) and size is not None:
            shape, before = tuple(axis.extent for axis in op.axes), set(topological_order(inputs_of(op)))
            after = [t for made, tensors in operations(outputs) if made not in before for t in tensors]
            same = [t for t in after if isinstance(t.op, Compute) and t.shape == shape]
            if is_plain:
                found.update((tensor, split(tensor.ndim, size)) for tensor in same if tensor not in layouts)
            else:
                found.update((tensor, _blocks_by_group(layouts[tensor], size)) for tensor in same if tensor in layouts)
    return found


def _blocks_by_group(index_map: IndexMap, size: int) -> IndexMap:
    """``index_map`` with its blocks of channels split by group, if ``size`` filters of a group are several of them."""
    channel = index_map.variables[1]
    digits = ((place, digit(result)) for place, result in enumerate(index_map.results))
    match [(place, own.scale) for place, own in digits if own and own == Digit(channel, own.scale) and own.scale > 1]:
        case [(place, width)] if size > width and size % width == 0:
            by_group = channel // size, channel % size // width
            return IndexMap(
                index_map.variables, (*index_map.results[:place], *by_group, *index_map.results[place + 1 :])
            )
        case _:
            return index_map


def _size(op: Compute) -> int | None:
    """The number of filters of a group, along the second axis, that read the same channels, if there are several."""
    if op.reduction is None or len(op.axes) < 3 or not isinstance(op.axes[1].extent, Const):
        return None
    filters, reduced = int(op.axes[1].extent.value), {axis.var for axis in op.reduce_axis}
    # Each filter of a depthwise convolution reads a channel, which depends on no axis of the reduction.
    summed = [index for _, indices in reads_of(op) for index in indices if free_vars(index) & reduced]
    sizes = [size for index in summed if (size := _divisor(index, op.axes[1].var)) is not None]
    return sizes[0] if sizes and sizes[0] < filters and filters % sizes[0] == 0 else None


def _divisor(index: Expr, var: Var) -> int | None:
    """What ``var`` is divided by in ``index``."""
    for node in walk(index):
        match node:
            case Binary(BinaryOp.FLOORDIV, place, Const(int(size))) if place == var and size > 1:
                return size
            case _:
                pass
    return None
