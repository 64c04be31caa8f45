"""The order in which the modules run a program: four modules, three queues of instructions, four queues of tokens.

Fetch hands instructions, in the order of the program, to the queues of load, compute and store; it waits for a queue
that is full. A module takes the next instruction of its queue when it is idle and all tokens that the instruction pops
are there; it is busy for the instruction's time, and on until its tokens fit into their queues. Queues are bounded, and
all waiting is for something definite, so which instructions run does not depend on times: a program that stops for one
set of times stops for every one. With times of 0 this finds deadlocks (``hazards``); with real ones it is the cycle
simulator (``cycles``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.backend.vta.assembly import neighbours
from tilewright.backend.vta.config import Module
from tilewright.backend.vta.instructions import Instruction

Channel: TypeAlias = tuple[Module, Module]
"""A queue of tokens: who gives them, who takes them."""

CHANNELS: tuple[Channel, ...] = (
    (Module.LOAD, Module.COMPUTE),
    (Module.COMPUTE, Module.LOAD),
    (Module.COMPUTE, Module.STORE),
    (Module.STORE, Module.COMPUTE),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths of queues; the cycles until fetch goes, and between two instructions that it hands out."""

    instructions: int = 512
    tokens: int = 512
    fetch_interval: int = 0
    fetch_start: int = 0


def pops(instruction: Instruction) -> tuple[Channel, ...]:
    """The queues that an instruction takes a token from."""
    module, tokens = instruction.module, instruction.tokens
    asked = zip((tokens.pop_previous, tokens.pop_next), neighbours(module), strict=True)
    return tuple((other, module) for is_asked, other in asked if is_asked and other is not None)


def pushes(instruction: Instruction) -> tuple[Channel, ...]:
    """The queues that an instruction puts a token into."""
    module, tokens = instruction.module, instruction.tokens
    asked = zip((tokens.push_previous, tokens.push_next), neighbours(module), strict=True)
    return tuple((module, other) for is_asked, other in asked if is_asked and other is not None)


@dataclass(slots=True)
class _Queue:
    """A bounded queue: when each item came, and when each left."""

    length: int
    entered: list[int] = field(default_factory=list[int])
    left: list[int] = field(default_factory=list[int])

    @property
    def next_item(self) -> int | None:
        """When the next item came; None if there is none."""
        return self.entered[len(self.left)] if len(self.left) < len(self.entered) else None

    @property
    def room(self) -> int | None:
        """Since when there has been room for one more; None if there is none."""
        number = len(self.entered) - self.length
        if number < 0:
            return 0
        return self.left[number] if number < len(self.left) else None


@dataclass(frozen=True, slots=True)
class Blocked:
    """An instruction that never runs or never ends, and the queue of tokens that it waits for (None: for its turn)."""

    number: int
    channel: Channel | None
    is_full: bool = False
    """Whether it waits to push to the queue, not to pop from it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each instruction of a program began and ended, in cycles; -1 if it never did."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    order: tuple[int, ...]
    """The instructions in an order in which each comes after all that it waited for."""
    blocked: tuple[Blocked, ...] = ()
    """The instructions at which modules stopped; empty if the program ran to its end."""
    left_tokens: tuple[tuple[Channel, int], ...] = ()
    """Tokens that nobody took, by queue."""


Duration: TypeAlias = Callable[[Instruction, int], int]
"""The end of an instruction that begins at a time; called in the order of these times."""


@dataclass(slots=True)
class _Machine:
    """The state of all modules during a run."""

    instructions: Sequence[Instruction]
    end_of: Duration
    limits: Limits
    fetched: int = 0
    fetched_at: int = 0
    begins: list[int] = field(init=False)
    ends: list[int] = field(init=False)
    order: list[int] = field(default_factory=list[int])
    queues: dict[Module, _Queue] = field(init=False)
    members: dict[Module, list[int]] = field(init=False)
    """The numbers of the instructions of each module that were fetched."""
    tokens: dict[Channel, _Queue] = field(init=False)
    running: dict[Module, tuple[int, int]] = field(default_factory=dict[Module, tuple[int, int]])
    """The instruction that a module runs, and when its work is done."""
    idle: dict[Module, int] = field(init=False)
    """Since when a module has been idle."""

    def __post_init__(self) -> None:
        self.begins = [-1] * len(self.instructions)
        self.ends = [-1] * len(self.instructions)
        self.queues = {module: _Queue(self.limits.instructions) for module in Module}
        self.members = {module: [] for module in Module}
        self.tokens = {channel: _Queue(self.limits.tokens) for channel in CHANNELS}
        self.idle = dict.fromkeys(Module, 0)
        self.fetched_at = self.limits.fetch_start

    def run(self) -> None:
        """Do what can be done first, until nothing can be done."""
        while (action := self._next()) is not None:
            action[1](action[0])

    def _next(self) -> tuple[int, Callable[[int], None]] | None:
        best = self._fetch()
        for module in Module:
            found = self._finish(module) if module in self.running else self._begin(module)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def _fetch(self) -> tuple[int, Callable[[int], None]] | None:
        if self.fetched == len(self.instructions):
            return None
        module = self.instructions[self.fetched].module
        room = self.queues[module].room
        if room is None:
            return None

        def act(time: int) -> None:
            self.queues[module].entered.append(time)
            self.members[module].append(self.fetched)
            self.fetched, self.fetched_at = self.fetched + 1, time

        return max(room, self.fetched_at + self.limits.fetch_interval), act

    def _begin(self, module: Module) -> tuple[int, Callable[[int], None]] | None:
        queue = self.queues[module]
        arrived = queue.next_item
        if arrived is None:
            return None
        number = self.members[module][len(queue.left)]
        instruction = self.instructions[number]
        time = max(arrived, self.idle[module])
        for channel in pops(instruction):
            token = self.tokens[channel].next_item
            if token is None:
                return None
            time = max(time, token)

        def act(time: int) -> None:
            queue.left.append(time)
            for channel in pops(instruction):
                self.tokens[channel].left.append(time)
            self.begins[number] = time
            self.order.append(number)
            self.running[module] = number, self.end_of(instruction, time)

        return time, act

    def _finish(self, module: Module) -> tuple[int, Callable[[int], None]] | None:
        number, time = self.running[module]
        for channel in pushes(self.instructions[number]):
            room = self.tokens[channel].room
            if room is None:
                return None
            time = max(time, room)

        def act(time: int) -> None:
            for channel in pushes(self.instructions[number]):
                self.tokens[channel].entered.append(time)
            self.ends[number] = self.idle[module] = time
            del self.running[module]

        return time, act

    def blocked(self) -> tuple[Blocked, ...]:
        """Where each module that did not reach its end stopped, and fetch."""
        found: list[Blocked] = []
        for module in Module:
            if module in self.running:
                number = self.running[module][0]
                full = next(c for c in pushes(self.instructions[number]) if self.tokens[c].room is None)
                found.append(Blocked(number, full, is_full=True))
            elif self.queues[module].next_item is not None:
                number = self.members[module][len(self.queues[module].left)]
                empty = next(c for c in pops(self.instructions[number]) if self.tokens[c].next_item is None)
                found.append(Blocked(number, empty))
        if self.fetched < len(self.instructions):
            found.append(Blocked(self.fetched, None))
        return tuple(found)


def run_modules(instructions: Sequence[Instruction], end_of: Duration, limits: Limits) -> Timeline:
    """Run the modules until none can go on."""
    machine = _Machine(instructions, end_of, limits)
    machine.run()
    left = ((channel, len(queue.entered) - len(queue.left)) for channel, queue in machine.tokens.items())
    return Timeline(
        tuple(machine.begins),
        tuple(machine.ends),
        tuple(machine.order),
        machine.blocked(),
        tuple((channel, number) for channel, number in left if number),
    )
