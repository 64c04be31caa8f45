"""``te.accelerate``: a schedule as a program of the accelerator, run and timed by its simulators.

f = te.accelerate(s, VTA)
f(data, filters), f.check(), f.program, f.cycles, f.counters, f.listing, f.chart
"""

from functools import cached_property

from tilewright.backend.vta.assembly import listing
from tilewright.backend.vta.backend import Accelerator
from tilewright.backend.vta.config import VTA, Config
from tilewright.backend.vta.cycles import Cycles, Timing, chart, simulate
from tilewright.backend.vta.functional import Counters, count
from tilewright.backend.vta.instructions import Instruction
from tilewright.backend.vta.program import Program
from tilewright.backend.vta.schedules import chosen, has_template, schedule_tiles
from tilewright.base.arguments import checked
from tilewright.base.errors import BadInput
from tilewright.loops.program import Program as LoopProgram
from tilewright.schedule.schedule import Schedule
from tilewright.sketch.accelerator import best_schedule
from tilewright.target.target import Target
from tilewright.te.kernel import Kernel, build
from tilewright.te.stage import TeSchedule, create_schedule
from tilewright.tensor.ir import Tensor


class Accelerated(Kernel):
    """A program of the accelerator; called, it runs on the functional simulator, which checks tokens."""

    @property
    def accelerator(self) -> Accelerator:
        """The back end, with its device."""
        assert isinstance(self.origin.backend, Accelerator)
        return self.origin.backend

    @cached_property
    def program(self) -> Program:
        """Transfers, micro-op kernels and tokens."""
        return self.accelerator.translated(self.origin.program)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """What runs the first time: later, micro-ops are on the chip."""
        return self.accelerator.runtime.linked(self.program)

    @cached_property
    def cycles(self) -> Cycles:
        """The cycle simulator's times of the first run."""
        return simulate(self.instructions, self.accelerator.config, self.accelerator.timing)

    @property
    def counters(self) -> Counters:
        """What the first run moves and computes."""
        return count(self.instructions, self.accelerator.config)

    @property
    def listing(self) -> str:
        """The instructions as text."""
        return listing(self.instructions)

    @property
    def chart(self) -> str:
        """The modules over time."""
        return chart(self.cycles, self.instructions)


@checked(BadInput)
def accelerate(
    schedule: Tensor | TeSchedule | Schedule | LoopProgram, config: Config = VTA, timing: Timing | None = None
) -> Accelerated:
    """``schedule`` as a program of the accelerator ``config``, timed by ``timing``; of a tensor, the analytic choice:
    of the template's schedules, or of sketches if there is more than one reduction.

    Buffers on the chip are in ``vta.memories(config)``, and products are ``vta.gemm(config)``; ``vta.schedule_tiles``
    makes such schedules. Raises ``UnsupportedKernel``, with the block and the reason, for what the accelerator can't
    do; ``BadProgram`` for what does not fit its memories.
    """
    if isinstance(schedule, Tensor):
        schedule = _chosen(create_schedule(schedule), config, timing or Timing())
    built = build(schedule, backend=Accelerator(config, timing))
    return Accelerated(built.executable, built.origin)


def _chosen(made: TeSchedule, config: Config, timing: Timing) -> TeSchedule:
    if not has_template(made.program):
        return made.scheduled(best_schedule(made.program, config, timing, Target.host()))
    schedule_tiles(made.schedule, chosen(made.program, config, timing), config)
    return made
