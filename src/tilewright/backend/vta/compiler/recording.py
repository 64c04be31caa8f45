"""Steps with the tiles that they access, and the tokens that order them.

Streams of virtual threads are interleaved part by part: while compute works for one, load fetches for the other. Then
each step waits for the last step of a neighbour with an access that its own conflicts with, unless the module has
waited for that one, or a later one, before. Steps of a module run in order, so one token from each neighbour is enough,
and the tokens of a queue are taken in the order in which they are given.

What a program has stored it may load again: the values between the parts of a larger one. No token goes from store to
load, so compute stands between: at a step that has waited for the store already, or at one that does nothing else.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.config import Config, Module, Scratchpad
from tilewright.backend.vta.dataflow import CHANNELS, Channel
from tilewright.backend.vta.instructions import Finish, Load, Store
from tilewright.backend.vta.program import NOTHING, Pass, Step, Transfer, module_of, with_pop, with_push

_NEVER = -1
_ANSWER: Channel = (Module.STORE, Module.COMPUTE)
_RELEASE: Channel = (Module.COMPUTE, Module.LOAD)
_MEMORIES = (Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Some tiles of a memory on the chip: from ``start`` to ``stop - 1``."""

    pad: Scratchpad
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step, without tokens, and what it accesses on the chip."""

    step: Step
    reads: tuple[Tiles, ...] = ()
    writes: tuple[Tiles, ...] = ()

    @property
    def module(self) -> Module:
        """Who runs it."""
        return module_of(self.step)


def interleaved(streams: Sequence[Iterable[Recorded]]) -> list[Recorded]:
    """The steps of virtual threads. Those of one module in a row are a part; parts of the threads take turns."""
    parts = [[list(steps) for _, steps in groupby(stream, lambda one: one.module)] for stream in streams]
    return [step for together in zip_longest(*parts, fillvalue=()) for part in together for step in part]


def ordered(steps: Iterable[Recorded], config: Config) -> tuple[Step, ...]:
    """The steps with tokens, and FINISH, which waits for all stores."""
    tokens = _Tokens(config)
    for step in steps:
        tokens.add(step)
    return tokens.finished()


@dataclass(slots=True)
class _Tokens:
    config: Config
    steps: list[Step] = field(default_factory=list[Step])
    readers: dict[tuple[Scratchpad, Module], NDArray[np.int64]] = field(init=False)
    """The last step of a module that read each tile of a memory."""
    writers: dict[tuple[Scratchpad, Module], NDArray[np.int64]] = field(init=False)
    awaited: dict[Channel, int] = field(init=False)
    """The last step of the giver that the taker has waited for."""
    stored: dict[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])
    """The last STORE to each tile of an operand, by name."""
    answered: list[int] = field(default_factory=list[int])
    """The stores that compute has waited for, in order; and in ``answers`` the step that did."""
    answers: list[int] = field(default_factory=list[int])
    last_store: int = _NEVER

    def __post_init__(self) -> None:
        def never() -> dict[tuple[Scratchpad, Module], NDArray[np.int64]]:
            every = ((pad, module) for pad in _MEMORIES for module in Module)
            return {key: np.full(self.config.depth(key[0]), _NEVER, np.int64) for key in every}

        self.readers, self.writers = never(), never()
        self.awaited = dict.fromkeys(CHANNELS, _NEVER)

    def add(self, new: Recorded) -> None:
        """Order ``new`` after all that it conflicts with."""
        module, far = new.module, self._stored_before(new.step)
        others = {_RELEASE: self._answer(far)} if module is Module.LOAD else {_ANSWER: far}
        number = len(self.steps)
        self.steps.append(new.step)
        for channel in CHANNELS:
            if channel[1] is module:
                self._wait(channel, max(self._conflict(new, channel[0]), others.get(channel, _NEVER)))
        for marks, accesses in ((self.readers, new.reads), (self.writers, new.writes)):
            for tiles in accesses:
                marks[tiles.pad, module][tiles.start : tiles.stop] = number
        if isinstance(new.step, Transfer) and isinstance(new.step.instruction, Store):
            self._mark(new.step, number)

    def _conflict(self, new: Recorded, giver: Module) -> int:
        """The last step of ``giver`` that must come before ``new``."""
        before = [self.writers[tiles.pad, giver][tiles.start : tiles.stop] for tiles in (*new.reads, *new.writes)]
        before += [self.readers[tiles.pad, giver][tiles.start : tiles.stop] for tiles in new.writes]
        return max((int(marks.max()) for marks in before), default=_NEVER)

    def _wait(self, channel: Channel, giver: int) -> None:
        """Let the newest step wait for the step ``giver``."""
        if giver > self.awaited[channel]:
            self.steps[giver] = with_push(self.steps[giver], channel)
            self.steps[-1] = with_pop(self.steps[-1], channel)
            self.awaited[channel] = giver
            if channel == _ANSWER:
                self.answered.append(giver)
                self.answers.append(len(self.steps) - 1)

    # Device memory ----------------------------------------------------------------------------------------------------

    def _mark(self, step: Transfer, number: int) -> None:
        operand = step.operand
        marks = self.stored.setdefault(operand.name, np.full(operand.tiles, _NEVER, np.int64))
        marks[_positions(step.instruction)] = number
        self.last_store = number

    def _stored_before(self, step: Step) -> int:
        """The last store of anything that a step loads."""
        if not isinstance(step, Transfer) or isinstance(step.instruction, Store):
            return _NEVER
        marks = self.stored.get(step.operand.name)
        return _NEVER if marks is None else int(marks[_positions(step.instruction)].max(initial=_NEVER))

    def _answer(self, store: int) -> int:
        """A step of compute that has waited for a store."""
        if store == _NEVER:
            return _NEVER
        place = bisect_left(self.answered, store)
        if place == len(self.answered):
            self.steps.append(Pass(NOTHING[Module.COMPUTE]))
            self._wait(_ANSWER, store)
        return self.answers[place]

    def finished(self) -> tuple[Step, ...]:
        """All steps."""
        self.steps.append(Pass(Finish()))
        self._wait(_ANSWER, self.last_store)
        return tuple(self.steps)


def _positions(instruction: Load | Store) -> NDArray[np.int64]:
    """The tiles of an operand that a transfer copies."""
    rows = instruction.dram + np.arange(instruction.rows, dtype=np.int64) * instruction.stride
    return (rows[:, None] + np.arange(instruction.columns, dtype=np.int64)).reshape(-1)
