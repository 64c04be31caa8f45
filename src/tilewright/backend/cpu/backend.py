"""The back end of CPUs: one native main, kernels as modules of their own, parallel regions on the worker pool."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.backend.api import PLAIN, Emission
from tilewright.backend.cpu import image
from tilewright.base.settings import Stage
from tilewright.loops.program import Program
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Object code through LLVM for the processors of ``target``; what it makes can be saved."""

    name: str = "cpu"

    def emit(self, main: Program, kernels: Sequence[Program], target: Target, emission: Emission = PLAIN) -> image.Code:
        """See ``Backend``."""
        return image.emit(main, kernels, target, emission)

    def listing(self, program: Program, target: Target, stage: Stage) -> str:
        """LLVM IR, or assembly."""
        return image.assembly(program, target) if stage is Stage.ASM else image.kernel_text(program).text


CPU = CpuBackend()
