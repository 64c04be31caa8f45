"""Candidates of sketches that are likely good, and the best of some by the estimate of ``features.cycles``.

To schedule a candidate takes milliseconds, so few are. They are drawn with tiles that are among the best of many by
``tiles.py``, and the best of them are varied. What is drawn follows from the program alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.sketch import Draft, Sketch, sketch_spaces
from tilewright.sketch.annotate import register_lanes
from tilewright.sketch.rules import CPU_RULES
from tilewright.sketch.rules.rfactor import INNER, FactorReduction
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Space
from tilewright.symbolic.expr import ZERO
from tilewright.target.target import Target
from tilewright.tune.features.cycles import program_cycles
from tilewright.tune.untuned.tiles import Untiled, untiled

MOST, LEAST, BLOCKS = 24, 12, 96
"""Candidates that are drawn: as many as have ``BLOCKS`` blocks together, within limits."""
PARENTS, EACH, GENERATIONS = 4, 2, 2
"""How many are varied, how often each is, and how many times that is done."""
TILES, BEST_TILES = 192, 8
"""Tiles of a block that are drawn, and how many of them are in candidates."""
REGISTERS = (1, 2, 4)
"""That partial results fill."""


class _InLanes(FactorReduction):
    """Partial results in lanes only: none that are computed in parallel."""

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        super().apply(draft, block, INNER)


RULES = tuple(_InLanes() if isinstance(rule, FactorReduction) else rule for rule in CPU_RULES)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate of a sketch's space, and the cycles that its schedule takes by the estimate."""

    cycles: float
    space: Space
    digits: Digits
    schedule: Schedule


def best_of_sketches(naive: Program, target: Target, own: float) -> Candidate | None:
    """The best of some candidates for one core; None if none has a schedule, or nothing is computed.

    If none that is drawn takes less than ``own`` cycles, they are not varied.
    """
    if any(axis.extent == ZERO for block in all_blocks(naive.body) for axis in block.axes):
        return None
    spaces = sketch_spaces(naive, target, RULES, standard=False, threads=1)
    if not spaces:
        return None
    drawing, random = _Drawing.of(naive, spaces, target), np.random.default_rng(0)
    count = max(LEAST, min(MOST, BLOCKS // len(all_blocks(naive.body))))
    found = _rated([drawing.draw(random) for _ in range(count)])
    is_near = any(one.cycles < own for one in found)
    for _ in range(GENERATIONS if is_near else 0):
        found = sorted(found, key=_cycles)[:PARENTS]
        found += _rated([(one.space, one.space.vary(one.digits, random)) for one in found for _ in range(EACH)])
    return min(found, key=_cycles, default=None)


def _cycles(one: Candidate) -> float:
    return one.cycles


def _rated(candidates: Sequence[tuple[Space, Digits]]) -> list[Candidate]:
    """Those that have a schedule."""
    found: list[Candidate] = []
    for space, digits in candidates:
        if not space.allowed(digits[None])[0]:
            continue
        try:
            made = space.schedule(digits)
            found.append(Candidate(program_cycles(made.program, space.target), space, digits, made))
        except (ScheduleError, Unsupported):
            continue
    return found


@dataclass(frozen=True, slots=True)
class _Drawing:
    """``tiles``: the best decisions about the tiles of each block, by the names of knobs."""

    spaces: tuple[Space, ...]
    tiles: Mapping[str, Sequence[Mapping[str, Value]]]
    lanes: int

    @staticmethod
    def of(naive: Program, spaces: Sequence[tuple[Sketch, Space]], target: Target) -> "_Drawing":
        tiled = {block: space for sketch, space in reversed(spaces) for block in sketch.tiled}
        best = {name: _best_tiles(block, tiled[name]) for name, block in untiled(naive, tuple(tiled), target).items()}
        known = {name: found for name, found in best.items() if found}
        return _Drawing(tuple(space for _, space in spaces), known, register_lanes(naive, target))

    def draw(self, random: np.random.Generator) -> tuple[Space, Digits]:
        """A space, and a candidate of it."""
        space = self.spaces[int(random.integers(len(self.spaces)))]
        (digits,) = space.sample(1, random)
        chosen: dict[str, Value] = {}
        for found in self.tiles.values():
            chosen |= found[int(random.integers(len(found)))]
        for place, knob in enumerate(space.knobs):
            if chosen.get(knob.name) in knob.values:
                digits[place] = knob.values.index(chosen[knob.name])
            elif full := self._full(knob):
                digits[place] = full[int(random.integers(len(full)))]
        return space, digits

    def _full(self, knob: Knob[Value]) -> list[int]:
        """The digits with which partial results fill registers, if ``knob`` is how many there are."""
        widths = [registers * self.lanes for registers in REGISTERS] if knob.name.endswith(".lanes") else []
        return [digit for digit, width in enumerate(knob.values) if width in widths]


def _best_tiles(block: Untiled, space: Space) -> list[Mapping[str, Value]]:
    """Decisions about the tiles of a block, of many that are drawn; none if they can't be estimated."""
    rated: list[tuple[float, Mapping[str, Value]]] = []
    for digits in space.sample(TILES, np.random.default_rng(0)):
        own = {name: value for name, value in space.describe(digits).items() if name.startswith(f"{block.name}.")}
        try:
            rated.append((block.cycles(own), own))
        except Unsupported:
            return []
    return [own for _, own in sorted(rated, key=lambda one: one[0])[:BEST_TILES]]
