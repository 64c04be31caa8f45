"""Derivation: all sketches of a program, by applying rules to its blocks from the outputs to the inputs.

A sketch is what was applied to which block, in order. It is a generator of schedules (``space.config.Generator``): run
with a ``Config`` that collects knobs, or with one that has decided them. So a sketch is searched, recorded and replayed
as a template is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import BadInput, ScheduleError
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.sketch.annotate import place, register_lanes
from tilewright.sketch.annotate_threads import annotate_threads
from tilewright.sketch.finish import finish
from tilewright.sketch.fitting import Fitting
from tilewright.sketch.rule import Answer, Draft, SketchRule
from tilewright.sketch.rules import CPU_RULES, THREAD_RULES
from tilewright.sketch.rules.tensorize import Tensorize
from tilewright.sketch.rules.tile import TileBlock
from tilewright.sketch.rules.tile_and_fuse import TileAndFuse
from tilewright.sketch.structure import CORES, Structure
from tilewright.space.config import Collector, Config
from tilewright.space.space import Space
from tilewright.target.target import Target

MOST_SKETCHES = 512
"""Of one program. The rules double them with each reduction; programs with more are searched in their first ones."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule that was applied to the block of that name."""

    rule: SketchRule
    block: str
    variant: int

    def __str__(self) -> str:
        return f"{self.rule.name}({self.block}{f', {self.variant}' if self.variant else ''})"


@dataclass(frozen=True, slots=True)
class Sketch:
    """What was applied, outputs first."""

    applied: tuple[Applied, ...] = ()
    structure: Structure = CORES

    def __str__(self) -> str:
        steps = [str(one) for one in self.applied if one.rule.name != "skip"]
        return ", ".join(steps) or "no rule"

    @property
    def tiled(self) -> tuple[str, ...]:
        """The blocks whose tiles of elements are in registers."""
        others = {one.block for one in self.applied if isinstance(one.rule, Tensorize)}
        tiled = (one.block for one in self.applied if isinstance(one.rule, TileBlock | TileAndFuse))
        return () if self.structure.has_threads else tuple(block for block in tiled if block not in others)

    def draft(self, schedule: Schedule, config: Config, target: Target) -> Draft:
        """The structure of the sketch on ``schedule``, which is changed."""
        draft = Draft(schedule, config, target, self.structure)
        for one in self.applied:
            one.rule.apply(draft, draft.block(one.block), one.variant)
        return draft

    def generate(self, schedule: Schedule, config: Config, *, target: Target) -> None:
        """Schedule ``schedule`` by ``config``: structure, then annotations. Raises ``ScheduleError``."""
        draft = self.draft(schedule, config, target)
        if self.structure.has_threads:
            annotate_threads(draft)
        else:
            finish(draft, place(draft))


@dataclass(frozen=True, slots=True)
class OfSketch:
    """The generator (``space.config.Generator``) of a sketch for a target."""

    sketch: Sketch
    target: Target

    def __call__(self, schedule: Schedule, config: Config) -> None:
        self.sketch.generate(schedule, config, target=self.target)


def sketches(
    naive: Program,
    target: Target,
    rules: Sequence[SketchRule] = (),
    *,
    standard: bool = True,
    structure: Structure = CORES,
) -> tuple[Sketch, ...]:
    """All sketches of a naive program, ``MOST_SKETCHES`` at most. A rule that a primitive refuses makes none.

    Raises ``BadInput`` for run-time extents.

    ``rules``: of one's own, which are asked before those of the structure; ``standard``: whether these are asked;
    ``structure``: how loops are tiled, ``BLOCKS_AND_THREADS`` for back ends that have them.
    """
    if naive.dims:
        raise BadInput(f"{naive.name} has run-time extents: sketches are of fixed ones")
    asked = (*rules, *((THREAD_RULES if structure.has_threads else CPU_RULES) if standard else ()))
    found: list[Sketch] = []
    left = [Sketch(structure=structure)]
    while left and len(found) < MOST_SKETCHES:
        sketch = left.pop(0)
        try:
            draft = sketch.draft(Schedule(naive), Collector(), target)
        except ScheduleError:  # a primitive refuses what the rule wants: the other rules make sketches still
            continue
        name = draft.next
        if name is None:
            found.append(sketch)
            continue
        left[:0] = [Sketch((*sketch.applied, one), structure) for one in _applicable(draft, name, asked)]
    return tuple(found)


def _applicable(draft: Draft, name: str, rules: Sequence[SketchRule]) -> list[Applied]:
    block, found = draft.block(name), list[Applied]()
    for rule in rules:
        answer = rule.answer(draft, block)
        if answer is not Answer.SKIP:
            found += [Applied(rule, name, variant) for variant in range(rule.variants(draft, block))]
        if answer is Answer.APPLY_ALONE:
            break
    return found


def sketch_spaces(
    naive: Program,
    target: Target,
    rules: Sequence[SketchRule] = (),
    *,
    standard: bool = True,
    structure: Structure = CORES,
    threads: int | None = None,
) -> tuple[tuple[Sketch, Space], ...]:
    """Each of ``sketches`` with its space. A sketch that has no schedule at all is left out.

    ``threads``: how many cores of the target are used; by default all. What one core would not do is not asked for it.
    """
    found: list[tuple[Sketch, Space]] = []
    used = target if threads is None else replace(target, cores=min(threads, target.cores))
    for sketch in sketches(naive, used, rules, standard=standard, structure=structure):
        opened, collector = Schedule(naive), Collector()
        generator = OfSketch(sketch, used)
        try:
            generator(opened.copy(), collector)
        except ScheduleError:
            continue
        knobs = tuple(collector.knobs)
        fitting = Fitting.of(knobs, sketch.tiled, used, register_lanes(naive, used))
        found.append((sketch, Space(naive, target, opened, generator, knobs, sensible=fitting.sensible)))
    return tuple(found)
