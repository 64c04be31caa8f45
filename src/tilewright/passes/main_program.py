"""The main program of a model: one call per group of nodes, in order, and the memory between them.

Groups that compute a part of a batch (``parts_of_batches``) are called in a loop, on a part of each value. A value that
only they use is allocated inside of it, for one part.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tilewright.base.errors import InternalError
from tilewright.base.names import Names, readable
from tilewright.graph import Graph, Value
from tilewright.loops.ir import Alloc, Buffer, Call, Callee, Loop, Region, Seq, Stmt
from tilewright.loops.program import Dim, Program
from tilewright.passes.parts_of_batches import InParts
from tilewright.symbolic.expr import ZERO, Expr, Var, const


@dataclass(frozen=True, slots=True)
class Step:
    """One call of main: a kernel's name, and its arguments in its layouts; the last ``outputs`` are results."""

    kernel: str
    arguments: tuple[Value, ...]
    outputs: int


def main_program(
    graph: Graph,
    steps: Sequence[Step],
    constants: Collection[Value],
    dims: tuple[Dim, ...],
    in_parts: Sequence[InParts] = (),
) -> Program:
    """Main: inputs, constants, outputs; all other values are allocated. ``in_parts``: the steps that are in loops."""
    around = {at: loop for loop in in_parts for at in range(loop.start, loop.stop)}
    calls = [_Called(step, around.get(at), constants) for at, step in enumerate(steps)]
    inside = _inside(calls, {*graph.inputs, *graph.outputs})
    buffers = _buffers((*graph.inputs, *constants), calls, inside)
    names = Names(buffer.name for buffer in buffers.values())
    outputs = [Buffer(names.fresh(f"{readable(v.name)}.out"), v.dtype, v.shape) for v in graph.outputs]
    writes = dict(zip(graph.outputs, outputs, strict=True))
    _check_made(writes, {*graph.inputs, *constants})
    buffers.update(writes)
    variables = Names(dim.var.name for dim in dims)
    body: list[Stmt] = []
    for loop, alike in groupby(calls, lambda call: call.loop):
        part = Var(variables.fresh("part"))
        made = [_call(call, buffers, inside, part) for call in alike]
        own = [buffers[value] for value, user in inside.items() if user == loop]
        body += made if loop is None else [Loop(part, const(loop.count), _allocated(own, Seq(tuple(made))))]
    given = {*graph.inputs, *constants, *writes, *inside}
    params = (*(buffers[v] for v in graph.inputs), *(buffers[v] for v in constants), *outputs)
    whole = _allocated([buffer for value, buffer in buffers.items() if value not in given], Seq(tuple(body)))
    return Program("main", params, whole, dims, len(outputs))


@dataclass(frozen=True, slots=True)
class _Called:
    """A step, and the loop around it."""

    step: Step
    loop: InParts | None
    constants: Collection[Value]

    def whole(self, argument: Value) -> Value:
        """The value of which ``argument`` is a part."""
        if self.loop is None or argument in self.constants:
            return argument
        first, *others = argument.shape
        return replace(argument, shape=(first * self.loop.count, *others))

    @property
    def values(self) -> tuple[Value, ...]:
        """The whole values that it uses."""
        return tuple(map(self.whole, self.step.arguments))


def _inside(calls: Iterable[_Called], given: Collection[Value]) -> dict[Value, InParts]:
    """The values that are used in one loop only, and that loop."""
    users: dict[Value, set[InParts | None]] = {}
    for call in calls:
        for value in call.values:
            users.setdefault(value, set()).add(None if value in call.constants else call.loop)
    only = ((value, next(iter(found))) for value, found in users.items() if len(found) == 1 and value not in given)
    return {value: loop for value, loop in only if loop is not None}


def _allocated(own: Sequence[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(own):
        body = Alloc(buffer, body)
    return body


def _check_made(outputs: Iterable[Value], given: Collection[Value]) -> None:
    for value in outputs:
        if value in given:
            raise InternalError(f"output {value.name} is an input or constant: the importer should have copied it")


def _buffers(given: Sequence[Value], calls: Iterable[_Called], inside: Mapping[Value, InParts]) -> dict[Value, Buffer]:
    mentioned = dict.fromkeys((*given, *(value for call in calls for value in call.values)))
    names = Names(())
    return {
        value: Buffer(names.fresh(readable(value.name)), value.dtype, _shape(value, inside.get(value)))
        for value in mentioned
    }


def _shape(value: Value, loop: InParts | None) -> tuple[Expr, ...]:
    """That of the buffer: a part of the value, in a loop."""
    return value.shape if loop is None else (value.shape[0] // loop.count, *value.shape[1:])


def _call(call: _Called, buffers: Mapping[Value, Buffer], inside: Collection[Value], part: Var) -> Call:
    regions: list[Region] = []
    for argument, value in zip(call.step.arguments, call.values, strict=True):
        whole = tuple((ZERO, extent) for extent in buffers[value].shape)
        is_part = argument != value and value not in inside
        first = ((part * argument.shape[0], argument.shape[0]),) if is_part else whole[:1]
        regions.append(Region(buffers[value], (*first, *whole[1:])))
    return Call(Callee.KERNEL, call.step.kernel, tuple(regions), call.step.outputs)
