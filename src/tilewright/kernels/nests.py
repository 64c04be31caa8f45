"""Nests: the separately scheduled parts of a kernel (register tiles, vectorized loops), and their choices.

A nest has numeric knobs; a *choice* has a value for each of them. The nests of a kernel form the compiler's own space
of its schedules.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.kernels.contraction import Contraction, Extents, Roles, Tile
from tilewright.kernels.panel_rows import Pack, pack_matrix, pack_strips
from tilewright.kernels.panels_ahead import LINE_BYTES, PANEL_CACHE, ask_for_panels, has_next_panel
from tilewright.kernels.reduction_slices import SLICES, in_slices, schedule_slices, slice_counts
from tilewright.kernels.tile_facts import WRITTEN, Skipping, TileFacts, knobs_of
from tilewright.kernels.tiling import Order, Plan, Unroll, axes_of, outer_order, schedule_tiles
from tilewright.kernels.written_steps import last_loop, most_steps, with_written_steps
from tilewright.loops.ir import Block
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.prefetch import CACHES
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, block_at
from tilewright.space.config import Config
from tilewright.space.knobs import Knob
from tilewright.space.population import BoolArray, Choice, IntArray, Population, all_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE
from tilewright.target.machine import GUESSED_EXTENT
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Nest(ABC):
    """A separately scheduled part of a kernel. ``name``: that of its main block."""

    name: str
    knobs: tuple[Knob[int], ...]
    points: int = field(default=GUESSED_EXTENT, kw_only=True)
    """The number of elements it computes, including those of reductions: the estimate for an unknown class."""

    @abstractmethod
    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """Apply primitives to ``s``; ``values`` by the knobs' names."""

    @property
    def changes_operands(self) -> bool:
        """Whether it has to be scheduled before the nests that compute what it reads."""
        return False

    def allowed(self, population: Population) -> BoolArray:
        """Which of these choices are valid; by default all."""
        return np.ones(len(population), np.bool_)

    def population(self) -> Population:
        """All allowed choices."""
        everything = all_of(self.knobs)
        return everything.where(self.allowed(everything))

    def check(self, choice: Choice) -> None:
        """Raises ``ScheduleError`` for a choice outside of the space."""
        names = tuple(knob.name for knob in self.knobs)
        if len(choice) != len(names):
            raise ScheduleError(f"{self.name}: {choice} has not one number for each of {', '.join(names)}")
        for knob, number in zip(self.knobs, choice, strict=True):
            if number not in knob.values:
                raise ScheduleError(f"{self.name}: {knob.name}={number} is none of {knob.values}")
        if not self.allowed(Population(names, np.array([choice], np.int64)))[0]:
            given = ", ".join(f"{name}={number}" for name, number in zip(names, choice, strict=True))
            reason = "they need more registers than there are, or copy what can't be copied"
            raise ScheduleError(f"{self.name}: {given} do not go together: {reason}")


@dataclass(frozen=True, slots=True)
class Nests:
    """All nests of a kernel, after inlining: the compiler's choices."""

    nests: tuple[Nest, ...]

    @property
    def knobs(self) -> tuple[Knob[int], ...]:
        """The knobs of all nests, with the nest's name as prefix."""
        return tuple(Knob(f"{nest.name}.{knob.name}", knob.values) for nest in self.nests for knob in nest.knobs)

    def apply(self, s: Schedule, choices: Sequence[Choice]) -> None:
        """Schedule ``s``, unchanged since the nests were found in it, by a choice for each of them.

        Raises ``ScheduleError`` for choices of other nests, before anything is changed.
        """
        if len(choices) != len(self.nests):
            raise ScheduleError(f"{len(choices)} choices are not one for each of {_listed(self.nests)}")
        for nest, choice in zip(self.nests, choices, strict=True):
            nest.check(choice)
        chosen = sorted(zip(self.nests, choices, strict=True), key=lambda pair: not pair[0].changes_operands)
        for nest, choice in chosen:
            nest.schedule(s, dict(zip((knob.name for knob in nest.knobs), choice, strict=True)))

    def generate(self, s: Schedule, config: Config) -> None:
        """The same with the decisions of ``config`` (``Generator``)."""
        decisions = map(config.decide, self.knobs)
        self.apply(s, [tuple(next(decisions) for _ in nest.knobs) for nest in self.nests])


def _listed(nests: Sequence[Nest]) -> str:
    return f"the {len(nests)} nests {', '.join(nest.name for nest in nests)}"


VECTORS = (1, 2, 4)
"""Numbers of registers in a row of a tile: LLVM widens a vector of three registers to four, and then spills."""
PANELS = (1, 2, 3, 4)
LEAST_LANES = 4
"""Lanes of the narrowest registers that there are (SSE2, NEON), of 32-bit elements."""


MOST_WRITTEN_ROWS = 7
"""Rows of one vector each, of which a tile may have several steps written out."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The vector registers of a processor: their number, and elements per register."""

    count: int
    lanes: int

    @staticmethod
    def of(block: Block, target: Target) -> "Registers":
        """The registers of ``target``, for the result type of ``block``."""
        itemsize = max(region.buffer.dtype.itemsize for region in block.writes)
        return Registers(target.vector_registers, target.lanes(8 * itemsize))


@dataclass(frozen=True, slots=True)
class Tiles(Nest):
    """A register tile over a whole reduction, with its consumers fused.

    Knobs: ``lanes``, ``rows`` and ``panels`` of the tile; ``order``: of the loops around it (``Order``); ``unroll``:
    what of the reduction is written out (``Unroll``); ``pack``: what of the panel is copied first (``Pack``);
    ``prefetch``: the cache level that the panel is prefetched into, or 0; ``slices``: of the reduction
    (``reduction_slices``).
    """

    roles: Roles
    facts: TileFacts
    registers: Registers
    parallel: bool
    stream_ahead: int
    """Prefetch distance of a stream, in bytes."""
    instruction: TensorIntrinsic | None = None
    """Its accumulators are the vectors of the tile, and it sums over the last axis of the reduction."""

    @staticmethod
    def of(
        s: Schedule,
        anchor: BlockRef,
        roles: Roles,
        target: Target,
        parallel: bool,
        may_unroll: bool,
        skipping: Skipping = WRITTEN,
    ) -> "Tiles":
        """The nest of a reduction block of ``s``."""
        block = block_at(s.program, anchor).stmt
        registers, ahead = Registers.of(block, target), target.machine.stream_ahead
        facts = TileFacts.of(block, roles, s.program, skipping)
        if isinstance(roles, Contraction):
            level = min(target.machine.panels_ahead, 2)
            width = (0, facts.panel_width, 0 if facts.slidings else facts.vector_block)[level]
            is_tile = 0 < width <= VECTORS[-1] * registers.lanes
            is_next = is_tile and has_next_panel(block, roles, several=level == 2)
            steps = most_steps(block, roles.rows, target.machine.unrolled_steps)
            taps = facts.taps_of_rows(last_loop(block), target.machine.unrolled_taps)
            facts = replace(facts, next_panel=is_next, steps=steps, written_taps=taps)
        pack = [Pack.NOTHING]
        pack += [Pack.MATRIX] if facts.is_row_major else []
        pack += [Pack.STRIPS] if facts.row_length >= facts.vector > registers.lanes and facts.rows > 1 else []
        unroll = Unroll.EVERYTHING if may_unroll else Unroll.INNERMOST
        is_short = may_unroll or facts.steps > 1 or 1 < facts.innermost <= target.machine.unrolled_taps
        may_write = is_short or facts.written_taps is not None
        knobs = (*tile_knobs(facts, registers), Knob("unroll", (0, unroll.value) if may_write else (0,)))
        prefetch = Knob("prefetch", (0, *CACHES) if facts.streamed else (0,))
        near = int(target.machine.cache_part * target.l2_bytes)
        slices = slice_counts(block, facts, near) if isinstance(roles, Contraction) else SLICES[:1]
        knobs = (*knobs, Knob("pack", tuple(way.value for way in pack)), prefetch, Knob("slices", slices))
        return Tiles(anchor.name, knobs, roles, facts, registers, parallel, ahead)

    def without(self, name: str) -> "Tiles":
        """The same with the knob ``name`` at 1."""
        return replace(self, knobs=tuple(Knob(name, (1,)) if knob.name == name else knob for knob in self.knobs))

    def values(self, name: str) -> tuple[int, ...]:
        """The values of the knob ``name``."""
        return next(knob.values for knob in self.knobs if knob.name == name)

    @property
    def anchor(self) -> BlockRef:
        """The reduction block."""
        return BlockRef(self.name)

    @property
    def changes_operands(self) -> bool:
        """See ``Nest``: padding that is left out is not made."""
        return bool(self.facts.slidings)

    def allowed(self, population: Population) -> BoolArray:
        """Checks that accumulators, a row of the panel and a broadcast fit in the registers, also where steps are
        written out, and that what is copied can be."""
        lanes, panels = population.column("lanes"), population.column("panels")
        pack, prefetch, slices = (population.column(name) for name in ("pack", "prefetch", "slices"))
        copies = may_copy(pack, prefetch, slices, lanes, panels, self.facts.vector)
        in_order = (slices == 1) | (population.column("order") != Order.ROWS_COLUMNS.value)
        return fits(population, self.registers) & copies & in_order & self._may_write_steps(population, lanes, panels)

    def _may_write_steps(self, population: Population, lanes: IntArray, panels: IntArray) -> BoolArray:
        """Of many rows of one vector each, LLVM computes several steps side by side, with accumulators in memory."""
        is_spilled = (lanes * panels <= self.registers.lanes) & (population.column("rows") > MOST_WRITTEN_ROWS)
        may_write = ~is_spilled | (population.column("unroll") == 0) | np.bool_(not self.facts.steps)
        return may_write & self._may_write_taps(population, lanes, panels)

    def _may_write_taps(self, population: Population, lanes: IntArray, panels: IntArray) -> BoolArray:
        """Taps are written out for all rows of a window together: LLVM keeps what these read in registers."""
        taps, rows = self.facts.written_taps, population.column("rows")
        if taps is None:
            return np.ones(len(population), np.bool_)
        columns = -(-lanes // self.registers.lanes) * panels
        is_whole = (rows >= self.facts.rows) & ((rows + 1) * columns + taps.positions <= self.registers.count)
        return (population.column("unroll") == 0) | is_whole

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """See ``Nest``."""
        block = block_at(s.program, self.anchor).stmt
        outer = outer_order(axes_of(block, IterKind.SPATIAL), self.roles, Order(values["order"]))
        reduction = axes_of(block, IterKind.REDUCE)[: None if self.instruction is None else -1]
        tile = Tile(values["lanes"], values["rows"], values["panels"])
        loops = {Unroll.NOTHING: 0, Unroll.EVERYTHING: len(reduction), Unroll.INNERMOST: 1}
        written_out = loops[Unroll(values["unroll"])]
        reduction = self._ordered(block, reduction, tile, bool(written_out))
        steps: dict[int, int] = {}
        if written_out and self.facts.steps:
            reduction, steps, written_out = with_written_steps(block, reduction, self.facts.steps)
        plan = Plan(tile, outer, reduction, {}, steps, written_out, self.instruction, values["slices"])
        self.go(s, plan, Pack(values["pack"]), values["prefetch"])

    def _ordered(self, block: Block, reduction: Sequence[int], tile: Tile, is_written: bool) -> tuple[int, ...]:
        """The order of the loops of the ``reduction``: those with tests of padding outermost, as one test then serves
        all channels; taps that are written out innermost."""
        own = self.facts.written_taps if is_written else None
        if own is not None:
            reduction = sorted(reduction, key=lambda axis: block.axes[axis].extent != ONE)
        groups = self._together(tile, {own.tap} if own is not None else set[int]())
        taps = {sliding.tap for _, sliding in self.facts.slidings}
        if self.facts.is_sequential or not self._skips_padding(groups) or reduction[-1] not in taps:
            return tuple(reduction)
        return tuple(sorted(reduction, key=lambda axis: axis not in taps or (own is not None and axis == own.tap)))

    def _together(self, tile: Tile, written: Collection[int]) -> dict[str, int]:
        """How many neighbours keep or leave a term together, by knob: each row on its own if the taps that it slides
        over are ``written`` out for all rows."""
        own = [sliding for knob, sliding in self.facts.slidings if knob == "rows" and sliding.tap in written]
        is_own = bool(own) and tile.rows >= self.facts.rows
        return {"lanes": tile.lanes, "rows": 1 if is_own else tile.rows, "panels": tile.panels}

    def go(self, s: Schedule, plan: Plan, pack: Pack, prefetch: int) -> None:
        """Schedule by ``plan``; ``prefetch``: the value of this knob."""
        if pack is Pack.MATRIX and isinstance(self.roles, Contraction):
            pack_matrix(s, self.anchor, self.roles.panel, plan.tile.lanes)
        summing = self.anchor
        if plan.slices == 1:
            self._skip_padding(s, self.anchor, plan)
            schedule_tiles(s, self.anchor, self.roles, plan, self.parallel)
        else:
            own = in_slices(s, self.anchor, plan.slices)
            summing = own.block
            self._skip_padding(s, own.block, plan)
            schedule_slices(s, self.anchor, own, self.roles, plan, self.parallel)
        if pack is Pack.STRIPS and isinstance(self.roles, Contraction):
            pack_strips(s, self.anchor, self.roles)
        if not prefetch or not isinstance(self.roles, Contraction):
            return
        if prefetch == PANEL_CACHE and self._asks_for_panels(plan):
            ask_for_panels(s, summing, self.roles, plan.tile, plan.slices)
        elif plan.slices > 1 and plan.tile.lanes >= self.facts.vector_block:  # the same slice of the next panels
            width = plan.tile.lanes * plan.tile.panels
            s.prefetch(self.roles.panel, self.facts.itemsize * self.facts.reduction * width, prefetch)
        else:
            lanes = min(plan.tile.lanes, self.facts.vector)
            piece = self.facts.itemsize * (lanes - 1) + LINE_BYTES  # the last line, wherever a piece begins
            ahead = piece if lanes < self.facts.row_length else self.stream_ahead
            s.prefetch(self.roles.panel, ahead, prefetch)

    def _asks_for_panels(self, plan: Plan) -> bool:
        """Whether each tile of rows asks for a part of the next panel, rather than for what comes soon."""
        is_plain = not plan.blocks and self.instruction is None
        shares = self.facts.shares_panels(np.array(plan.tile.lanes), np.array(plan.tile.rows))
        return is_plain and plan.outer[-1] == self.roles.rows and bool(shares)

    def _skips_padding(self, groups: Mapping[str, int]) -> bool:
        """Whether tiles leave out terms that read padding, if so many neighbours leave them out together."""
        return self.facts.remaining(groups) <= 1 - self.facts.skipping.least

    def _skip_padding(self, s: Schedule, summing: BlockRef, plan: Plan) -> None:
        groups = self._together(plan.tile, plan.written_axes)
        if self._skips_padding(groups):
            knobs, axes = knobs_of(self.roles), block_at(s.program, summing).stmt.axes
            s.skip_padding(summing, [groups.get(knobs.get(place, ""), 1) for place, _ in enumerate(axes)])


def tile_knobs(facts: TileFacts, registers: Registers) -> tuple[Knob[int], ...]:
    """The shapes and orders of tiles."""
    # Rows that a window slides along share their reads, so more of them are better than wider ones. Lanes with a mask
    # have it in each term.
    least = registers.lanes if facts.is_window else 1
    widest = 1 if facts.is_window and facts.overlap.taps > 1 else max(VECTORS)
    vectors = [v for v in VECTORS if v == 1 or (v <= widest and facts.vector >= (v - 1) * registers.lanes + least)]
    lanes = [v * registers.lanes for v in vectors] if 2 * facts.vector > registers.lanes else [_narrow(facts.vector)]
    fitting = tuple(number for number in lanes if facts.panel_width % number == 0)
    rows = tuple(range(1, min(registers.count, max(facts.rows, 1)) + 1))
    panels = tuple(number for number in PANELS if number <= max(facts.panels, 1))
    is_wide = facts.vector * facts.panels > registers.lanes
    rows_outside = (Order.ROWS_COLUMNS,) if is_wide and facts.rows > 1 else ()
    panel_first = (Order.PANEL_FIRST,) if is_wide and facts.places > 1 and not facts.is_window else ()
    orders = tuple(order.value for order in (Order.COLUMNS_ROWS, *rows_outside, *panel_first))
    shapes = Knob("lanes", fitting or (lanes[0],)), Knob("rows", rows), Knob("panels", panels)
    return *shapes, Knob("order", orders)


def _narrow(extent: int) -> int:
    """Lanes for an axis that fills at most half of a register: narrower registers, rather than masks."""
    return max(LEAST_LANES, 1 << (extent - 1).bit_length())


def fits(population: Population, registers: Registers) -> BoolArray:
    """Whether the accumulators of tiles, the vectors of a row and a broadcast fit in the registers."""
    columns = -(-population.column("lanes") // registers.lanes) * population.column("panels")
    return np.less_equal((population.column("rows") + 1) * columns + 1, registers.count)


def may_copy(
    pack: IntArray, prefetch: IntArray, slices: IntArray, lanes: IntArray, panels: IntArray, vector: int
) -> BoolArray:
    """Which values of these knobs go together: a copy of a matrix is not prefetched, strips that are copied are of
    one panel, and not all of its ``vector`` columns, and slices are of what is not copied."""
    is_matrix, are_strips = (np.equal(pack, way.value) for way in (Pack.MATRIX, Pack.STRIPS))
    is_copied = is_matrix | are_strips
    strips = ~are_strips | ((lanes < vector) & (panels == 1))
    return ~(is_matrix & (prefetch > 0)) & strips & (~is_copied | (slices == 1))


LIVE = 4
"""Maximum values in registers at a time for few operations: a count of a kernel's values, not of registers."""


@dataclass(frozen=True, slots=True)
class Lanes(Nest):
    """Vectorized loops, ``vectors`` registers at a time: elementwise blocks, rows, transforms."""

    how: Callable[[Schedule, BlockRef, int, bool], None]
    """Schedules the block for a number of lanes, in parallel or not."""
    width: int
    """Elements of a register."""
    parallel: bool
    live: int
    """Values in registers at a time, for each register of lanes."""

    @staticmethod
    def of(
        s: Schedule,
        block: Block,
        how: Callable[[Schedule, BlockRef, int, bool], None],
        target: Target,
        parallel: bool,
        live: int = LIVE,
        most: int | None = None,
    ) -> "Lanes":
        """The nest of ``block`` of ``s``; registers hold elements of its widest type.

        ``most``: maximum number of lanes, if limited.
        """
        widest = max(region.buffer.dtype.itemsize for region in (*block.reads, *block.writes))
        width = max(1, target.vector_bits // (8 * widest))
        vectors = tuple(v for v in (1, 2, 4, 8) if v == 1 or most is None or v * width <= most)
        points = Extents(s.program.dims).points(block.axes)
        return Lanes(block.name, (Knob("vectors", vectors),), how, width, parallel, live, points=points)

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """See ``Nest``."""
        self.how(s, BlockRef(self.name), values["vectors"] * self.width, self.parallel)
