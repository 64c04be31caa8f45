"""Where the cycles are that the matrix unit does not multiply in: `python -m benchmarks.vta --left`.

Compute runs an instruction at a time. Its work is there in every schedule: products, resets, operations of ALU.
What is left of all cycles is told by cause: the cycles that each instruction takes beside its micro-ops, LOADs of
micro-ops, waiting for instructions at the start, for operands before products, for the last store.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from statistics import median

from tilewright.backend.vta.config import Config, Module
from tilewright.backend.vta.convolution import Convolution, chosen_tiling, convolution_program
from tilewright.backend.vta.cycles import Cycles, Timing, simulate
from tilewright.backend.vta.instructions import Alu, Finish, Gemm, Instruction
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice


class Cause(Enum):
    """What compute does, or waits for; a column of the table."""

    PRODUCTS = "products"
    RESETS = "resets"
    ALU = "ALU"
    INSTRUCTIONS = "instructions"
    MICRO_OPS = "micro-ops"
    START = "start"
    OPERANDS = "operands"
    LAST_STORE = "last store"


WORK = (Cause.PRODUCTS, Cause.RESETS, Cause.ALU)


def causes(instructions: Sequence[Instruction], cycles: Cycles, timing: Timing) -> Counter[Cause]:
    """All cycles of a program, by what compute does in them."""
    found = Counter[Cause]()
    free = 0
    for instruction, begin, end in zip(instructions, cycles.timeline.begins, cycles.timeline.ends, strict=True):
        if instruction.module is not Module.COMPUTE:
            continue
        waits = Cause.LAST_STORE if isinstance(instruction, Finish) else Cause.OPERANDS if free else Cause.START
        found[waits] += begin - free
        work = _work(instruction, timing)
        found.update(dict(work))
        rest = Cause.INSTRUCTIONS if work or isinstance(instruction, Finish) else Cause.MICRO_OPS
        found[rest] += end - begin - sum(count for _, count in work)
        free = end
    return found


def _work(instruction: Instruction, timing: Timing) -> list[tuple[Cause, int]]:
    match instruction:
        case Gemm():
            cause = Cause.RESETS if instruction.reset else Cause.PRODUCTS
            return [(cause, instruction.executions * timing.gemm_interval)]
        case Alu():
            interval = timing.alu_interval if instruction.use_immediate else timing.alu_pair_interval
            return [(Cause.ALU, instruction.executions * interval)]
        case _:
            return []


def table(layers: Iterable[tuple[str, Convolution]], config: Config, timing: Timing) -> Iterator[str]:
    """The lines that are printed: cycles, share of products, the most that work allows, and the rest by cause."""
    left = [cause for cause in Cause if cause not in WORK]
    yield f"{'':<5}{'cycles':>10}{'share':>9}{'limit':>9}{'left':>8}" + "".join(f"{one.value:>14}" for one in left)
    shares: list[float] = []
    limits: list[float] = []
    for name, layer in layers:
        program = convolution_program(layer, chosen_tiling(layer, config, timing), config)
        instructions = Runtime(SimulatedDevice(config)).linked(program)
        cycles = simulate(instructions, config, timing)
        found = causes(instructions, cycles, timing)
        work = sum(found[cause] for cause in WORK)
        shares.append(found[Cause.PRODUCTS] / cycles.total)
        limits.append(found[Cause.PRODUCTS] / work)
        rest = "".join(f"{found[cause]:>14}" for cause in left)
        yield f"{name:<5}{cycles.total:>10}{shares[-1]:>9.2%}{limits[-1]:>9.2%}{cycles.total - work:>8}{rest}"
    yield f"{'median':<15}{median(shares):>9.2%}{median(limits):>9.2%}"
