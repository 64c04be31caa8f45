"""The CPU back end: a native main, kernels as separate modules, parallel regions on the worker pool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.backend.api import PLAIN, Emission
from tilewright.backend.cpu import image
from tilewright.base.settings import Stage
from tilewright.loops.ir import LoopKind
from tilewright.loops.memory import GLOBAL, LOCAL, Memory
from tilewright.loops.program import Program
from tilewright.target.target import Target

OF_CPUS = frozenset({LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED})
"""Loops as CPUs run them."""


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Object code through LLVM for the processors of ``target``; images can be saved."""

    name: str = "cpu"

    @property
    def memories(self) -> Mapping[str, Memory]:
        """The memory of all workers, and that of one worker."""
        return {memory.name: memory for memory in (GLOBAL, LOCAL)}

    @property
    def loop_kinds(self) -> frozenset[LoopKind]:
        """All kinds except those of grids."""
        return OF_CPUS

    def emit(self, main: Program, kernels: Sequence[Program], target: Target, emission: Emission = PLAIN) -> image.Code:
        """See ``Backend``."""
        return image.emit(main, kernels, target, emission)

    def listing(self, program: Program, target: Target, stage: Stage) -> str:
        """LLVM IR, or assembly."""
        if stage is Stage.ASM:
            return image.assembly(program, target)
        return image.listing(program, target)


CPU = CpuBackend()
