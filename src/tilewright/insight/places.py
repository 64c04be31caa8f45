"""Maps calls of a compiled model to nodes of the user's model."""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.compilation import Compiled, ScheduledKernel
from tilewright.loops.ir import Call
from tilewright.loops.visit import walk
from tilewright.passes.fuse import Group


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call in main: the kernel, and the group of nodes that it computes."""

    kernel: ScheduledKernel
    group: Group


def calls_of(compiled: Compiled) -> Iterator[KernelCall]:
    """The calls of main in order. Groups that share a kernel are in the order of its calls."""
    groups = {kernel.program.name: iter(kernel.groups) for kernel in compiled.kernels}
    kernels = {kernel.program.name: kernel for kernel in compiled.kernels}
    for statement in walk(compiled.main.body):
        if isinstance(statement, Call):
            yield KernelCall(kernels[statement.callee], next(groups[statement.callee]))


def sources(group: Group) -> tuple[str, ...]:
    """The nodes of the user's model from which ``group`` was made, without repetitions."""
    return tuple(dict.fromkeys(node.source for node in group.nodes if node.source))
