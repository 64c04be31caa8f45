"""``evaluate`` and ``run_on_reference``: compute tensors and schedules with NumPy, without native code."""

from collections.abc import Mapping, Sequence
from typing import cast, overload

import numpy as np

from tilewright.backend.reference import Report, run_reference
from tilewright.base.arguments import checked
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadProgram, ResourceLimit
from tilewright.cost.work import count
from tilewright.loops.evaluate_extern import evaluate_extern
from tilewright.loops.interpreter import interpret
from tilewright.loops.program import Program
from tilewright.measure.workload import INTERPRETED_OPERATIONS
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Var
from tilewright.te.stage import TeSchedule
from tilewright.tensor.evaluate import evaluate as _evaluate
from tilewright.tensor.ir import Tensor, inputs_of, topological_order


@overload
def evaluate(outputs: Tensor, feeds: Mapping[Tensor, object], dims: Mapping[str, int] | None = None) -> Array: ...
@overload
def evaluate(
    outputs: Sequence[Tensor], feeds: Mapping[Tensor, object], dims: Mapping[str, int] | None = None
) -> list[Array]: ...
@checked(BadProgram)
def evaluate(
    outputs: Tensor | Sequence[Tensor], feeds: Mapping[Tensor, object], dims: Mapping[str, int] | None = None
) -> Array | list[Array]:
    """The value of a tensor, or of several, where the tensors in ``feeds`` have the given values, by NumPy.

    Nothing is scheduled or compiled. Any tensor may be fed. ``dims`` gives run-time extents that are in no shape.
    Raises ``BadFeed`` if a feed is missing or does not fit, ``OutOfBounds`` for a read outside of its tensor.
    """
    wanted = [outputs] if isinstance(outputs, Tensor) else [*outputs]
    arrays = {tensor: _array(repr(tensor), value) for tensor, value in feeds.items()}
    shapes = [extent for op in topological_order(wanted) for t in inputs_of(op) for extent in t.shape]
    named = {v.name: v for extent in (*shapes, *(e for t in wanted for e in t.shape)) for v in extent.variables}
    found = _evaluate(
        wanted, arrays, {named[n]: size for n, size in (dims or {}).items() if n in named}, evaluate_extern
    )
    return found[0] if isinstance(outputs, Tensor) else found


@checked(BadProgram)
def run_on_reference(
    schedule: TeSchedule | Program, inputs: Mapping[str, object], dims: Mapping[str, int] | None = None
) -> tuple[dict[str, Array], Report]:
    """The outputs of ``schedule`` on the reference back end, by name, and a report of the run.

    The report counts bytes by memory, operations and barriers, and lists races and invalid accesses, which its
    ``check`` raises. ``dims`` gives run-time extents that are in no shape. Raises ``BadFeed`` for inputs that do not
    fit.
    """
    arrays = {name: _array(name, value) for name, value in inputs.items()}
    return run_reference(schedule if isinstance(schedule, Program) else schedule.program, arrays, dims)


def meaning(
    schedule: TeSchedule | Schedule | Program, feeds: Mapping[str, Array], dims: Mapping[str, int]
) -> dict[str, Array]:
    """The outputs of ``schedule``, by name, computed from its naive program or tensor expressions.

    Small programs are interpreted; of large ones the tensor expressions are evaluated. Raises ``ResourceLimit`` for a
    large program of which only the loops are known.
    """
    began = schedule.naive if isinstance(schedule, TeSchedule) else schedule
    naive = began if isinstance(began, Program) else began.program
    work = count(naive, dims)
    if work is not None and work.operations + work.bytes <= INTERPRETED_OPERATIONS:
        return interpret(naive, feeds, dims)
    if not isinstance(schedule, TeSchedule):
        raise ResourceLimit(f"{naive.name} is too large to be interpreted; build the schedule of tensors to check it")
    read = (t for op in topological_order(schedule.outputs) for t in (*inputs_of(op), *schedule.outputs))
    named = {tensor: schedule.buffer(tensor) for tensor in read}
    fed = {tensor: feeds[name] for tensor, name in named.items() if name in feeds}
    extents: dict[Var, int] = {dim.var: dims[dim.var.name] for dim in naive.dims}
    results = _evaluate(schedule.outputs, fed, extents, evaluate_extern)
    return {buffer.name: array for buffer, array in zip(naive.results, results, strict=True)}


def _array(name: str, value: object) -> Array:
    if not isinstance(value, np.ndarray):
        raise BadFeed(f"{name} is {type(value).__name__}; give a NumPy array")
    return cast(Array, value)
