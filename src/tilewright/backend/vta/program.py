"""Programs of the accelerator before their operands have addresses, and the recorder that makes them.

    recorder = Recorder(config)
    a = recorder.operand("A", Scratchpad.INP, (4, 8))
    recorder.load(a, rows=4, columns=8, stride=8)
    recorder.token(Module.LOAD, Module.COMPUTE)
    recorder.compute(kernel)
    ...
    program = recorder.finish()

``token(giver, taker)`` orders what the giver has recorded so far before what the taker records next. It is the last
instruction of the giver that pushes the token, and the next one of the taker that pops it; where such an instruction
passes a token of that queue already, an instruction without tiles is recorded to pass this one. ``push`` and ``pop``
are the two halves, for a taker that waits later than for the next thing it does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tilewright.backend.vta.assembly import text_of
from tilewright.backend.vta.config import Config, Module, Scratchpad
from tilewright.backend.vta.dataflow import Channel
from tilewright.backend.vta.instructions import NO_TOKENS, Finish, Load, Store, Tokens
from tilewright.backend.vta.kernels import Kernel
from tilewright.base.errors import BadProgram


@dataclass(frozen=True, slots=True)
class Operand:
    """An array in device memory: ``shape`` tiles, each as ``pad`` has them. What is stored to is a result."""

    name: str
    pad: Scratchpad
    shape: tuple[int, ...]

    @property
    def tiles(self) -> int:
        """Their number."""
        return math.prod(self.shape)

    def array_shape(self, config: Config) -> tuple[int, ...]:
        """The shape of the whole array."""
        return *self.shape, *config.tile_shape(self.pad)

    def bytes(self, config: Config) -> int:
        """The bytes of the whole array."""
        return self.tiles * config.tile_bytes(self.pad)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A LOAD or STORE; ``dram`` of the instruction is relative to the operand."""

    operand: Operand
    instruction: Load | Store


@dataclass(frozen=True, slots=True)
class Pass:
    """An instruction without an operand: it passes tokens, or ends the program."""

    instruction: Load | Store | Finish


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel, run with some tokens."""

    kernel: Kernel
    tokens: Tokens = NO_TOKENS


Step: TypeAlias = Transfer | Pass | Call


def module_of(step: Step) -> Module:
    """The module that runs a step."""
    return Module.COMPUTE if isinstance(step, Call) else step.instruction.module


def tokens_of(step: Step) -> Tokens:
    """The tokens of a step."""
    return step.tokens if isinstance(step, Call) else step.instruction.tokens


def with_tokens(step: Step, tokens: Tokens) -> Step:
    """The step with other tokens."""
    match step:
        case Call():
            return replace(step, tokens=tokens)
        case Transfer():
            return replace(step, instruction=replace(step.instruction, tokens=tokens))
        case Pass():
            return replace(step, instruction=replace(step.instruction, tokens=tokens))


@dataclass(frozen=True, slots=True)
class Program:
    """Steps, in order, and the operands that they name."""

    config: Config
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]

    @property
    def results(self) -> tuple[Operand, ...]:
        """The operands that are stored to."""
        stored = {step.operand for step in self.steps if isinstance(step, Transfer) and _is_store(step)}
        return tuple(operand for operand in self.operands if operand in stored)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The operands that are loaded."""
        loaded = {step.operand for step in self.steps if isinstance(step, Transfer) and not _is_store(step)}
        return tuple(operand for operand in self.operands if operand in loaded)


def _is_store(step: Transfer) -> bool:
    return isinstance(step.instruction, Store)


_PUSH: Mapping[Channel, str] = {
    (Module.LOAD, Module.COMPUTE): "push_next",
    (Module.COMPUTE, Module.LOAD): "push_previous",
    (Module.COMPUTE, Module.STORE): "push_next",
    (Module.STORE, Module.COMPUTE): "push_previous",
}
_POP: Mapping[Channel, str] = {
    (Module.LOAD, Module.COMPUTE): "pop_previous",
    (Module.COMPUTE, Module.LOAD): "pop_next",
    (Module.COMPUTE, Module.STORE): "pop_previous",
    (Module.STORE, Module.COMPUTE): "pop_next",
}
NOTHING: dict[Module, Load | Store] = {
    Module.LOAD: Load(memory=Scratchpad.INP, rows=0, columns=0),
    Module.COMPUTE: Load(memory=Scratchpad.UOP, rows=0, columns=0),
    Module.STORE: Store(rows=0, columns=0),
}
"""What passes a token and does nothing else, for each module."""


def _flag(names: Mapping[Channel, str], channel: Channel) -> str:
    """The flag of an instruction for a queue of tokens."""
    if channel not in names:
        giver, taker = channel
        raise BadProgram(f"no tokens go from {giver.value} to {taker.value}; let compute stand between")
    return names[channel]


def with_push(step: Step, channel: Channel) -> Step:
    """The step, which also gives a token to a neighbour. Raises ``BadProgram`` unless they are neighbours."""
    return with_tokens(step, replace(tokens_of(step), **{_flag(_PUSH, channel): True}))


def with_pop(step: Step, channel: Channel) -> Step:
    """The step, which also waits for a token of a neighbour. Raises ``BadProgram`` unless they are neighbours."""
    return with_tokens(step, replace(tokens_of(step), **{_flag(_POP, channel): True}))


@dataclass(slots=True)
class Recorder:
    """Records a program."""

    config: Config
    _operands: dict[str, Operand] = field(default_factory=dict[str, Operand])
    _steps: list[Step] = field(default_factory=list[Step])
    _last: dict[Module, int] = field(default_factory=dict[Module, int])
    """The last step of each module."""
    _awaited: dict[Module, Tokens] = field(default_factory=dict[Module, Tokens])
    """What the next step of each module pops."""

    def operand(self, name: str, pad: Scratchpad, shape: tuple[int, ...]) -> Operand:
        """Declare an array. Raises ``BadProgram`` if there is another one of that name."""
        operand = Operand(name, pad, shape)
        if self._operands.setdefault(name, operand) != operand:
            raise BadProgram(f"operand {name} is declared twice, with different shapes; give them different names")
        return operand

    def transfer(self, operand: Operand, instruction: Load | Store) -> None:
        """Record a LOAD or STORE whose ``dram`` is relative to the operand.

        Raises ``BadProgram`` if it reaches beyond the operand, has other tiles, or loads micro-ops, whose memory is
        that of the run-time compiler.
        """
        if instruction.memory is Scratchpad.UOP:
            raise BadProgram(f"{text_of(instruction)}: micro-ops are loaded by the run-time compiler; record kernels")
        rows, columns = instruction.rows, instruction.columns
        end = instruction.dram + (rows - 1) * instruction.stride + columns if rows and columns else 0
        if end > operand.tiles:
            raise BadProgram(f"{text_of(instruction)}: {operand.name} has {operand.tiles} tiles, not {end}")
        if self.config.tile_bytes(instruction.memory) != self.config.tile_bytes(operand.pad):
            raise BadProgram(
                f"{text_of(instruction)}: the tiles of {operand.name} are those of {operand.pad.name.lower()}"
            )
        self._record(Transfer(operand, instruction))

    def compute(self, kernel: Kernel) -> None:
        """Record a GEMM or ALU."""
        self._record(Call(kernel))

    def token(self, giver: Module, taker: Module) -> None:
        """Order all that ``giver`` has recorded before what ``taker`` records next: a push and its pop."""
        self.push(giver, taker)
        self.pop(giver, taker)

    def push(self, giver: Module, taker: Module) -> None:
        """The last instruction of ``giver`` gives a token to ``taker``.

        Raises ``BadProgram`` unless they are neighbours and the giver has recorded something.
        """
        name = _flag(_PUSH, (giver, taker))
        if giver not in self._last:
            raise BadProgram(f"{giver.value} has done nothing that {taker.value} could wait for")
        if getattr(tokens_of(self._steps[self._last[giver]]), name):
            self._record(Pass(NOTHING[giver]))
        position = self._last[giver]
        step = self._steps[position]
        self._steps[position] = with_tokens(step, replace(tokens_of(step), **{name: True}))

    def pop(self, giver: Module, taker: Module) -> None:
        """The next instruction of ``taker`` waits for a token of ``giver``: the oldest one that was not yet taken.

        Raises ``BadProgram`` unless they are neighbours.
        """
        name = _flag(_POP, (giver, taker))
        if getattr(self._awaited.get(taker, NO_TOKENS), name):
            self._record(Pass(NOTHING[taker]))
        self._awaited[taker] = replace(self._awaited.get(taker, NO_TOKENS), **{name: True})

    def _record(self, step: Step) -> None:
        module = module_of(step)
        self._last[module] = len(self._steps)
        self._steps.append(with_tokens(step, self._awaited.pop(module, NO_TOKENS)))

    def finish(self) -> Program:
        """The program, ended by FINISH, which waits for all stores."""
        if Module.STORE in self._last:
            self.token(Module.STORE, Module.COMPUTE)
        self._record(Pass(Finish()))
        if self._awaited:
            waiting = ", ".join(module.value for module in self._awaited)
            raise BadProgram(f"{waiting} would wait for a token, but does nothing more; leave the token out")
        return Program(self.config, tuple(self._operands.values()), tuple(self._steps))
