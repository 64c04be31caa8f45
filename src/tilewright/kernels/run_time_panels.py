"""Matrices that are known only at run time, and that a kernel copies before it multiplies by them: in panels.

``a @ transpose(b)`` needs the columns of ``transpose(b)`` side by side, so its kernel copies ``b`` in squares. Of a
copy in rows, a tile would read a short piece of each, all in few sets of the first cache; panels as wide as the tile
are read from one end to the other. Constants are stored so at compile time (``packing``).
"""

from collections.abc import Collection, Sequence
from functools import partial

from tilewright.kernels.packing import Groups, second_factor
from tilewright.kernels.relayout import Layouts, origin_of, with_reads
from tilewright.ops.build import tensor
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Expr, Read
from tilewright.tensor.ir import Compute, Operation, Placeholder, Scan, Tensor, inputs_of, topological_order


def copied_panels(outputs: Sequence[Tensor], layouts: Layouts, groups: Groups) -> frozenset[Tensor]:
    """The tensors between ``outputs`` and their inputs that are second factors of one sum of products each, and that
    can't be read from where they come from: their columns do not lie side by side there, or in several places; or an
    instruction has them in ``groups``."""
    operations = topological_order(outputs)
    if any(isinstance(op, Scan) for op in operations):
        return frozenset()
    found = {factor for op in operations if (factor := _factor(op, layouts, groups)) is not None}
    return frozenset(
        factor for factor in found if _is_free(factor, outputs, layouts) and _is_used_once(factor, operations)
    )


def with_copies(outputs: Sequence[Tensor], factors: Collection[Tensor]) -> list[Tensor]:
    """``outputs`` that read copies of ``factors``, which may then have layouts, in place of placeholders among them."""
    given = (factor for factor in factors if isinstance(factor.op, Placeholder))
    copies = {factor: tensor(factor.shape, partial(_element, factor), f"{factor.name}_copy") for factor in given}

    def instead(source: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        return Read(copies[source], indices) if source in copies else None

    return with_reads(outputs, instead) if copies else list(outputs)


def _element(x: Tensor, index: tuple[Expr, ...]) -> Expr:
    return x[index]


def _factor(op: Operation, layouts: Layouts, groups: Groups) -> Tensor | None:
    """The second factor of ``op``, if that is computed from a placeholder, and must be copied."""
    read = second_factor(op) if isinstance(op, Compute) else None
    source = None if read is None else read.source
    if not isinstance(op, Compute) or not isinstance(source, Tensor):
        return None
    if not isinstance(source.op, Compute) or source.op.reduction is not None:
        return None
    is_in_groups = groups(op, source, layouts) is not None
    return source if is_in_groups or _is_copied(source, source.op) else None


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
