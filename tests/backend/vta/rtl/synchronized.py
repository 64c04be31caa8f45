"""Tokens for random programs: as few as make them safe, and some more, so that modules run beside each other."""

from collections.abc import Sequence
from random import Random

from tests.backend.vta.random_programs import random_memory, random_program
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.footprints import Footprint
from tilewright.backend.vta.functional import Core
from tilewright.backend.vta.hazards import Fault, check
from tilewright.backend.vta.instructions import (
    Alu,
    AluOperation,
    Finish,
    Instruction,
    Load,
    Store,
    Tokens,
    Uop,
    encode_uops,
)

CODE = 1 << 13
"""Where programs start, after the memory of random programs; before them, from ``RESULTS`` on, all accumulators."""
SIZE = 1 << 16
RESULTS = 1 << 15


def barrier() -> list[Instruction]:
    """Whatever comes after it waits for all that came before."""
    nothing = {"rows": 0, "columns": 0}
    return [
        Load(memory=Scratchpad.INP, tokens=Tokens(push_next=True), **nothing),
        Store(tokens=Tokens(push_previous=True), **nothing),
        Load(memory=Scratchpad.UOP, tokens=Tokens(True, True, True, True), **nothing),
        Load(memory=Scratchpad.INP, tokens=Tokens(pop_next=True), **nothing),
        Store(tokens=Tokens(pop_previous=True), **nothing),
    ]


def synchronized(program: Sequence[Instruction], core: Core, random: Random) -> tuple[Instruction, ...]:
    """With barriers where the checker finds hazards without them, and FINISH; runs on ``core`` meanwhile."""
    done: list[Instruction] = []
    footprints: list[Footprint] = []

    def append(items: Sequence[Instruction]) -> None:
        done.extend(items)
        footprints.extend(core.execute(item) for item in items)

    for instruction in program:
        footprint = core.execute(instruction)
        found = check([*done, instruction], [*footprints, footprint], core.config)
        if random.random() < 0.1 or any(item.fault is not Fault.UNFINISHED for item in found):
            append(barrier())
        done.append(instruction)
        footprints.append(footprint)
    append([Store(rows=0, columns=0, tokens=Tokens(push_previous=True)), Finish(tokens=Tokens(pop_next=True))])
    assert not check(done, footprints, core.config)
    return tuple(done)


def dump(config: Config, zero: int) -> list[Instruction]:
    """Stores of all bits of all accumulators; ``zero``: the address of a micro-op of zeros."""
    depth, size = config.depth(Scratchpad.ACC), config.tile_bytes(Scratchpad.OUT)
    shift = Alu(operation=AluOperation.SHR, use_immediate=True, immediate=config.out_bits, outer=depth, dst_outer=1)
    steps: list[Instruction] = [Load(memory=Scratchpad.UOP, dram=zero // config.tile_bytes(Scratchpad.UOP))]
    for part in range(config.acc_bits // config.out_bits):
        steps += [Store(columns=depth, dram=RESULTS // size + part * depth), shift]
    return steps


def new_core(config: Config) -> Core:
    return Core(config, DeviceMemory(SIZE, config.alignment))


def random_case(random: Random, core: Core) -> tuple[bytes, bytes, tuple[Instruction, ...]]:
    """Memory before and after a random program on ``core``, and the program."""
    config, memory = core.config, core.memory
    data, uops = random_memory(random, config)
    memory.data[:] = 0
    memory.data[: len(data)] = data
    memory.write(SIZE - 64, encode_uops((Uop(),), config))
    before = memory.data.tobytes()
    program = synchronized([*random_program(random, config, uops), *dump(config, SIZE - 64)], core, random)
    return before, memory.data.tobytes(), program
