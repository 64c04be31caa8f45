"""The cycle simulator: when each module is busy, waits for tokens, or for device memory.

    cycles = simulate(instructions, config, timing)
    print(cycles)

Three modules run beside each other (``dataflow``). Device memory serves one transfer after another, in the order in
which they begin; latencies of different modules overlap with transfers, those of one module do not. Constants are in
``Timing``, each with its source.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.backend.vta.assembly import text_of
from tilewright.backend.vta.config import Config, Module
from tilewright.backend.vta.dataflow import Blocked, Limits, Timeline, run_modules
from tilewright.backend.vta.functional import count
from tilewright.backend.vta.instructions import Alu, Finish, Gemm, Instruction, Load, Store
from tilewright.base.errors import BadInput, BadProgram


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in cycles of the accelerator's clock, and lengths of queues. Raises ``BadInput`` for impossible ones."""

    bus_bytes: int = 8
    """Bytes of device memory in a cycle: one 64-bit AXI port of a Zynq-7000 (Xilinx UG585)."""
    latency: int = 32
    """From the beginning of a LOAD or STORE to its first bytes. An assumption: no board was measured."""
    issue: int = 1
    """From the end of an instruction's work to the beginning of the next one (``rtl/control.py``)."""
    gemm_interval: int = 1
    """Between micro-ops of GEMM: the matrix unit is pipelined (Moreau et al., arXiv:1807.04188)."""
    gemm_depth: int = 4
    """From the last micro-op of a GEMM to its result: micro-op, operands, products, sums (``rtl/compute.py``)."""
    alu_interval: int = 1
    """Between micro-ops of ALU with an immediate, which read one accumulator."""
    alu_pair_interval: int = 2
    """Between micro-ops of ALU that read two accumulators: their memory has one port for reading."""
    alu_depth: int = 4
    """From the last micro-op of an ALU to its result: it goes through the stages of GEMM."""
    store_depth: int = 2
    """A STORE reads its first tile before it sends, and ends after its last answer (``rtl/store.py``)."""
    fetch_start: int = 35
    """From the start to the first instruction in its queue: the latency, and fetch itself (``rtl/fetch.py``)."""
    fetch_interval: int = 2
    """To fetch an instruction: 128 bits over a 64-bit port of its own."""
    queue_length: int = 512
    """Instructions in the queue of a module. An assumption."""
    token_length: int = 512
    """Tokens in a queue. An assumption."""

    def __post_init__(self) -> None:
        least = {"latency": 0, "issue": 0, "gemm_depth": 0, "alu_depth": 0, "store_depth": 0}
        least |= {"fetch_start": 0, "fetch_interval": 0}
        for name in self.__slots__:
            if (value := getattr(self, name)) < least.get(name, 1):
                raise BadInput(f"Timing: {name}={value} is impossible; the least is {least.get(name, 1)}")

    @property
    def limits(self) -> Limits:
        """The lengths of queues."""
        return Limits(self.queue_length, self.token_length, self.fetch_interval, self.fetch_start)


@dataclass(frozen=True, slots=True)
class Cycles:
    """The time of a program."""

    total: int
    """Cycles from the first instruction to the end of the last."""
    busy: tuple[tuple[Module, int], ...]
    """Cycles in which each module ran an instruction."""
    gemm: int
    """Cycles in which the matrix unit multiplied."""
    transferring: int
    """Cycles in which device memory transferred."""
    timeline: Timeline

    @property
    def utilisation(self) -> float:
        """The share of cycles in which the matrix unit multiplied: of its peak."""
        return self.gemm / self.total if self.total else 0.0

    def busy_share(self, module: Module) -> float:
        """The share of cycles in which a module ran an instruction."""
        return dict(self.busy)[module] / self.total if self.total else 0.0

    def __str__(self) -> str:
        shares = ", ".join(f"{module.value} {self.busy_share(module):.0%}" for module in Module)
        memory = self.transferring / self.total if self.total else 0.0
        return f"{self.total} cycles; products {self.utilisation:.0%}; busy: {shares}, device memory {memory:.0%}"


@dataclass(slots=True)
class _Clockwork:
    """How long instructions take; device memory serves one transfer at a time."""

    config: Config
    timing: Timing
    memory_free: int = 0
    transferring: int = 0

    def end_of(self, instruction: Instruction, begin: int) -> int:
        """When an instruction ends; to be called in the order of beginnings."""
        timing, begin = self.timing, begin + self.timing.issue
        match instruction:
            case Load() | Store():
                return self._transferred(instruction, begin)
            case Gemm():
                return begin + instruction.executions * timing.gemm_interval + timing.gemm_depth
            case Alu():
                interval = timing.alu_interval if instruction.use_immediate else timing.alu_pair_interval
                return begin + instruction.executions * interval + timing.alu_depth
            case Finish():
                return begin

    def _transferred(self, instruction: Load | Store, begin: int) -> int:
        """Tiles are requested in whole words. Those of zeros are written one in a cycle; the first ones, meanwhile."""
        beats = instruction.rows * instruction.columns
        beats *= -(-self.config.tile_bytes(instruction.memory) // self.timing.bus_bytes)
        zeros = instruction.tiles - instruction.rows * instruction.columns
        if not beats:
            return begin + zeros
        start = max(begin + self.timing.latency, self.memory_free)
        self.memory_free = start + beats
        self.transferring += beats
        if isinstance(instruction, Store):
            return start + beats + self.timing.store_depth
        ahead = instruction.pad_top * instruction.width + instruction.pad_left
        return max(start, begin + ahead) + beats + zeros - ahead


def simulate(instructions: Sequence[Instruction], config: Config, timing: Timing) -> Cycles:
    """The cycles of a program. Raises ``BadProgram`` if it deadlocks."""
    clockwork = _Clockwork(config, timing)
    timeline = run_modules(instructions, clockwork.end_of, timing.limits)
    if timeline.blocked:
        raise BadProgram("the program deadlocks: " + "; ".join(_told(instructions, item) for item in timeline.blocked))
    spans = zip(timeline.begins, timeline.ends, instructions, strict=True)
    busy = dict.fromkeys(Module, 0)
    for begin, end, instruction in spans:
        busy[instruction.module] += end - begin
    products = count(instructions, config).gemm * timing.gemm_interval
    total = max(timeline.ends, default=0)
    return Cycles(total, tuple(busy.items()), products, clockwork.transferring, timeline)


def _told(instructions: Sequence[Instruction], blocked: Blocked) -> str:
    return f"{blocked.number} ({text_of(instructions[blocked.number])}) never goes on"


def chart(cycles: Cycles, instructions: Sequence[Instruction], width: int = 72) -> str:
    """The modules over time: a letter for each span of cycles in which a module runs an instruction.

    ``L`` LOAD, ``S`` STORE, ``G`` GEMM, ``r`` its reset, ``A`` ALU, ``F`` FINISH; ``.``: the module waits.
    """
    lines = {module: _Line(width) for module in Module}
    for begin, end, instruction in zip(cycles.timeline.begins, cycles.timeline.ends, instructions, strict=True):
        lines[instruction.module].draw(begin, end, max(cycles.total, 1), _letter(instruction))
    return "\n".join(f"{module.value:<8}{''.join(line.letters)}" for module, line in lines.items())


@dataclass(slots=True)
class _Line:
    width: int
    letters: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.letters = ["."] * self.width

    def draw(self, begin: int, end: int, total: int, letter: str) -> None:
        """Fill the columns whose middle is between two times."""
        for column in range(self.width):
            if begin <= (2 * column + 1) * total / (2 * self.width) < end:
                self.letters[column] = letter


def _letter(instruction: Instruction) -> str:
    return "r" if isinstance(instruction, Gemm) and instruction.reset else instruction.opcode.name[0]
