"""The run-time compiler: gives a program's operands addresses and its micro-ops places, and has a device run it.

    runtime = Runtime(SimulatedDevice(VTA))
    results, report = runtime.run(program, {"A": a, "B": b})

Micro-ops stay in device memory, and in the micro-op memory as long as others need no room: a second run of a program
loads none. Where a kernel's are loaded, so are those of the next kernels: a LOAD waits for device memory once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from tilewright.backend.vta.config import Scratchpad
from tilewright.backend.vta.driver import Driver, Report
from tilewright.backend.vta.instructions import Instruction, Load, Store, Uop, encode_program, encode_uops
from tilewright.backend.vta.micro_op_cache import MicroOpCache, without_parts
from tilewright.backend.vta.program import Call, Operand, Pass, Program, Step, Transfer
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadProgram


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run by name, and what the device reports."""

    results: Mapping[str, Array]
    report: Report
    instructions: tuple[Instruction, ...]
    """What ran, with addresses."""


MOST_STORED = 4
"""How many times the micro-op memory is kept in device memory between runs: what loads it differs where it is full."""
_PART_AT_ONCE = 4
"""Micro-ops of this part of their memory are loaded together at most. In a cycle passes one, but a LOAD waits for some
tens, and for a transfer of another module."""


@dataclass(slots=True)
class Runtime:
    """Runs programs on a device that nobody else uses."""

    driver: Driver
    _cache: MicroOpCache = field(init=False)
    _stored: dict[tuple[Uop, ...], int] = field(default_factory=dict[tuple[Uop, ...], int])
    """Where each sequence of micro-ops is in device memory."""

    def __post_init__(self) -> None:
        self._cache = MicroOpCache(self.driver.config.depth(Scratchpad.UOP))

    def run(self, program: Program, arrays: Mapping[str, Array]) -> Run:
        """Copy operands in, run, copy results out. Results that are given are copied in, too, else they start as 0.

        Raises ``BadFeed`` for missing, unknown or unfit arrays, ``BadProgram`` for a program of another configuration,
        and whatever the device raises.
        """
        if sum(map(len, self._stored)) > MOST_STORED * self._cache.depth:
            self._forget()
        if program.config != self.driver.config:
            raise BadProgram(
                f"the program is for {program.config.name}, and the device is {self.driver.config.name}; record it for "
                "the device's configuration"
            )
        known = [operand.name for operand in program.operands]
        if unknown := sorted(arrays.keys() - set(known)):
            raise BadFeed(f"{unknown[0]} is no operand; the program has {', '.join(known)}")
        required = set(program.inputs) - set(program.results)
        contents = {
            operand: self._contents(operand, program, arrays, operand in required) for operand in program.operands
        }
        addresses: dict[str, int] = {}
        try:
            for operand, content in contents.items():
                addresses[operand.name] = self.driver.allocate(len(content))
                self.driver.write(addresses[operand.name], content)
            instructions = tuple(self._linked(program, addresses))
            report = self._executed(instructions)
            return Run({item.name: self._result(item, addresses) for item in program.results}, report, instructions)
        except BaseException:
            self._cache.clear()  # what the micro-op memory has is not known
            raise
        finally:
            for address in addresses.values():
                self.driver.free(address)

    def linked(self, program: Program) -> tuple[Instruction, ...]:
        """The instructions that ``run`` would run first, with addresses; nothing is run."""
        addresses = {item.name: self.driver.allocate(item.bytes(program.config)) for item in program.operands}
        self._cache.clear()
        try:
            return tuple(self._linked(program, addresses))
        finally:
            self._cache.clear()
            for address in addresses.values():
                self.driver.free(address)

    @staticmethod
    def _contents(operand: Operand, program: Program, arrays: Mapping[str, Array], is_required: bool) -> bytes:
        config = program.config
        dtype, shape = config.dtype(operand.pad), operand.array_shape(config)
        if operand.name not in arrays:
            if is_required:
                raise BadFeed(f"{operand.name} is missing; give an array of {shape}, {dtype}")
            return bytes(operand.bytes(config))
        array = arrays[operand.name]
        if array.shape != shape or array.dtype != dtype:
            raise BadFeed(f"{operand.name} is {array.shape}, {array.dtype}; give an array of {shape}, {dtype}")
        return array.tobytes()

    def _linked(self, program: Program, addresses: Mapping[str, int]) -> Iterator[Instruction]:
        for at, step in enumerate(program.steps):
            match step:
                case Transfer():
                    yield self._addressed(step.instruction, addresses[step.operand.name])
                case Pass():
                    yield step.instruction
                case Call():
                    yield from self._called(step, program.steps, at)

    def _addressed(self, instruction: Load | Store, address: int) -> Load | Store:
        tile = self.driver.config.tile_bytes(instruction.memory)
        return replace(instruction, dram=instruction.dram + address // tile)

    def _called(self, call: Call, steps: Sequence[Step], at: int) -> Iterator[Instruction]:
        """The kernel, after its micro-ops if they are not on the chip. Their LOAD needs no tokens: compute runs it."""
        uops = call.kernel.uops
        begin = self._cache.place(uops)
        if begin is None:
            batch = without_parts(self._batch(uops, steps, at))
            first, together = self._cache.add(batch), tuple(chain.from_iterable(batch))
            if together:
                load = Load(memory=Scratchpad.UOP, sram=first, columns=len(together))
                yield self._addressed(load, self._address_of(together))
            begin = self._cache.place(uops)
            assert begin is not None, "it was just added"
        yield call.kernel.instruction(begin, call.tokens)

    def _batch(self, uops: tuple[Uop, ...], steps: Sequence[Step], at: int) -> list[tuple[Uop, ...]]:
        """What is loaded with the micro-ops of a kernel: those that are needed next, and are not on the chip."""
        batch, count, seen = [uops], len(uops), {id(uops)}
        for step in islice(steps, at + 1, None):
            own = step.kernel.uops if isinstance(step, Call) else uops
            if id(own) in seen:
                continue
            seen.add(id(own))
            if own in batch or self._cache.place(own) is not None:
                continue
            if (count := count + len(own)) > self._cache.depth // _PART_AT_ONCE:
                break
            batch.append(own)
        return batch

    def _address_of(self, uops: tuple[Uop, ...]) -> int:
        if uops not in self._stored:
            data = encode_uops(uops, self.driver.config)
            address = self.driver.allocate(len(data))
            self.driver.write(address, data)
            self._stored[uops] = address
        return self._stored[uops]

    def _executed(self, instructions: tuple[Instruction, ...]) -> Report:
        data = encode_program(instructions, self.driver.config)
        address = self.driver.allocate(len(data))
        try:
            self.driver.write(address, data)
            self.driver.start(address, len(instructions))
            return self.driver.wait()
        finally:
            self.driver.free(address)

    def _result(self, operand: Operand, addresses: Mapping[str, int]) -> Array:
        config = self.driver.config
        data = self.driver.read(addresses[operand.name], operand.bytes(config))
        return np.frombuffer(data, config.dtype(operand.pad)).reshape(operand.array_shape(config))

    def close(self) -> None:
        """Give the micro-ops' device memory back."""
        self._forget()
        self._cache.clear()

    def _forget(self) -> None:
        """Free the micro-ops in device memory; those on the chip stay there."""
        for address in self._stored.values():
            self.driver.free(address)
        self._stored.clear()
