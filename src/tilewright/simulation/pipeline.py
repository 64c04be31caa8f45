"""Cycles of straight code on a core's pipelines, from its tables (``target/cores.py``).

Each instruction starts once what it reads is there and a pipeline of its kind is free: in order, or within a window of
those that are not finished. Fetch is perfect, and every load hits the first cache: what misses cost is added elsewhere
(``cycles``).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.simulation.decoding import Instruction, Kind
from tilewright.target.cores import Core, Pipe

_ROUNDS = 8
"""Times that a loop is followed: half of them fill the pipelines, and the others are counted."""
_DIVIDE_CYCLES = 12
_FLOAT_DIVIDE_CYCLES = 10
"""Cycles of a division: between those of all guides, as kernels have few."""
_SHORT_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class _Needs:
    """What an instruction occupies, for how many cycles each, and when its result is there."""

    pipes: tuple[tuple[Pipe, int], ...]
    latency: int


def loop_cycles(body: Sequence[Instruction], core: Core) -> float:
    """Cycles of an iteration of a loop that consists of ``body``, after the first ones."""
    rounds = _ROUNDS if len(body) < core.window or not core.window else _SHORT_ROUNDS
    half = rounds // 2
    flow = _Flow(core)
    for _ in range(half):
        flow.add(body)
    begin = flow.last
    for _ in range(rounds - half):
        flow.add(body)
    return (flow.last - begin) / (rounds - half)


def straight_cycles(body: Sequence[Instruction], core: Core) -> float:
    """Cycles that ``body`` adds to code around it: without waiting for earlier code, out of order also without others
    waiting for its end."""
    if not core.window:
        flow = _Flow(core)
        flow.add(body)
        return float(flow.last + 1)
    flow = _Flow(core)
    flow.add(body)
    begin = flow.last
    for _ in range(_SHORT_ROUNDS):
        flow.forget()
        flow.add(body)
    return (flow.last - begin) / _SHORT_ROUNDS


@dataclass(slots=True)
class _Flow:
    """Instructions on their way through ``core``. ``last``: when the last one was issued, or is finished."""

    core: Core
    last: int = 0
    ready: dict[str, int] = field(default_factory=dict[str, int])
    forwarded: dict[str, int] = field(default_factory=dict[str, int])
    """When multiply-adds can add to a register, if that is earlier."""
    used: Mapping[Pipe, defaultdict[int, int]] = field(
        default_factory=lambda: {pipe: defaultdict[int, int](int) for pipe in Pipe}
    )
    dispatched: defaultdict[int, int] = field(default_factory=lambda: defaultdict[int, int](int))
    finished: list[int] = field(default_factory=list[int])
    """When each instruction and all before it are."""
    front: int = 0
    """The cycle in which the next instruction is dispatched at the earliest."""

    def forget(self) -> None:
        """What follows waits for no result."""
        self.ready.clear()
        self.forwarded.clear()

    def add(self, body: Sequence[Instruction]) -> None:
        """Let the instructions follow."""
        for instruction in body:
            if instruction.kind is not Kind.NOTHING:
                self._add(instruction)

    def _add(self, instruction: Instruction) -> None:
        core, needs = self.core, _needs(instruction, self.core)
        ready = max(self._dispatch(), self._operands(instruction))
        is_alone = not core.window and instruction.kind is Kind.LOAD and instruction.bytes > core.load_bytes
        start = self._out_of_order(needs, ready) if core.window else self._in_order(needs, ready, is_alone=is_alone)
        end = start + needs.latency
        for register in instruction.writes:
            # The base of an access that moves it is there at once.
            moves = instruction.kind in (Kind.LOAD, Kind.BROADCAST, Kind.STORE) and register[0] == "x"
            is_base = moves and register in instruction.reads
            self.ready[register] = start + 1 if is_base else end
            self.forwarded.pop(register, None)
            if register == instruction.added:
                self.forwarded[register] = start + core.fma_forward
        done = max(end, self.finished[-1]) if self.finished else end
        self.finished.append(done)
        self.last = done if core.window else start

    def _out_of_order(self, needs: _Needs, ready: int) -> int:
        """Each operation starts as soon as there is a pipeline for it; returns when the last one does."""
        last = ready
        for pipe, cycles in needs.pipes:
            start, used, most = ready, self.used[pipe], self.core.pipes[pipe]
            while any(used[start + later] >= most for later in range(cycles)):
                start += 1
            for later in range(cycles):
                used[start + later] += 1
            last = max(last, start)
        return last

    def _in_order(self, needs: _Needs, ready: int, *, is_alone: bool) -> int:
        """All operations start together, and nothing that follows starts earlier.

        ``is_alone``: nothing starts while it starts, as with loads wider than their pipeline (ncnn's measurements).
        """
        start = ready
        while not self._is_free(needs, start) or (is_alone and self.dispatched[start]):
            start += 1
        if is_alone:
            for later in range(max(cycles for _, cycles in needs.pipes)):
                self.dispatched[start + later] = self.core.width
        for pipe, cycles in needs.pipes:
            for later in range(cycles):
                self.used[pipe][start + later] += 1
        self.dispatched[start] += 1
        self.front = start
        return start

    def _dispatch(self) -> int:
        """The cycle in which the next instruction is dispatched."""
        core, cycle = self.core, self.front
        if core.window and len(self.finished) >= core.window:
            cycle = max(cycle, self.finished[-core.window])
        while self.dispatched[cycle] >= core.width:
            cycle += 1
        if core.window:
            self.dispatched[cycle] += 1
            self.front = cycle
        return cycle

    def _operands(self, instruction: Instruction) -> int:
        start = 0
        for register in instruction.reads:
            when = self.ready.get(register, 0)
            if register == instruction.added:
                when = self.forwarded.get(register, when)
            start = max(start, when)
        return start

    def _is_free(self, needs: _Needs, start: int) -> bool:
        wanted: defaultdict[tuple[Pipe, int], int] = defaultdict(int)
        for pipe, cycles in needs.pipes:
            for cycle in range(start, start + cycles):
                wanted[pipe, cycle] += 1
        pipes, used = self.core.pipes, self.used
        is_free = all(used[pipe][cycle] + count <= pipes[pipe] for (pipe, cycle), count in wanted.items())
        return is_free and self.dispatched[start] < self.core.width


def _needs(instruction: Instruction, core: Core) -> _Needs:
    match instruction.kind:
        case Kind.INTEGER:
            return _Needs(((Pipe.INTEGER, 1),), 1)
        case Kind.MULTIPLY:
            return _Needs(((Pipe.MULTIPLY, 1),), 3)
        case Kind.DIVIDE:
            return _Needs(((Pipe.MULTIPLY, _DIVIDE_CYCLES),), _DIVIDE_CYCLES)
        case Kind.BRANCH:
            return _Needs(((Pipe.BRANCH, 1),), 1)
        case Kind.LOAD | Kind.BROADCAST:
            return _load(instruction, core)
        case Kind.PREFETCH:
            return _Needs(((Pipe.LOAD, 1),), 1)
        case Kind.STORE:
            return _Needs(_split(Pipe.STORE, 8 * instruction.bytes, 8 * core.store_bytes, core), 1)
        case Kind.FMA | Kind.DOT:
            return _Needs(_split(Pipe.VECTOR, instruction.bits, core.fp_bits, core), core.fma_latency)
        case Kind.FLOAT:
            return _Needs(_split(Pipe.VECTOR, instruction.bits, core.fp_bits, core), core.fp_latency)
        case Kind.FLOAT_DIVIDE:
            return _Needs(((Pipe.VECTOR, _FLOAT_DIVIDE_CYCLES),), _FLOAT_DIVIDE_CYCLES)
        case Kind.VECTOR:
            return _Needs(_split(Pipe.VECTOR, instruction.bits, core.vector_bits, core), core.vector_latency)
        case Kind.TO_VECTOR:
            return _Needs(((Pipe.MULTIPLY, 1),), 1 + core.vector_latency)
        case Kind.NOTHING:
            return _Needs((), 0)


def _load(instruction: Instruction, core: Core) -> _Needs:
    occupied = _split(Pipe.LOAD, 8 * instruction.bytes, 8 * core.load_bytes, core)
    latency = core.load_latency + sum(cycles for _, cycles in occupied) // core.pipes[Pipe.LOAD] - 1
    if instruction.kind is Kind.BROADCAST and core.broadcast_pipes:
        return _Needs((*occupied, (Pipe.VECTOR, 1)), latency + core.vector_latency)
    return _Needs(occupied, latency)


def _split(pipe: Pipe, bits: int, wide: int, core: Core) -> tuple[tuple[Pipe, int], ...]:
    """As many operations as it takes: on all pipelines at once, or one after the other on the same."""
    count, pipes = max(1, -(-bits // wide)), core.pipes[pipe]
    if count <= pipes:
        return ((pipe, 1),) * count
    return ((pipe, -(-count // pipes)),) * pipes
