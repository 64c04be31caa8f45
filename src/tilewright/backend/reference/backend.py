"""The reference back end for whole models: each kernel runs as by ``run_reference``, and its findings are raised."""

from collections.abc import Mapping

from tilewright.backend.hosted import HostedBackend, Kernel
from tilewright.backend.reference.machine import run_reference
from tilewright.base.arrays import Array
from tilewright.loops.ir import LoopKind
from tilewright.loops.memory import MEMORIES
from tilewright.loops.program import Program
from tilewright.target.target import Target


class ReferenceBackend(HostedBackend):
    """Its code is the loop program itself."""

    name = "reference"
    memories = MEMORIES
    loop_kinds = frozenset(LoopKind)
    checks_accesses = True

    def write(self, program: Program, target: Target) -> str:
        """The program as text."""
        return str(program)

    def load(self, program: Program, text: str) -> Kernel:
        """Runs ``program``; raises ``BadProgram`` for races, invalid accesses and exceeded memories."""

        def run(arrays: Mapping[str, Array], extents: Mapping[str, int]) -> None:
            given = {buffer.name: arrays[buffer.name] for buffer in program.inputs}
            outputs, report = run_reference(program, given, extents)
            report.check()
            for name, array in outputs.items():
                arrays[name][...] = array

        return run


REFERENCE = ReferenceBackend()
