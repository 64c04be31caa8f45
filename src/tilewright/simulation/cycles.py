"""Simulated cycles of a compiled program on a core: blocks that ran, times what each costs, and what caches lacked.

    cycles = sum over blocks of times * cycles(block) + mispredicted ends of loops + misses

``docs/simulation.md`` says what is modelled and what is not.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tilewright.backend.shipping.interface import Interface, Tensor
from tilewright.backend.shipping.run_text import CONSTANTS
from tilewright.backend.shipping.ship import freestanding
from tilewright.base.arrays import Array
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.linker import Plan, link, plan
from tilewright.runtime.memory import PAGE, Pages, round_up
from tilewright.runtime.objectfile import Segment
from tilewright.simulation.cores import core_of
from tilewright.simulation.decoding import Instruction, Kind, decoded
from tilewright.simulation.emulator import EXECUTE, READ, WRITE, Emulator, Stopped
from tilewright.simulation.pipeline import loop_cycles, straight_cycles
from tilewright.simulation.watching import LINE, Block, Blocks, Caches, Misses
from tilewright.target.cores import Cache, Core
from tilewright.target.target import Target

_PREFIX = "simulated"
_IMAGE_AT = 1 << 22
_ARRAYS_AT = 1 << 33
HERTZ = 1e9
"""The clock of a simulated core, where cycles are told as times: a second is as many."""
COUNTED = 4_000_000
"""Instructions in which misses are counted."""
_REMEMBERED_ROUNDS = 16
"""Loops of fewer rounds end as branch predictors expect. Estimated: histories are some dozens of branches long."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Where cycles go: in blocks, ends of loops and misses."""

    blocks: float
    ends: float
    misses: float

    @property
    def cycles(self) -> float:
        """All of them."""
        return self.blocks + self.ends + self.misses


@dataclass(frozen=True, slots=True)
class Simulated:
    """``outputs`` in order; ``instructions`` that ran; ``near``, ``far``: misses of the first and second cache.

    ``calls``: the cycles of each call of a kernel, in order, without misses; those of one kernel share them equally.
    """

    outputs: tuple[Array, ...]
    cost: Cost
    instructions: int
    near: Misses
    far: Misses
    calls: tuple[float, ...]

    @property
    def facts(self) -> dict[str, float]:
        """What was counted, for records and reports."""
        counted = {"cycles": self.cost.cycles, "instructions": float(self.instructions)}
        return {**counted, "l1_misses": self.near.all, "l2_misses": self.far.all}


def simulate(parts: Artifact, inputs: Mapping[str, Array], seconds: float = 600.0) -> Simulated:
    """Run a compiled program for an AArch64 processor once, on one thread and with empty caches.

    Raises ``Unsupported`` if it can't be simulated, ``Stopped`` if the code does what it may not, or takes more than
    ``seconds``.
    """
    core, program = core_of(Target.parse(parts.build.target)), _Program.of(parts)
    with program.call(inputs) as call:
        blocks = Blocks(call.emulator, *program.code)
        outputs = call.results(seconds)
        instructions = blocks.instructions
        straight = _joined(tuple(blocks.found()), program.image.view())
    near, far = _missed(program, inputs, core, instructions, seconds)
    costs = [(block.body[0].address, *_cost(block, core)) for block in straight]
    inside, ends = (sum(cost[place] for cost in costs) for place in (1, 2))
    total = Cost(inside, ends, _waiting(core, near, far, program.bytes))
    calls = _by_call(parts.manifest.calls, program.functions(), costs)
    return Simulated(outputs, total, instructions, near, far, calls)


def _missed(
    program: "_Program", inputs: Mapping[str, Array], core: Core, instructions: int, seconds: float
) -> tuple[Misses, Misses]:
    """Misses of the two caches in a run of so many ``instructions``.

    They are counted in the first ones only, as that takes four times as long; the rest goes on as the second half of
    these, as kernels repeat what they do.
    """
    with program.call(inputs) as call:
        blocks = Blocks(call.emulator, *program.code)
        caches = Caches(call.emulator, core.l1, core.l2)
        if instructions <= COUNTED:
            call.results(seconds)
            return caches.found()
        begin, half = blocks.instructions, Misses(0, 0)
        first = (half, half)
        for part in (COUNTED // 2, COUNTED):
            blocks.stop_after(part)
            begin, first, last = blocks.instructions, caches.found(), call.go(seconds)
            assert last is None, "it is stopped before its end"
        passed = blocks.instructions
        now = caches.found()
    times = (instructions - passed) / (passed - begin)
    near, far = (later.and_more(later - before, times) for later, before in zip(now, first, strict=True))
    return near, far


@dataclass(frozen=True, slots=True)
class _Program:
    """A program, laid out at the addresses at which it is emulated."""

    interface: Interface
    layout: Plan
    image: Pages
    constants_at: int
    data: bytes

    @staticmethod
    def of(parts: Artifact) -> "_Program":
        """Raises ``Unsupported`` if it needs what an emulator has not."""
        interface, objects = freestanding(parts, _PREFIX)
        layout = plan(objects, objects[0].machine, {CONSTANTS: 0})
        constants_at = _IMAGE_AT + round_up(layout.size, PAGE)
        layout = replace(layout, imports={CONSTANTS: constants_at})
        image = Pages(layout.size)
        with image.view() as view:
            link(layout, view, _IMAGE_AT)
        return _Program(interface, layout, image, constants_at, interface.constant_data(parts))

    @property
    def code(self) -> tuple[int, int]:
        """The address of the code, and its bytes."""
        span = self.layout.parts[Segment.CODE]
        return _IMAGE_AT + span.start, span.size

    def functions(self) -> dict[str, tuple[int, int]]:
        """The names of functions: addresses of their code, from and to."""
        found: dict[str, tuple[int, int]] = {}
        for file, item in enumerate(self.layout.objects):
            for index, symbol in enumerate(item.symbols):
                if symbol.size and isinstance(symbol.place, int) and (file, symbol.place) in self.layout.sections:
                    at = self.layout.address((file, index), _IMAGE_AT)
                    found[symbol.name] = at, at + symbol.size
        return found

    @property
    def bytes(self) -> int:
        """Of all data that a call may touch."""
        interface = self.interface
        tensors = sum(tensor.bytes for tensor in (*interface.inputs, *interface.outputs))
        return tensors + interface.constant_bytes + interface.workspace_bytes

    @contextmanager
    def call(self, inputs: Mapping[str, Array]) -> Generator["_Call"]:
        """A context manager: a call, ready to go, on memory of its own."""
        with Emulator() as emulator:
            emulator.map(_IMAGE_AT, self.image, READ | WRITE | EXECUTE)
            memory = _Memory(emulator)
            if self.data:
                emulator.map(self.constants_at, _filled(self.data), READ)
            given = [memory.add(inputs[tensor.name].tobytes(), tensor.bytes) for tensor in self.interface.inputs]
            results = [memory.add(b"", tensor.bytes) for tensor in self.interface.outputs]
            tables = [memory.add(np.array(places, np.uint64).tobytes(), 8 * len(places)) for places in (given, results)]
            scratch = memory.add(b"", self.interface.scratch_bytes)
            start = self.layout.address(self.layout.definitions[f"{_PREFIX}_run"], _IMAGE_AT)
            emulator.begin(start, (*tables, scratch))
            yield _Call(emulator, memory, tuple(zip(self.interface.outputs, results, strict=True)))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a program. ``places``: of its outputs."""

    emulator: Emulator
    memory: "_Memory"
    places: tuple[tuple[Tensor, int], ...]

    def go(self, seconds: float) -> int | None:
        """See ``Emulator``. Raises ``Stopped``, also for an error that the code reports."""
        code = self.emulator.go(seconds)
        if code:
            raise Stopped(f"the code reports the error {code}")
        return code

    def results(self, seconds: float) -> tuple[Array, ...]:
        """The outputs, once it is done. Raises ``Stopped``."""
        done = self.go(seconds)
        assert done is not None, "nothing stops it"
        return tuple(
            np.frombuffer(self.memory.read(at, tensor.bytes), tensor.dtype).reshape(tensor.extents)
            for tensor, at in self.places
        )


def _filled(data: bytes) -> Pages:
    pages = Pages(len(data))
    with pages.view() as view:
        view[: len(data)] = data
    return pages


class _Memory:
    """Arrays of an emulated program, with pages between them that nobody may touch."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._end = _ARRAYS_AT
        self._pages: dict[int, Pages] = {}

    def add(self, data: bytes, size: int) -> int:
        """The address of ``size`` bytes, the first of which are ``data``."""
        pages, at = Pages(size), self._end
        with pages.view() as view:
            view[: len(data)] = data
        self._emulator.map(at, pages, READ | WRITE)
        self._pages[at] = pages
        self._end = at + pages.size + PAGE
        return at

    def read(self, at: int, size: int) -> bytes:
        """What is there now."""
        with self._pages[at].view() as view:
            return bytes(view[:size])


@dataclass(frozen=True, slots=True)
class _Straight:
    """Code without jumps into it or out of it, but at its ends."""

    body: tuple[Instruction, ...]
    times: int
    backs: int

    @property
    def is_loop(self) -> bool:
        """Whether its last instruction jumps to its first one."""
        return self.backs > 0 and self.body[-1].target == self.body[0].address


def _joined(blocks: Sequence[Block], code: memoryview) -> list[_Straight]:
    """The blocks, with those put together that the emulator has cut where there is no branch."""
    by_address = {block.address: block for block in blocks}
    bodies = {
        block.address: decoded(bytes(code[block.address - _IMAGE_AT :][: block.bytes]), block.address)
        for block in blocks
    }
    joined: list[_Straight] = []
    inner: set[int] = set()
    for block in blocks:
        if block.address in inner:
            continue
        body, end = bodies[block.address], block.address + block.bytes
        while body[-1].kind is not Kind.BRANCH and (later := by_address.get(end)) and later.times == block.times:
            inner.add(end)
            body, end = body + bodies[end], end + later.bytes
        joined.append(_Straight(body, block.times, block.backs))
    return joined


def _cost(block: _Straight, core: Core) -> tuple[float, float]:
    """Cycles of a block, and of its ends if it is a loop."""
    if not block.is_loop:
        return block.times * straight_cycles(block.body, core), 0.0
    inside = block.times * loop_cycles(block.body, core)
    entered = max(1, block.times - block.backs)
    is_remembered = block.times <= _REMEMBERED_ROUNDS * entered
    return inside, 0.0 if is_remembered else entered * (core.fma_latency + core.mispredict)


def _by_call(
    calls: Sequence[str], functions: Mapping[str, tuple[int, int]], costs: Iterable[tuple[int, float, float]]
) -> tuple[float, ...]:
    """The cycles of each call of a kernel, whose parallel loops are functions of their own (``NAME.regionN``)."""
    ranges = sorted((begin, end, name.partition(".region")[0]) for name, (begin, end) in functions.items())
    cycles: defaultdict[str, float] = defaultdict(float)
    for address, inside, ends in costs:
        place = bisect_right(ranges, address, key=lambda found: found[0]) - 1
        if place >= 0 and address < ranges[place][1]:
            cycles[ranges[place][2]] += inside + ends
    times = Counter(calls)
    return tuple(cycles[name] / times[name] for name in calls)


def _waiting(core: Core, near: Misses, far: Misses, data: int) -> float:
    """Cycles for lines that the caches lacked: those in sequence are fetched ahead.

    What is touched for the first time comes from memory; ``data``: its bytes at most. After that, a third cache has it
    if all fits.
    """
    again = max(0.0, 1 - -(-data // LINE) / far.all) if far.all else 0.0
    behind = core.memory if core.l3 is None or data > core.l3.bytes else core.l3
    first = _fetching(core, core.memory, far)
    return _fetching(core, core.l2, near) + (1 - again) * first + again * _fetching(core, behind, far)


def _fetching(core: Core, cache: Cache, misses: Misses) -> float:
    return misses.streamed * cache.line_cycles + (misses.all - misses.streamed) * cache.latency / core.overlap
