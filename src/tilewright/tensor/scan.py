"""Recurrences: ``te.scan``.

::

    S = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: S[t - 1, i] + X[t, i])
    total = te.scan(init, update, S)          # prefix sums along the first dimension

The operations between the state and the updates are *recurrent*: their first axis is time, and row ``t`` of one may
read rows of the state below ``t``, and of another recurrent operation row ``t`` itself.
"""

from collections.abc import Sequence
from typing import overload

from tilewright.base.errors import BadProgram
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Const, Read
from tilewright.symbolic.simplify import prove
from tilewright.symbolic.traversal import walk
from tilewright.tensor.build import UNNAMED
from tilewright.tensor.ir import Compute, Operation, Placeholder, Scan, Tensor, inputs_of, topological_order


@overload
def scan(init: Tensor, update: Tensor, state: Tensor, name: str | None = None) -> Tensor: ...
@overload
def scan(
    init: Sequence[Tensor], update: Sequence[Tensor], state: Sequence[Tensor], name: str | None = None
) -> tuple[Tensor, ...]: ...
def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state: Tensor | Sequence[Tensor],
    name: str | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The recurrence with the first ``k`` rows of ``init``, and row ``t`` of ``update`` for each ``t >= k``.

    ``state`` are placeholders of the whole results' shapes, which ``update`` reads at earlier rows. Pass lists for
    several mutually dependent states. Raises ``BadProgram`` if shapes or dtypes differ, or for a read of a later row.
    """
    op = Scan(name or UNNAMED, _listed(init), _listed(update), _listed(state))
    _check_signature(op)
    for recurrent in recurrent_operations(op):
        _check_reads(op, recurrent)
    single = isinstance(state, Tensor)
    names = [op.name if single or op.name == UNNAMED else f"{op.name}_{i}" for i in range(len(op.state))]
    outputs = tuple(Tensor(op, i, names[i], t.dtype, t.shape) for i, t in enumerate(op.state))
    return outputs[0] if single else outputs


def recurrent_operations(op: Scan) -> list[Compute]:
    """The computes that ``op`` evaluates at every step: those between its states and its updates, producers first.

    Raises ``BadProgram`` if one can't be evaluated step by step.
    """
    states = {state.op for state in op.state}
    found: dict[Operation, None] = dict.fromkeys(states)
    for each in topological_order(op.update):
        if each not in found and any(t.op in found for t in inputs_of(each)):
            if not isinstance(each, Compute):
                raise BadProgram(
                    f"scan {op.name}: {type(each).__name__.lower()} {each.name} depends on the state; "
                    "only computes can run within a step"
                )
            found[each] = None
    return [each for each in found if isinstance(each, Compute)]


def _listed(tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _check_signature(op: Scan) -> None:
    if not len(op.init) == len(op.update) == len(op.state) > 0:
        counts = f"{len(op.init)} inits, {len(op.update)} updates and {len(op.state)} states"
        raise BadProgram(f"scan {op.name}: {counts}; each state needs one init and one update")
    if len({state.op for state in op.state}) != len(op.state):
        raise BadProgram(f"scan {op.name}: a state is listed twice")
    for init, update, state in zip(op.init, op.update, op.state, strict=True):
        if not isinstance(state.op, Placeholder):
            raise BadProgram(f"scan {op.name}: state {state!r} is no placeholder")
        if not init.dtype == update.dtype == state.dtype:
            raise BadProgram(f"scan {op.name}: init {init!r}, update {update!r} and state {state!r} differ in dtype")
        if update.shape != state.shape or not state.shape or init.shape[1:] != state.shape[1:]:
            raise BadProgram(
                f"scan {op.name}: shapes must be (steps, ...) of the state, the same of the update, and (k, ...) of "
                f"the init; they are {state!r}, {update!r}, {init!r}"
            )
        rows, steps = init.shape[0], state.shape[0]
        if not isinstance(rows, Const) or rows.value < 1 or (isinstance(steps, Const) and rows.value > steps.value):
            raise BadProgram(f"scan {op.name}: the init has {rows} rows of {steps}; it needs a constant, at least 1")
        if rows != op.init[0].shape[0] or steps != op.state[0].shape[0]:
            raise BadProgram(f"scan {op.name}: all inits must have the same rows, and all states the same steps")


def _check_reads(op: Scan, recurrent: Compute) -> None:
    """Row ``t`` of a recurrent operation reads rows of the state below ``t``, and row ``t`` of recurrent operations."""
    steps = op.state[0].shape[0]
    if not recurrent.axes or recurrent.axes[0].extent != steps:
        raise BadProgram(f"scan {op.name}: the first axis of {recurrent.name} must be time, of extent {steps}")
    time = recurrent.axes[0].var
    bounds = Bounds({axis.var: axis.extent for axis in (*recurrent.axes, *recurrent.reduce_axis)})
    states = {state.op for state in op.state}
    inside = set(recurrent_operations(op))
    condition = (recurrent.reduction.condition,) if recurrent.reduction else ()
    for node in (node for value in (*recurrent.values, *condition) for node in walk(value)):
        if not isinstance(node, Read) or not isinstance(node.source, Tensor):
            continue
        row = node.indices[0] if node.indices else None
        if node.source.op in states and row is not None and prove(row >= time, bounds):
            raise BadProgram(f"scan {op.name}: {recurrent.name} reads the state at row {row}, not below {time}: {node}")
        if node.source.op in inside and row != time:
            raise BadProgram(f"scan {op.name}: {recurrent.name} reads {node}; within a step only row {time} is there")
