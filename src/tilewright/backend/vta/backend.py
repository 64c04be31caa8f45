"""The accelerator as a back end: ``te.build`` with it makes a kernel that runs on the simulators.

f = te.build(s, backend=Accelerator(VTA))
"""

from collections.abc import Mapping

from tilewright.backend.hosted import HostedBackend, Kernel
from tilewright.backend.vta.assembly import listing
from tilewright.backend.vta.compiler import translated
from tilewright.backend.vta.config import VTA, Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.memories import memories
from tilewright.backend.vta.program import Program as Translated
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.arrays import Array
from tilewright.loops.ir import LoopKind
from tilewright.loops.memory import GLOBAL, Memory
from tilewright.loops.program import Program
from tilewright.target.target import Target


class Accelerator(HostedBackend):
    """Compiles scheduled loop programs to instructions, and runs them on a device of its own, which checks tokens.

    The target is that of the host; what code is made for is ``config``. ``timing``: of the cycle simulator.
    """

    name = "vta"
    loop_kinds = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VIRTUAL_THREAD})

    def __init__(self, config: Config = VTA, timing: Timing | None = None) -> None:
        self.config = config
        self.timing = timing or Timing()
        self.runtime = Runtime(SimulatedDevice(config, timing=self.timing))
        self.report: Report | None = None
        """Of the last run."""
        self._last: tuple[Program, Translated] | None = None
        on_chip = memories(config)
        known = (GLOBAL, on_chip.inp, on_chip.wgt, on_chip.acc)
        self.memories: Mapping[str, Memory] = {memory.name: memory for memory in known}

    def write(self, program: Program, target: Target) -> str:
        """The instructions as text, as they run the first time. Raises ``Unsupported``, with the block."""
        return listing(self.runtime.linked(self.translated(program)))

    def translated(self, program: Program) -> Translated:
        """The program of the accelerator. The last one is kept: code and kernel are made of the same."""
        if self._last is None or self._last[0] is not program:
            self._last = program, translated(program, self.config)
        return self._last[1]

    def load(self, program: Program, text: str) -> Kernel:
        """Runs the program on the device."""
        made = self.translated(program)

        def run(arrays: Mapping[str, Array], extents: Mapping[str, int]) -> None:
            done = self.runtime.run(made, {operand.name: arrays[operand.name] for operand in made.inputs})
            self.report = done.report
            for name, array in done.results.items():
                arrays[name][...] = array

        return run
