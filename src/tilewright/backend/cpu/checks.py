"""Emits run-time checks: of data-dependent indices, and optionally of every access.

A bad index is reported through ``tw_fail`` (``runtime.abi``) with the number of its *site*; only the first report of a
call is kept. A ``Check`` costs a comparison and an untaken branch (for lanes, also a reduction of the mask), and its
value is always within the extent. In the bounds-checked mode every access is compared with its buffer's shape first,
and skipped if it is outside.

No branch is emitted for indices known to be in bounds, nor for a condition that was checked before: unrolled bodies
have many of both, and LLVM's time grows superlinearly with the number of branches.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, integer
from tilewright.base import dtypes
from tilewright.loops.ir import Buffer
from tilewright.runtime.abi import ErrorCode
from tilewright.symbolic.check import Check, Origin
from tilewright.symbolic.expr import Const, Expr, format_expr
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import walk

CONTEXT = "%context"
"""Name of the pointer to the call's context in functions."""

Site = Origin | str
"""The subject of a site: the indices of an origin, or an access as text."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition for a memory access: a uniform condition and a mask of lanes; None: always."""

    uniform: Value | None = None
    lanes: Value | None = None

    @property
    def is_never(self) -> bool:
        """Whether it is known that no lane is active."""
        return any(
            part is not None and part.constants is not None and not any(part.constants)
            for part in (self.uniform, self.lanes)
        )


class Evaluator(Protocol):
    """The interface of the expression emitter for the checks."""

    text: FunctionText
    ops: ArithmeticEmitter

    def value(self, expr: Expr) -> Value: ...


@dataclass(frozen=True, slots=True)
class IndexChecks:
    """Emits ``Check`` expressions; ``sites`` is the list of all sites of the module, None: nothing is reported."""

    sites: list[Site] | None

    def place(self, emitter: Evaluator, check: Check, index: Value, guard: Guard) -> Value:
        """The position that ``index`` denotes: within the extent, unless that is 0."""
        ops = emitter.ops
        extent = emitter.value(check.extent)
        index, size = ops.widen(index, extent)
        position = index
        if check.from_end:
            negative = ops.binary(BinaryOp.LT, index, integer(0))
            position = ops.select(negative, ops.binary(BinaryOp.ADD, index, size), index)
        if self.sites is None:
            last = ops.binary(BinaryOp.SUB, size, integer(1))
            return ops.binary(BinaryOp.MAX, ops.binary(BinaryOp.MIN, position, last), integer(0))
        inside = _is_below(ops, position, size)
        code = ErrorCode.INDEX_FROM_END if check.from_end else ErrorCode.INDEX
        report(emitter, self.sites, check.origin, code, _Found(inside, index, size), guard)
        return ops.select(inside, position, integer(0))

    def guard(self, emitter: Evaluator, indices: tuple[Expr, ...], guard: Guard) -> Guard:
        """``guard``, and that the extents of all checked indices are not 0: else no position is valid."""
        for index in indices:
            if not index.has_reads:
                continue
            for node in walk(index):
                if isinstance(node, Check) and not (isinstance(node.extent, Const) and node.extent.value > 0):
                    some = emitter.ops.binary(BinaryOp.GT, emitter.value(node.extent), integer(0))
                    both = some if guard.uniform is None else emitter.ops.binary(BinaryOp.AND, guard.uniform, some)
                    guard = Guard(both, guard.lanes)
        return guard


@dataclass(frozen=True, slots=True)
class BoundsChecks:
    """Emits the checks of all accesses; ``sites`` is the list of all sites of the module."""

    sites: list[Site]

    def narrow(self, emitter: Evaluator, buffer: Buffer, indices: tuple[Expr, ...], guard: Guard) -> Guard:
        """``guard`` without the lanes that are out of bounds; those are reported."""
        for position, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            site = f"index {position} of {buffer.name}[{', '.join(map(format_expr, indices))}]"
            guard = self._one(emitter, site, emitter.value(index), emitter.value(extent), guard)
        return guard

    def _one(self, emitter: Evaluator, site: str, index: Value, extent: Value, guard: Guard) -> Guard:
        ops = emitter.ops
        index, extent = ops.widen(index, extent)
        inside = _is_below(ops, index, extent)
        report(emitter, self.sites, site, ErrorCode.OUT_OF_BOUNDS, _Found(inside, index, extent), guard)
        if inside.lanes == 1:
            return Guard(
                inside if guard.uniform is None else ops.binary(BinaryOp.AND, guard.uniform, inside), guard.lanes
            )
        return Guard(guard.uniform, inside if guard.lanes is None else ops.binary(BinaryOp.AND, guard.lanes, inside))


def _is_below(ops: ArithmeticEmitter, index: Value, extent: Value) -> Value:
    """Whether ``0 <= index < extent``: as unsigned, a negative number is large."""
    return ops.binary(BinaryOp.LT, ops.cast(index, dtypes.u64), ops.cast(extent, dtypes.u64))


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a check: whether ``index`` is ``inside`` the extent, in each lane."""

    inside: Value
    index: Value
    extent: Value


def report(emitter: Evaluator, sites: list[Site], site: Site, code: ErrorCode, found: _Found, guard: Guard) -> None:
    """A branch to ``tw_fail`` if an active index is outside."""
    ops = emitter.ops
    outside = _conjunction(ops, guard, ops.unary(UnaryOp.NOT, found.inside))
    any_bad = ops.any_lane(outside)
    if any_bad.literal == 0 or not emitter.text.first(f"report {any_bad.text}"):
        return
    if site not in sites:
        sites.append(site)
    label = emitter.text.open_branch()
    here = emitter.text.depth  # operands of the report are computed in the branch, although they could be hoisted
    mask, values = replace(outside, depth=here), (replace(v, depth=here) for v in (found.index, found.extent))
    scalars = [emitter.ops.first_active(value, mask) for value in values]
    arguments = ", ".join(f"i64 {v.text}" for v in scalars)
    emitter.text.effect(
        f"call void @tw_fail(ptr {CONTEXT}, i64 {code.value}, i64 {sites.index(site)}, {arguments}) cold"
    )
    emitter.text.branch(any_bad, [(label, emitter.text.close_branch()[1])])


def _conjunction(ops: ArithmeticEmitter, guard: Guard, condition: Value) -> Value:
    for part in (guard.uniform, guard.lanes):
        if part is not None:
            condition = ops.binary(BinaryOp.AND, condition, part)
    return condition
