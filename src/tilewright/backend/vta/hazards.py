"""Checks the tokens of a program: deadlocks, tokens left over, and accesses of memory that no token orders.

    findings = check(instructions, footprints)      footprints: of each instruction, from the functional simulator

An instruction happens before another one if it is earlier in the same queue, or if a token leads from it to the other,
or over several such steps. Two accesses of a tile by different modules, one of them a write, must be ordered like this,
and as in the program. So must accesses of device memory by STORE and LOAD, and all stores before FINISH. Lengths of
queues order nothing: a program without findings is right for every length with which it does not deadlock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.assembly import text_of
from tilewright.backend.vta.config import Config, Module, Scratchpad
from tilewright.backend.vta.dataflow import Channel, Limits, Timeline, pops, pushes, run_modules
from tilewright.backend.vta.footprints import Footprint, Indices
from tilewright.backend.vta.instructions import Finish, Instruction
from tilewright.base.errors import BadProgram

_NEVER = -1
LIMITS = Limits()
"""Lengths of queues with which deadlocks are looked for."""


class Fault(Enum):
    """Kinds of findings."""

    DEADLOCK = "deadlock"
    LEFT_TOKENS = "token left over"
    READ_AFTER_WRITE = "read after write"
    WRITE_AFTER_READ = "write after read"
    WRITE_AFTER_WRITE = "write after write"
    UNFINISHED = "unfinished"
    """The program does not end with FINISH, or FINISH may come before a store has ended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, with the two instructions (by number) that it is about; one may be missing."""

    fault: Fault
    first: int | None
    second: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.fault.value}: {self.text}"


@dataclass(frozen=True, slots=True)
class Clock:
    """How many instructions of each module have happened before the end of an instruction, itself included."""

    load: int = 0
    compute: int = 0
    store: int = 0

    def of(self, module: Module) -> int:
        """The number for a module."""
        match module:
            case Module.LOAD:
                return self.load
            case Module.COMPUTE:
                return self.compute
            case Module.STORE:
                return self.store

    def joined(self, other: "Clock") -> "Clock":
        """What has happened before both."""
        return Clock(max(self.load, other.load), max(self.compute, other.compute), max(self.store, other.store))

    def next_of(self, module: Module) -> "Clock":
        """After one more instruction of a module."""
        added = [int(module is other) for other in Module]
        return Clock(self.load + added[0], self.compute + added[1], self.store + added[2])


def require_safe(instructions: Sequence[Instruction], footprints: Sequence[Footprint], config: Config) -> None:
    """Raises ``BadProgram`` with all findings, if there are any."""
    if found := check(instructions, footprints, config):
        raise BadProgram("the tokens of the program are wrong:\n" + "\n".join(map(str, found)))


def check(
    instructions: Sequence[Instruction], footprints: Sequence[Footprint], config: Config, limits: Limits = LIMITS
) -> tuple[Finding, ...]:
    """All findings; of hazards, the first one for each pair of instructions and memory."""
    timeline = run_modules(instructions, _at_once, limits)
    if timeline.blocked:
        return tuple(_deadlock(instructions, timeline))
    clocks = clocks_of(instructions, timeline.order)
    return (
        *_left_tokens(instructions, timeline),
        *_hazards(instructions, footprints, clocks, config),
        *_device_hazards(instructions, footprints, clocks),
        *_unfinished(instructions, clocks),
    )


def _at_once(_: Instruction, begin: int) -> int:
    return begin


def clocks_of(instructions: Sequence[Instruction], order: Sequence[int]) -> tuple[Clock, ...]:
    """The clock of each instruction; ``order`` has all of them, each after those that it waits for."""
    clocks = [Clock()] * len(instructions)
    last = dict.fromkeys(Module, Clock())
    given: dict[Channel, list[Clock]] = {}
    taken: dict[Channel, int] = {}
    for number in order:
        instruction = instructions[number]
        clock = last[instruction.module]
        for channel in pops(instruction):
            position = taken.get(channel, 0)
            clock = clock.joined(given[channel][position])
            taken[channel] = position + 1
        clocks[number] = last[instruction.module] = clock.next_of(instruction.module)
        for channel in pushes(instruction):
            given.setdefault(channel, []).append(clocks[number])
    return tuple(clocks)


def _deadlock(instructions: Sequence[Instruction], timeline: Timeline) -> Iterator[Finding]:
    waiting = {instructions[blocked.number].module: blocked.number for blocked in reversed(timeline.blocked)}
    for blocked in timeline.blocked:
        if blocked.channel is None:
            continue
        giver, taker = blocked.channel
        other = taker if blocked.is_full else giver
        verb = f"to push to {taker.value}" if blocked.is_full else f"for a token of {giver.value}"
        second = waiting.get(other)
        told = f"which waits at {_named(instructions, second)}" if second is not None else "which has ended"
        yield Finding(
            Fault.DEADLOCK, blocked.number, second, f"{_named(instructions, blocked.number)} waits {verb}, {told}"
        )


def _left_tokens(instructions: Sequence[Instruction], timeline: Timeline) -> Iterator[Finding]:
    for channel, number in timeline.left_tokens:
        last = max(i for i, instruction in enumerate(instructions) if channel in pushes(instruction))
        taker = next((i for i in reversed(range(len(instructions))) if instructions[i].module is channel[1]), None)
        yield Finding(
            Fault.LEFT_TOKENS,
            last,
            taker,
            f"{channel[1].value} never takes {number} of the tokens of {channel[0].value}; the last one is of "
            f"{_named(instructions, last)}",
        )


@dataclass(slots=True)
class _Last:
    """For each tile of a memory, the last write and read of each module: positions in its queue, instructions."""

    depth: int
    writes: dict[Module, NDArray[np.int64]] = field(init=False)
    reads: dict[Module, NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        self.writes = {module: np.full(self.depth, _NEVER, np.int64) for module in Module}
        self.reads = {module: np.full(self.depth, _NEVER, np.int64) for module in Module}


def _hazards(
    instructions: Sequence[Instruction], footprints: Sequence[Footprint], clocks: Sequence[Clock], config: Config
) -> Iterator[Finding]:
    last = {pad.storage: _Last(config.depth(pad)) for pad in Scratchpad}
    queues: dict[Module, list[int]] = {module: [] for module in Module}
    told: set[tuple[int, int, Scratchpad]] = set()
    for number, (instruction, footprint) in enumerate(zip(instructions, footprints, strict=True)):
        module, clock = instruction.module, clocks[number]
        for fault, pad, tiles, table in _conflicts(footprint, last):
            for other in Module:
                if other is module:
                    continue
                late = _first_late(table[other], tiles, clock.of(other))
                if late is not None:
                    first = queues[other][int(table[other][late])]
                    if (first, number, pad) not in told:
                        told.add((first, number, pad))
                        yield _hazard(fault, instructions, first, number, f"{pad.name.lower()}[{late}]")
        position = len(queues[module])
        queues[module].append(number)
        for region in footprint.reads:
            last[region.pad].reads[module][region.tiles] = position
        for region in footprint.writes:
            last[region.pad].writes[module][region.tiles] = position


def _conflicts(
    footprint: Footprint, last: dict[Scratchpad, _Last]
) -> Iterator[tuple[Fault, Scratchpad, Indices, dict[Module, NDArray[np.int64]]]]:
    for region in footprint.reads:
        yield Fault.READ_AFTER_WRITE, region.pad, region.tiles, last[region.pad].writes
    for region in footprint.writes:
        yield Fault.WRITE_AFTER_READ, region.pad, region.tiles, last[region.pad].reads
        yield Fault.WRITE_AFTER_WRITE, region.pad, region.tiles, last[region.pad].writes


def _first_late(positions: NDArray[np.int64], tiles: Indices, happened: int) -> int | None:
    """The first tile whose last access is not among the first ``happened`` ones of its module."""
    late = np.flatnonzero(positions[tiles] >= happened)
    return int(tiles[late[0]]) if len(late) else None


def _device_hazards(
    instructions: Sequence[Instruction], footprints: Sequence[Footprint], clocks: Sequence[Clock]
) -> Iterator[Finding]:
    """Stores beside loads of other modules, in device memory."""
    loads: dict[Module, list[int]] = {Module.LOAD: [], Module.COMPUTE: []}
    stores: list[int] = []
    positions = _positions(instructions)
    for number, footprint in enumerate(footprints):
        clock = clocks[number]
        if footprint.fetched.bytes:
            for store in _unordered(stores, Module.STORE, positions, clock):
                if footprints[store].stored.overlap(footprint.fetched):
                    yield _hazard(Fault.READ_AFTER_WRITE, instructions, store, number, "device memory")
            loads[instructions[number].module].append(number)
        if footprint.stored.bytes:
            for module, earlier in loads.items():
                for load in _unordered(earlier, module, positions, clock):
                    if footprints[load].fetched.overlap(footprint.stored):
                        yield _hazard(Fault.WRITE_AFTER_READ, instructions, load, number, "device memory")
            stores.append(number)


def _positions(instructions: Sequence[Instruction]) -> tuple[int, ...]:
    """The position of each instruction in its queue."""
    seen = dict.fromkeys(Module, 0)
    found: list[int] = []
    for instruction in instructions:
        found.append(seen[instruction.module])
        seen[instruction.module] += 1
    return tuple(found)


def _unordered(numbers: Sequence[int], module: Module, positions: Sequence[int], clock: Clock) -> Iterator[int]:
    """Those instructions of a module that need not have ended."""
    for number in reversed(numbers):
        if positions[number] < clock.of(module):
            return
        yield number


def _unfinished(instructions: Sequence[Instruction], clocks: Sequence[Clock]) -> Iterator[Finding]:
    if not instructions or not isinstance(instructions[-1], Finish):
        yield Finding(Fault.UNFINISHED, None, None, "the last instruction is not FINISH")
        return
    end = len(instructions) - 1
    early = next(i for i, instruction in enumerate(instructions) if isinstance(instruction, Finish))
    if early < end:
        yield Finding(Fault.UNFINISHED, early, end, f"{_named(instructions, early)} is not the last instruction")
    stores = [number for number, instruction in enumerate(instructions) if instruction.module is Module.STORE]
    if len(stores) > clocks[end].store:
        text = f"{_named(instructions, end)} does not wait for {_named(instructions, stores[-1])}"
        yield Finding(Fault.UNFINISHED, stores[-1], end, text)


def _hazard(fault: Fault, instructions: Sequence[Instruction], first: int, second: int, place: str) -> Finding:
    later, earlier = _named(instructions, second), _named(instructions, first)
    return Finding(fault, first, second, f"{later} may access {place} before {earlier} has; no token orders them")


def _named(instructions: Sequence[Instruction], number: int) -> str:
    return f"{number} ({text_of(instructions[number])})"
