"""The hardware as a device: it runs in Amaranth's simulator, cycle by cycle.

    device = RtlDevice(TINY)
    Runtime(device).run(program, feeds).report.cycles        when each instruction began and ended

Thousands of cycles take a second: it is for small configurations and programs. It checks neither tokens nor addresses
on the chip, as hardware doesn't: ``SimulatedDevice`` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from amaranth.sim import Simulator, SimulatorContext

from tilewright.backend.vta.config import TINY, Config, Module
from tilewright.backend.vta.cycles import Cycles, Timing
from tilewright.backend.vta.dataflow import Timeline
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.functional import count
from tilewright.backend.vta.instructions import Instruction, decode_program
from tilewright.backend.vta.rtl.device_port import DevicePort
from tilewright.backend.vta.rtl.top import Accelerator, require_buildable
from tilewright.base.errors import BadInput, BadProgram

MEMORY_BYTES = 1 << 20
SETTLING = 4
"""Steps of the simulator, two in a cycle, until the tokens of the last instruction are seen."""
IDLE_CYCLES = 64
"""A program in which nothing moves for as long, and for twice the latency of memory, never ends."""


@dataclass(slots=True)
class _Run:
    """What is seen of a program: when the instructions of each module began and ended."""

    address: int
    instructions: int
    begins: dict[Module, list[int]] = field(default_factory=lambda: {module: [] for module in Module})
    ends: dict[Module, list[int]] = field(default_factory=lambda: {module: [] for module in Module})
    cycles: int = 0
    idle: int = 0
    finished: bool = False
    """Whether FINISH has ended."""
    left_tokens: bool = False

    @property
    def ended(self) -> bool:
        """Whether all instructions have, too."""
        return self.finished and sum(map(len, self.ends.values())) == self.instructions


class _Simulation:
    """A simulator with the accelerator, its memory, and what starts and watches it."""

    def __init__(self, config: Config, memory: DeviceMemory, timing: Timing) -> None:
        self.accelerator = Accelerator(config, timing)
        self.simulator = Simulator(self.accelerator)
        self.simulator.add_clock(1e-6 / config.clock_mhz)
        ports = self.accelerator.fetch_port, self.accelerator.data_port
        self.ports = [DevicePort(memory, port, max(1, timing.latency)) for port in ports]
        for port in self.ports:
            self.simulator.add_process(port.serve)
        self.simulator.add_process(self._watch)
        self.pending: _Run | None = None
        self.running: _Run | None = None

    async def _watch(self, context: SimulatorContext) -> None:
        """Start what is pending; write down when instructions begin and end."""
        top = self.accelerator
        controls = [top.controls[module] for module in Module]
        strobes = [signal for control in controls for signal in (control.start, control.ended)]
        working = [top.fetch.active, top.compute.stepping, top.load.reader.active, top.compute.reader.active]
        empty = [queue.empty for queue in top.tokens.values()]
        watched = *strobes, *empty, *working
        async for _, _, finished, *seen in context.tick().sample(top.compute.finished, *watched):
            context.set(top.fetch.start, 0)
            if (run := self.running) is not None and not run.ended:
                run.cycles += 1
                moved = any(seen[-len(working) :]) or any(seen[: len(strobes)])
                for number, module in enumerate(Module):
                    if seen[2 * number]:
                        run.begins[module].append(run.cycles - 1)
                    if seen[2 * number + 1]:
                        run.ends[module].append(run.cycles)
                run.idle = 0 if moved else run.idle + 1
                run.finished = run.finished or bool(finished)
            elif run is not None:
                run.left_tokens = not all(seen[len(strobes) : len(strobes) + len(empty)])
            if self.pending is not None:
                self.running, self.pending = self.pending, None
                context.set(top.fetch.address, self.running.address // top.fetch_port.bus_bytes)
                context.set(top.fetch.count, self.running.instructions)
                context.set(top.fetch.start, 1)

    def run(self, run: _Run, patience: int) -> None:
        """Simulate until the program has ended. Raises ``BadProgram`` if nothing moves any more, or tokens are left."""
        self.pending, requests = run, 0
        while not run.ended:
            self.simulator.advance()
            for port in self.ports:
                if port.error is not None:
                    raise port.error
            if (now := sum(port.requests for port in self.ports)) != requests:
                requests, run.idle = now, 0
            if run.idle > patience:
                raise BadProgram(
                    f"the program does not end: nothing has moved for {run.idle} cycles; SimulatedDevice tells which "
                    "tokens are missing"
                )
        for _ in range(SETTLING):
            self.simulator.advance()
        if run.left_tokens:
            raise BadProgram("the program leaves tokens; SimulatedDevice tells which")


@dataclass(slots=True)
class RtlDevice:
    """A ``Driver``. Programs run when they are waited for. An error loses what the memories on the chip have.

    Raises ``BadInput`` as ``require_buildable`` does.
    """

    config: Config = TINY
    timing: Timing = field(default_factory=Timing)
    memory_bytes: int = MEMORY_BYTES
    memory: DeviceMemory = field(init=False)
    _simulation: _Simulation | None = None
    _started: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        require_buildable(self.config, self.timing)
        self.memory = DeviceMemory(self.memory_bytes, self.config.alignment)

    def allocate(self, size: int) -> int:
        """The address of a new block. Raises ``OutOfMemory``."""
        return self.memory.allocate(size)

    def free(self, address: int) -> None:
        """Give a block back. Raises ``BadInput`` if none starts there."""
        self.memory.free(address)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory. Raises ``OutOfBounds``."""
        self.memory.write(address, data)

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from device memory. Raises ``OutOfBounds``."""
        return self.memory.read(address, size)

    def start(self, address: int, count: int) -> None:
        """Run ``count`` instructions at ``address``. Raises ``BadInput`` if a run was not waited for."""
        if self._started is not None:
            raise BadInput("the device runs a program; wait for it first")
        self._started = address, count

    def wait(self) -> Report:
        """Run what was started.

        Raises ``InvalidInstruction`` for what is no instruction, ``OutOfBounds`` for accesses outside of device memory,
        ``BadProgram`` if it never ends, or leaves tokens.
        """
        if self._started is None:
            raise BadInput("the device runs no program; start one first")
        (address, number), self._started = self._started, None
        program = decode_program(self.read(address, number * self.config.instruction_bits // 8), self.config)
        simulation = self._simulation or _Simulation(self.config, self.memory, self.timing)
        self._simulation = None
        before = simulation.ports[1].requests
        run = _Run(address, number)
        simulation.run(run, 2 * self.timing.latency + IDLE_CYCLES)
        self._simulation = simulation
        return Report(count(program, self.config), _cycles(program, run, simulation.ports[1].requests - before, self))


def _cycles(program: Sequence[Instruction], run: _Run, transferred: int, device: RtlDevice) -> Cycles:
    """The times of each instruction: each module runs its own in order."""
    begins, ends = ({m: iter(times) for m, times in found.items()} for found in (run.begins, run.ends))
    spans = [(next(begins[i.module]), next(ends[i.module])) for i in program]
    order = sorted(range(len(program)), key=lambda number: spans[number])
    timeline = Timeline(tuple(begin for begin, _ in spans), tuple(end for _, end in spans), tuple(order))
    busy = dict.fromkeys(Module, 0)
    for (begin, end), instruction in zip(spans, program, strict=True):
        busy[instruction.module] += end - begin
    products = count(program, device.config).gemm
    return Cycles(run.cycles, tuple(busy.items()), products, transferred, timeline)
