"""Calls of intrinsics that come with an implementation in LLVM IR (the others are inlined by ``prepare``)."""

from tilewright.backend.cpu.statements import StatementEmitter
from tilewright.loops.ir import Call, Region
from tilewright.loops.program import Intrinsic
from tilewright.symbolic.expr import Expr, binary, const
from tilewright.symbolic.operations import BinaryOp


def emit_intrinsic(emitter: StatementEmitter, intrinsic: Intrinsic, call: Call) -> None:
    """Write the call: for each parameter the address of its region, then its strides (in elements) but the last."""
    operands: list[str] = []
    for parameter, region in zip(intrinsic.description.params, call.args, strict=True):
        operands.append(
            f"ptr {emitter.scalars.pointer(region.buffer, tuple(start for start, _ in region.ranges)).text}"
        )
        operands.extend(
            f"i64 {emitter.scalars.value(stride).text}" for stride in _strides(region, len(parameter.shape))
        )
    if intrinsic.implementation not in emitter.state.module.functions:
        emitter.state.module.functions.append(intrinsic.implementation)
    emitter.text.effect(f"call void @{intrinsic.name}({', '.join(operands)})")
    emitter.text.forget(None)


def _strides(region: Region, rank: int) -> list[Expr]:
    """The strides of the last ``rank`` dimensions, without that of the last one, which is 1."""
    strides: list[Expr] = [const(1)]
    for extent in reversed(region.buffer.shape[1:]):
        strides.append(binary(BinaryOp.MUL, strides[-1], extent))
    return strides[1:rank][::-1]
