"""What a candidate takes of the memories on the chip."""

from math import prod

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.sketch.accelerator.computation import Kind, Part
from tilewright.sketch.accelerator.decision import Decision


def needed(decision: Decision) -> dict[Scratchpad, int]:
    """Tiles of each memory, for all virtual threads together; at most these."""
    computation = decision.computation
    found: dict[Scratchpad, int] = dict.fromkeys((Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC), 0)
    for part in computation.parts:
        if part.kind is Kind.LOADED:
            found[part.pad.storage] += prod(decision.loaded[part.name]) * _copies(decision, part)
        elif part.kind is not Kind.RESULT and computation.roots[part.buffer] == part.buffer:
            found[Scratchpad.ACC] += prod(decision.regions[part.buffer]) * _own(decision, part.buffer)
    return found


def _copies(decision: Decision, load: Part) -> int:
    """How many places there are for what is loaded."""
    copies = decision.copies(load)
    return _own(decision, load.buffer) if copies > 1 and load.pad.storage is Scratchpad.ACC else copies


def _own(decision: Decision, buffer: str) -> int:
    """How many places an accumulator has that is in the loops of virtual threads."""
    return 1 if buffer in decision.computation.passing else decision.threads


def fits(decision: Decision, config: Config) -> bool:
    """Whether the memories have room."""
    return all(count <= config.depth(pad) for pad, count in needed(decision).items())
