"""Maps calls of a compiled model to nodes of the user's model."""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.compilation import Compiled
from tilewright.loops.ir import Call, Loop, Stmt
from tilewright.loops.visit import allocations, children
from tilewright.passes.fuse import Group
from tilewright.passes.scheduled import ScheduledKernel
from tilewright.symbolic.expr import Const


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call in main: the kernel, the group of nodes that it computes, and how often it runs: once for each part of a
    batch, if it is in a loop over these."""

    kernel: ScheduledKernel
    group: Group
    times: int = 1


def calls_of(compiled: Compiled) -> Iterator[KernelCall]:
    """The calls of main in order. Groups that share a kernel are in the order of its calls."""
    groups = {kernel.program.name: iter(kernel.groups) for kernel in compiled.kernels}
    kernels = {kernel.program.name: kernel for kernel in compiled.kernels}
    for call, times in _repeated(compiled.main.body, 1):
        yield KernelCall(kernels[call.callee], next(groups[call.callee]), times)


def _repeated(stmt: Stmt, times: int) -> Iterator[tuple[Call, int]]:
    """The calls in ``stmt``, which runs so many times, and how often each runs."""
    _, stmt = allocations(stmt)
    if isinstance(stmt, Call):
        yield stmt, times
    if isinstance(stmt, Loop) and isinstance(stmt.extent, Const):
        times *= int(stmt.extent.value)
    for child in children(stmt):
        yield from _repeated(child, times)


def sources(group: Group) -> tuple[str, ...]:
    """The nodes of the user's model from which ``group`` was made, without repetitions."""
    return tuple(dict.fromkeys(node.source for node in group.nodes if node.source))
