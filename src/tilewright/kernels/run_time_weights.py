"""Weights that are known only at run time: the kernel first copies them into the order in which it reads them.

A convolution in blocks of filters reads one weight of 16 filters at a time, which lie far apart in ``[filters,
channels, taps...]``. The copy is ``[filters // 16, channels * taps, filters % 16]``: rows of weights, transposed in
squares. Constant weights are stored in such an order at compile time (``packing``).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tilewright.kernels.packing import second_factor
from tilewright.kernels.relayout import with_reads
from tilewright.ops.build import tensor
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Const, Expr
from tilewright.symbolic.sizes import flat_index
from tilewright.symbolic.traversal import free_vars
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Compute, Operation, Placeholder, Tensor, reads_of, topological_order


@dataclass(frozen=True, slots=True)
class Copied:
    """A te program in which weights are copied. ``parameters``: these weights as it sees them, ``[filters, channels *
    taps]``, which is the same in memory; ``copies``: what it reads, for which there may be layouts."""

    outputs: list[Tensor]
    parameters: Mapping[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    copies: frozenset[Tensor] = frozenset()


def copied_weights(outputs: Sequence[Tensor], others: Collection[Tensor]) -> Copied:
    """The program of ``outputs`` with copies of all weights, except ``others``, of which sums of products along the
    second dimension of their result read a whole row for each of its elements."""
    operations = topological_order(outputs)
    found = {weight for op in operations if (weight := _weight(op, operations)) is not None and weight not in others}
    flat = {weight: _flat(weight) for weight in found}
    copies = {weight: _copy(flat[weight]) for weight in found}

    def instead(source: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        return copies[source][indices[0], flat_index(indices[1:], source.shape[1:])] if source in copies else None

    return Copied(with_reads(outputs, instead), flat, frozenset(copies.values()))


def _weight(op: Operation, operations: Sequence[Operation]) -> Tensor | None:
    """The weight that ``op`` alone reads, row by row."""
    if not isinstance(op, Compute) or op.reduction is None or len(op.axes) < 2:
        return None
    read = second_factor(op)
    if read is None or not isinstance(read.source, Tensor) or not isinstance(read.source.op, Placeholder):
        return None
    first, *others = read.indices
    reduced = {axis.var for axis in op.reduce_axis}
    is_row = len(others) > 1 and all(isinstance(index, Const) or free_vars(index) <= reduced for index in others)
    if first != op.axes[1].var or not is_row or static(read.source.shape) is None:
        return None
    readers = [
        other for other in operations if isinstance(other, Compute) for s, _ in reads_of(other) if s is read.source
    ]
    return read.source if readers == [op] else None


def _flat(weight: Tensor) -> Tensor:
    extents = static(weight.shape)
    assert extents is not None, "weights with run-time extents are not copied"
    return placeholder((extents[0], prod(extents[1:])), weight.dtype, weight.name)


def _copy(weight: Tensor) -> Tensor:
    return tensor(weight.shape, lambda index: weight[index], f"{weight.name}_copy")
