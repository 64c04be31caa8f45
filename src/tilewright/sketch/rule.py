"""The interface of sketch rules, and the draft that they work on."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from tilewright.loops.ir import Block
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at
from tilewright.sketch.structure import CORES, Structure
from tilewright.space.config import Config
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import ONE
from tilewright.target.target import Target


class Answer(Enum):
    """Whether a rule applies to a block."""

    SKIP = "skip"
    APPLY = "apply"
    """It does, and so may the rules after it: each makes sketches of its own."""
    APPLY_ALONE = "apply alone"
    """It does, and the rules after it are not asked."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A tensor intrinsic that computes the innermost tile of a block."""

    intrinsic: TensorIntrinsic

    def unit(self, block: Block, axis: IterVar) -> int:
        """How many points of an axis of ``block`` it computes at once: axes match from the right, for each kind; those
        of one point are left out."""
        mine = [own.var for own in block.axes if own.kind is axis.kind and own.extent != ONE]
        theirs = [int(str(own.extent)) for own in self.intrinsic.block.axes if own.kind is axis.kind]
        place = mine.index(axis.var) - len(mine) if axis.var in mine else -len(theirs) - 1
        return theirs[place] if -place <= len(theirs) else 1


@dataclass(frozen=True, slots=True)
class Tile:
    """The loops of a block that is tiled, level by level, outermost first."""

    levels: tuple[tuple[LoopRef, ...], ...]
    """Those of the target's structure, whatever the order in which they run."""
    vector: LoopRef
    """The innermost loop, which becomes lanes; or the outer one of those that the instruction replaces."""
    written: int = 1
    """Operations that are written out between these loops."""
    instruction: Instruction | None = None

    @property
    def loops(self) -> tuple[LoopRef, ...]:
        """All loops, outermost first."""
        return tuple(loop for level in self.levels for loop in level)


@dataclass(frozen=True, slots=True)
class Factored:
    """Partial results of a reduction: first ``outer`` of them, which may be computed in parallel; then ``lanes``."""

    outer: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked about how long loops are, after so many steps of the schedule.

    That is whether ``block`` may be computed in ``loop``, or, without a block, whether ``loop`` runs once.
    """

    after: int
    loop: LoopRef
    block: BlockRef | None
    answer: bool


@dataclass(slots=True)
class Draft:
    """A schedule in the making. Rules change ``schedule`` by its primitives, ask ``config`` for numbers, and note what
    the rules after them and the annotation need to know."""

    schedule: Schedule
    config: Config
    target: Target
    structure: Structure = CORES
    done: set[str] = field(default_factory=set[str])
    """Blocks that no rule is asked about any more."""
    cached: set[str] = field(default_factory=set[str])
    """Blocks that write to a cache."""
    tiles: dict[str, Tile] = field(default_factory=dict[str, Tile])
    instructions: dict[str, Instruction] = field(default_factory=dict[str, Instruction])
    """Blocks that are tiled around an instruction."""
    fetched: dict[str, str] = field(default_factory=dict[str, str])
    """Copies that all threads of a block make, and the tiled blocks that read them."""
    followers: dict[str, str] = field(default_factory=dict[str, str])
    """Blocks that are computed on the tiles of others."""
    shared: dict[str, int] = field(default_factory=dict[str, int])
    """Reductions whose steps so many threads share."""
    fixed: set[str] = field(default_factory=set[str])
    """Blocks whose place among the loops of others is decided."""
    written: set[str] = field(default_factory=set[str])
    """Sums with constants, whose terms are written out."""
    factored: dict[str, Factored] = field(default_factory=dict[str, Factored])
    """Reductions that get partial results once it is decided where they are computed."""
    asked: list[Asked] = field(default_factory=list[Asked])
    """What the annotation asked about the lengths of loops; for patterns."""

    def block(self, name: str) -> Block:
        """The block of that name as it is now."""
        return block_at(self.schedule.program, BlockRef(name)).stmt

    def steps(self, name: str) -> frozenset[LoopRef]:
        """The loops over the reduction of a block, if it is tiled in the levels of the structure."""
        if name not in self.tiles or name in self.written:
            return frozenset()
        levels = zip(self.structure.levels, self.tiles[name].levels, strict=True)
        return frozenset(loop for letter, level in levels for loop in level if letter == "R")

    @property
    def placed(self) -> frozenset[str]:
        """Consumers that no other block can be fused with: tiled ones, and, in threads, those that have their place."""
        return frozenset({*self.fetched, *self.tiles, *(self.fixed if self.structure.has_threads else ())})

    def names(self) -> list[str]:
        """The names of all blocks, producers before their consumers."""
        return [block.name for block in all_blocks(self.schedule.program.body)]

    @property
    def next(self) -> str | None:
        """The last block that is not done."""
        return next((name for name in reversed(self.names()) if name not in self.done), None)


@runtime_checkable
class SketchRule(Protocol):
    """A derivation rule. It is asked about each block, outputs first."""

    @property
    def name(self) -> str:
        """For reports; of letters, digits, dots and underscores."""
        ...

    def answer(self, draft: Draft, block: Block) -> Answer:
        """Whether it applies to ``block``. Must not depend on what ``draft.config`` has decided."""
        ...

    def variants(self, draft: Draft, block: Block) -> int:
        """In how many ways it applies: each makes a sketch of its own."""
        ...

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """Rewrite ``draft.schedule``. Adds to ``draft.done`` what no rule is to be asked about again.

        The same questions must be asked of ``draft.config`` on each call, whatever it answers.
        """
        ...
