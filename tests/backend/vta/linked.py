"""Programs with addresses, and the memory that they start with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from tilewright.backend.vta.config import VTA, Config, Module
from tilewright.backend.vta.convolution import Convolution, Tiling, convolution_program, tilings
from tilewright.backend.vta.dataflow import Channel, pops, pushes
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.footprints import Footprint
from tilewright.backend.vta.functional import Core
from tilewright.backend.vta.instructions import Instruction, Tokens
from tilewright.backend.vta.program import Program
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice

MEMORY = 1 << 18


@dataclass(frozen=True)
class Linked:
    """Instructions with addresses; device memory before them, and after them."""

    config: Config
    instructions: tuple[Instruction, ...]
    before: bytes
    after: bytes

    def core(self) -> Core:
        memory = DeviceMemory(len(self.before), self.config.alignment)
        memory.data[:] = np.frombuffer(self.before, np.uint8)
        return Core(self.config, memory)

    def footprints(self) -> list[Footprint]:
        core = self.core()
        return [core.execute(instruction) for instruction in self.instructions]


class _Observed(SimulatedDevice):
    """Keeps the device memory that a run starts with."""

    before: bytes = b""

    def start(self, address: int, count: int) -> None:
        self.before = self.core.memory.data.tobytes()
        super().start(address, count)


def random_arrays(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    generator, config = np.random.default_rng(seed), program.config
    found: dict[str, np.ndarray] = {}
    for operand in program.inputs:
        bits = config.element_bits(operand.pad)
        values = generator.integers(-(1 << (bits - 1)), 1 << (bits - 1), operand.array_shape(config))
        found[operand.name] = values.astype(config.dtype(operand.pad))
    return found


def linked(program: Program, seed: int = 0) -> Linked:
    device = _Observed(program.config, MEMORY)
    run = Runtime(device).run(program, random_arrays(program, seed))
    return Linked(program.config, run.instructions, device.before, device.core.memory.data.tobytes())


def random_convolution(random: Random, config: Config = VTA) -> tuple[Convolution, Tiling]:
    """A small one of several stages and tiles, mostly with two virtual threads."""
    while True:
        kernel = random.choice((1, 2, 3))
        convolution = Convolution(
            random.randint(3, 8),
            random.randint(3, 8),
            random.randint(1, 4),
            random.randint(1, 3),
            kernel,
            random.choice((1, 1, 2)),
            random.randint(0, kernel - 1),
        )
        found = list(tilings(convolution, config, random.choice((1, 2, 2))))
        tiling = random.choice(found)
        program = convolution_program(convolution, tiling, config)
        if 15 < len(program.steps) < 90:
            return convolution, tiling


def flags(instructions: Sequence[Instruction]) -> list[tuple[int, str]]:
    """All tokens that are passed: the instruction, and the name of its flag."""
    return [
        (number, name)
        for number, instruction in enumerate(instructions)
        for name in Tokens.__slots__
        if getattr(instruction.tokens, name)
    ]


def without(instructions: Sequence[Instruction], gone: Iterable[tuple[int, str]]) -> tuple[Instruction, ...]:
    """Without some flags."""
    changed = list(instructions)
    for number, name in gone:
        changed[number] = replace(changed[number], tokens=replace(changed[number].tokens, **{name: False}))
    return tuple(changed)


def run_in_random_order(program: Linked, instructions: Sequence[Instruction], random: Random) -> bytes | None:
    """Device memory after the modules ran whole instructions in a random order that tokens allow; None: a deadlock."""
    core = program.core()
    queues = {module: [i for i in instructions if i.module is module] for module in Module}
    tokens: dict[Channel, int] = {}
    eager = random.choice([None, *Module])
    while any(queues.values()):
        ready = [m for m in Module if queues[m] and all(tokens.get(c, 0) for c in pops(queues[m][0]))]
        if not ready:
            return None
        instruction = queues[eager if eager in ready else random.choice(ready)].pop(0)
        for channel in pops(instruction):
            tokens[channel] -= 1
        core.execute(instruction)
        for channel in pushes(instruction):
            tokens[channel] = tokens.get(channel, 0) + 1
    return core.memory.data.tobytes()
