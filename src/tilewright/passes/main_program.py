"""The main program of a model: one call per group of nodes, in order, and the memory between them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import InternalError
from tilewright.base.names import Names, readable
from tilewright.graph import Graph, Value
from tilewright.loops.ir import Alloc, Buffer, Call, Callee, Region, Seq, Stmt
from tilewright.loops.program import Dim, Program
from tilewright.symbolic.expr import ZERO


@dataclass(frozen=True, slots=True)
class Step:
    """One call of main: a kernel's name, and its arguments in its layouts; the last ``outputs`` are results."""

    kernel: str
    arguments: tuple[Value, ...]
    outputs: int


def main_program(graph: Graph, steps: Sequence[Step], constants: Collection[Value], dims: tuple[Dim, ...]) -> Program:
    """Main: inputs, constants, outputs; all other values are allocated."""
    buffers = _buffers(graph, steps, constants)
    names = Names(buffer.name for buffer in buffers.values())
    outputs = [Buffer(names.fresh(f"{readable(v.name)}.out"), v.dtype, v.shape) for v in graph.outputs]
    writes = dict(zip(graph.outputs, outputs, strict=True))
    _check_made(writes, {*graph.inputs, *constants})
    buffers.update(writes)
    body: Stmt = Seq(tuple(_call(step, buffers) for step in steps))
    given = {*graph.inputs, *constants, *writes}
    for value in reversed([v for v in buffers if v not in given]):
        body = Alloc(buffers[value], body)
    params = (*(buffers[v] for v in graph.inputs), *(buffers[v] for v in constants), *outputs)
    return Program("main", params, body, dims, len(outputs))


def _check_made(outputs: Iterable[Value], given: Collection[Value]) -> None:
    for value in outputs:
        if value in given:
            raise InternalError(f"output {value.name} is an input or constant: the importer should have copied it")


def _buffers(graph: Graph, steps: Sequence[Step], constants: Collection[Value]) -> dict[Value, Buffer]:
    mentioned = dict.fromkeys((*graph.inputs, *constants, *(v for step in steps for v in step.arguments)))
    names = Names(())
    return {value: Buffer(names.fresh(readable(value.name)), value.dtype, value.shape) for value in mentioned}


def _call(step: Step, buffers: Mapping[Value, Buffer]) -> Call:
    arguments = (buffers[value] for value in step.arguments)
    regions = tuple(Region(b, tuple((ZERO, extent) for extent in b.shape)) for b in arguments)
    return Call(Callee.KERNEL, step.kernel, regions, step.outputs)
