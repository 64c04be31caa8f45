"""Checks of indices in kernels: assigns them to nodes, and removes those that constants decide."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.graph import Graph, Value
from tilewright.loops.program import Program
from tilewright.loops.visit import transform_exprs
from tilewright.symbolic.check import Check, clamped
from tilewright.symbolic.expr import Cast, Const, Expr, Read
from tilewright.symbolic.traversal import transform
from tilewright.tensor.ir import Compute, Operation, Tensor, inputs_of, topological_order

Range = tuple[int, int]
"""The least and the largest element."""


def known_ranges(values: Sequence[Value], graph: Graph) -> dict[Value, Range]:
    """The range of the elements of those ``values`` that are constant integers."""
    arrays = {value: graph.constants[value] for value in values if value in graph.constants and value.dtype.is_int}
    return {value: (int(np.min(array)), int(np.max(array))) for value, array in arrays.items() if array.size}


def without_known_checks(program: Program, ranges: Mapping[str, Range]) -> Program:
    """``program`` without checks of indices in the parameters ``ranges`` that can't fail."""

    def leave(node: Expr) -> Expr | None:
        return clamped(node) if isinstance(node, Check) and _cannot_fail(node, ranges) else None

    def change(expr: Expr) -> Expr:
        return transform(expr, leave, lambda node: node.has_reads)

    return replace(program, body=transform_exprs(program.body, change)) if ranges else program


def _cannot_fail(check: Check, ranges: Mapping[str, Range]) -> bool:
    index = check.index
    while isinstance(index, Cast) and index.a.dtype.is_int and index.a.dtype.bits <= index.dtype.bits:
        index = index.a
    if not isinstance(index, Read) or index.source.name not in ranges or not isinstance(check.extent, Const):
        return False
    least, most = ranges[index.source.name]
    extent = int(check.extent.value)
    return (-extent if check.from_end else 0) <= least and most < extent


def numbered(results: Sequence[Tensor], known: Collection[Tensor], number: int) -> tuple[Tensor, ...]:
    """``results``, made of the tensors ``known``, with ``number`` in the origins of their checks.

    Only computes are changed: operators that can share a kernel consist of them.
    """
    made = {tensor: tensor for tensor in known}
    given = {tensor.op for tensor in known}

    def change(expr: Expr) -> Expr:
        return transform(expr, leave, lambda node: node.has_reads)

    def leave(node: Expr) -> Expr | None:
        if isinstance(node, Read) and isinstance(node.source, Tensor):
            return Read(made.get(node.source, node.source), node.indices)
        if isinstance(node, Check):
            return replace(node, origin=replace(node.origin, number=number))
        return None

    order = [op for op in topological_order(results) if op not in given]
    if not all(isinstance(op, Compute) for op in order):
        return tuple(results)
    for op in order:
        changed = _with_values(op, change)
        tensors = {t for user in order for t in inputs_of(user) if t.op is op} | {t for t in results if t.op is op}
        made.update((tensor, replace(tensor, op=changed)) for tensor in tensors)
    return tuple(made[tensor] for tensor in results)


def _with_values(op: Operation, change: Callable[[Expr], Expr]) -> Operation:
    if not isinstance(op, Compute):
        return op
    if op.reduction is None:
        return replace(op, bodies=tuple(map(change, op.bodies)))
    sources, condition = tuple(map(change, op.reduction.sources)), change(op.reduction.condition)
    return replace(op, reduction=replace(op.reduction, sources=sources, condition=condition))
