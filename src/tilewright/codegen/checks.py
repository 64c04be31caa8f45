"""The bounds-checked mode: every access is compared with its buffer's shape before it happens.

A bad access is reported through ``tw_fail`` (``runtime.abi``) with the number of its *site*, and skipped. No branch is
written for what is known to be in bounds, nor for a condition that was reported before: unrolled bodies have many of
both, and LLVM's time grows faster than the number of branches.
"""

from dataclasses import dataclass, field
from typing import Protocol

from tilewright.base import dtypes
from tilewright.codegen.arithmetic import ArithmeticEmitter
from tilewright.codegen.text import FunctionText
from tilewright.codegen.values import Value
from tilewright.loops.ir import Buffer
from tilewright.runtime.abi import ErrorCode
from tilewright.symbolic.expr import Expr, format_expr
from tilewright.symbolic.operations import BinaryOp, UnaryOp


@dataclass(frozen=True, slots=True)
class Guard:
    """What must hold for memory to be touched: a uniform condition and a mask of lanes; None: always."""

    uniform: Value | None = None
    lanes: Value | None = None


class Evaluator(Protocol):
    """What the checks need of the expression emitter."""

    text: FunctionText
    ops: ArithmeticEmitter

    def value(self, expr: Expr) -> Value: ...
    def narrowed(self, condition: Value) -> Guard: ...


@dataclass(slots=True)
class BoundsChecks:
    """Writes the checks of one image, and keeps the list of their sites."""

    context: str
    sites: list[str] = field(default_factory=list[str])

    def narrow(self, emitter: Evaluator, buffer: Buffer, indices: tuple[Expr, ...], guard: Guard) -> Guard:
        """``guard`` without the lanes that are out of bounds; those are reported."""
        for position, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            place = f"{buffer.name}[{', '.join(map(format_expr, indices))}]"
            self.sites.append(f"index {position} of {place}")
            guard = self._one(emitter, emitter.value(index), emitter.value(extent), guard)
        return guard

    def _one(self, emitter: Evaluator, index: Value, extent: Value, guard: Guard) -> Guard:
        ops = emitter.ops
        index, extent = ops.widen(index, extent)
        inside = ops.binary(
            BinaryOp.LT, ops.cast(index, dtypes.u64), ops.cast(extent, dtypes.u64)
        )  # unsigned: negative is large
        active = _conjunction(ops, guard, ops.unary(UnaryOp.NOT, inside))
        any_bad = ops.any_lane(active)
        if any_bad.literal != 0 and emitter.text.first(f"report {any_bad.text}"):
            self._report(emitter, any_bad, active, index, extent)
        if inside.lanes == 1:
            return Guard(
                inside if guard.uniform is None else ops.binary(BinaryOp.AND, guard.uniform, inside), guard.lanes
            )
        return Guard(guard.uniform, inside if guard.lanes is None else ops.binary(BinaryOp.AND, guard.lanes, inside))

    def _report(self, emitter: Evaluator, any_bad: Value, active: Value, index: Value, extent: Value) -> None:
        """A branch to ``tw_fail``, which keeps the first report of a call and ignores the rest."""
        label = emitter.text.open_branch()
        scalars = [emitter.ops.first_active(v, active) for v in (index, extent)]
        site = len(self.sites) - 1
        arguments = ", ".join(f"i64 {v.text}" for v in scalars)
        emitter.text.effect(
            f"call void @tw_fail(ptr {self.context}, i64 {ErrorCode.OUT_OF_BOUNDS.value}, i64 {site}, {arguments})"
        )
        emitter.text.branch(any_bad, [(label, emitter.text.close_branch()[1])])


def _conjunction(ops: ArithmeticEmitter, guard: Guard, condition: Value) -> Value:
    for part in (guard.uniform, guard.lanes):
        if part is not None:
            condition = ops.binary(BinaryOp.AND, condition, part)
    return condition
