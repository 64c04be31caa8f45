"""Matrices that are known only at run time, and that a kernel copies before it multiplies by them: in panels.

``a @ transpose(b)`` needs the columns of ``transpose(b)`` side by side, so its kernel copies ``b`` in squares. Of a
copy in rows, a tile would read a short piece of each, all in few sets of the first cache; panels as wide as the tile
are read from one end to the other. Constants are stored so at compile time (``packing``).
"""

from collections.abc import Collection, Sequence

from tilewright.kernels.packing import second_factor
from tilewright.kernels.relayout import Layouts, origin_of
from tilewright.ops.shapes import static
from tilewright.tensor.ir import Compute, Operation, Placeholder, Scan, Tensor, inputs_of, topological_order


def copied_panels(outputs: Sequence[Tensor], layouts: Layouts) -> frozenset[Tensor]:
    """The tensors between ``outputs`` and their inputs that are second factors of one sum of products each, and that
    can't be read from where they come from: their columns do not lie side by side there, or in several places."""
    operations = topological_order(outputs)
    if any(isinstance(op, Scan) for op in operations):
        return frozenset()
    found = {factor for op in operations if (factor := _factor(op)) is not None}
    return frozenset(
        factor for factor in found if _is_free(factor, outputs, layouts) and _is_used_once(factor, operations)
    )


def _factor(op: Operation) -> Tensor | None:
    """The second factor of ``op``, if that is computed from a placeholder, and must be copied."""
    read = second_factor(op) if isinstance(op, Compute) else None
    source = None if read is None else read.source
    if not isinstance(source, Tensor) or not isinstance(source.op, Compute) or source.op.reduction is not None:
        return None
    return source if _is_copied(source, source.op) else None


def _is_copied(factor: Tensor, op: Compute) -> bool:
    """Whether ``factor`` is more than rows of another tensor: those are read where they are."""
    places = tuple(axis.var for axis in op.axes)
    origin, indices = origin_of(factor, places)
    if not isinstance(origin.op, Placeholder):
        return all(isinstance(source.op, Placeholder) for source in inputs_of(op))
    return not indices or indices[-1] != places[-1]


def _is_free(factor: Tensor, outputs: Collection[Tensor], layouts: Layouts) -> bool:
    """Whether its layout is open."""
    return factor not in outputs and factor not in layouts and static(factor.shape) is not None


def _is_used_once(factor: Tensor, operations: Sequence[Operation]) -> bool:
    return sum(factor in inputs_of(op) for op in operations) == 1
