"""What a reduction's program says about the time of its register tiles: extents, bytes, reuse, padding."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray

from tilewright.kernels.contraction import Contraction, Extents, Roles
from tilewright.kernels.padding import Sliding, slidings
from tilewright.kernels.panel_rows import may_pack, row_length
from tilewright.kernels.panels_ahead import LINE_BYTES
from tilewright.kernels.transposes import crossed_axis
from tilewright.loops.ir import Block, Buffer, Store
from tilewright.loops.program import Program
from tilewright.schedule.tree import consumers
from tilewright.space.population import BoolArray
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, Binary, Const, Expr, Read, Select, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, reads_in, substitute, walk


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap of neighbouring rows: rows ``stride`` apart read ``taps`` positions each, in one dimension."""

    stride: int
    taps: int


@dataclass(frozen=True, slots=True)
class Skipping:
    """When tiles leave out terms that read padding."""

    least: float
    """The share of the terms that is worth it: each test costs code, and what is left out is not asked for ahead."""
    by_tile: bool
    """Whether only terms count that are padding for any tile, of whatever size."""


WRITTEN = Skipping(0.1, by_tile=False)
"""For terms that are written out."""
CALLED, CALLED_FAR = Skipping(0.05, by_tile=True), Skipping(0.1, by_tile=True)
"""For calls of an instruction, which are steps of loops, by panels that stay near, and by those that do not."""


@dataclass(frozen=True, slots=True)
class TileFacts:
    """Facts that determine a register tile's time: extents of the axes (1 if missing), bytes, reuse."""

    vector: int
    rows: int
    panels: int
    groups: int
    """The product of all other spatial axes that the panel depends on."""
    places: int
    """The product of all other spatial axes."""
    reduction: int
    itemsize: int
    overlap: Overlap = Overlap(1, 1)
    is_window: bool = False
    """Whether both operands have lanes, so that nothing is broadcast."""
    operands: int = 2
    """Number of buffers that are read along the reduction."""
    streamed: int = 0
    """Bytes of the panel if it is a parameter that is read once for all rows; else 0."""
    panel_width: int = 0
    """Width of the panels that the operand is packed in; 0 if it is not packed."""
    is_row_major: bool = False
    """Whether the panel comes from a row-major matrix at run time."""
    crosses: bool = False
    """Whether the result is transposed when stored: each lane of a tile is then a separate row."""
    selects: bool = False
    """Whether a value is selected by its position (padding)."""
    row_bytes: int = 0
    """Stride between rows of the broadcast operand; 0 if unknown."""
    slidings: tuple[tuple[str, Sliding], ...] = ()
    """The axes along which terms read padding, if there are many such; each with the knob whose neighbours leave out a
    term together, if there is one."""
    skipping: Skipping = WRITTEN
    """When tiles leave these terms out."""
    written_taps: Sliding | None = None
    """The taps of a window along the rows, if they may be written out: each row of a tile then leaves out its own."""
    next_panel: bool = False
    """Whether tiles of rows may ask for parts of the next panel."""
    innermost: int = 0
    """Extent of the innermost loop of the reduction, if rows of a window that overlap slide along it; else 0."""
    steps: int = 0
    """The iterations of the innermost loop of a contraction's reduction that may be written out; 0 if none may, as of
    one that asks for a line of the next panel in each step."""
    row_length: int = 0
    """Elements between the terms of a sum in a panel that is a parameter: tiles of fewer read pieces that lie apart."""
    streamed_again: int = 0
    """Bytes of the panel if it is a parameter that is read once for each of an open number of places; else 0."""
    window_bytes: int = 0
    """Bytes of what a window slides over, if it is a parameter; else 0."""
    places_bytes: int = 0
    """Bytes of the data of all places, whose windows overlap along rows and across them; 0 if unknown."""
    slices: int = 1
    """The number of slices of the whole reduction, of which ``reduction`` is one."""

    @property
    def is_sequential(self) -> bool:
        """Whether the terms of a sum lie one after the other in a panel that is a parameter, such as filters in blocks.
        In another order, steps would read parts of lines that lie apart."""
        return 0 < self.row_length <= self.vector

    @property
    def vector_block(self) -> int:
        """The width of the blocks that the panel lies in, each with all terms of its sums; 0 if it lies in none."""
        return self.panel_width or (self.row_length if self.is_sequential else 0)

    def shares_panels(self, lanes: NDArray[np.int64], rows: NDArray[np.int64]) -> BoolArray:
        """Whether tiles of this size, all rows of a panel after the other, ask for the next panel together: a line in a
        step suffices."""
        tiles = -(-self.rows // rows)
        is_whole = np.equal(lanes, self.vector_block or lanes)
        return self.next_panel & (tiles > 1) & is_whole & (lanes * self.itemsize <= LINE_BYTES * tiles)

    @staticmethod
    def of(block: Block, roles: Roles, program: Program, skipping: Skipping = WRITTEN) -> "TileFacts":
        """The facts of a reduction block of ``program``."""
        extents = Extents(program.dims)

        def extent(axis: int | None) -> int:
            return 1 if axis is None else extents(block.axes[axis])

        own = (roles.vector, roles.rows, roles.panels)
        others = [p for p, a in enumerate(block.axes) if p not in own and a.kind is IterKind.SPATIAL]
        along = roles.panel_axes if isinstance(roles, Contraction) else frozenset[int]()
        places = [block.axes[p] for p in others if p not in along]
        return TileFacts(
            extent(roles.vector),
            extent(roles.rows),
            extent(roles.panels),
            extents.points(block.axes[p] for p in others if p in along),
            extents.points(places),
            extents.points(axis for axis in block.axes if axis.kind is IterKind.REDUCE),
            block.writes[0].buffer.dtype.itemsize,
            _overlap(block, roles, extents),
            not isinstance(roles, Contraction),
            max(1, len({read.source.name for read in _operands(block)})),
            _streamed(roles, program) if extents.points(places) == 1 else 0,
            _panel_width(block, roles),
            may_pack(program, roles),
            any(crossed_axis(reader, 1) is not None for reader in consumers(program, block)),
            any(isinstance(node, Select) and not node.condition.has_reads for node in _values(block)),
            _row_bytes(block, roles, extents),
            _slidings(program, block, roles, skipping),
            skipping=skipping,
            innermost=0 if isinstance(roles, Contraction) else _innermost(block, roles, extents),
            row_length=row_length(program, block, roles),
            streamed_again=_streamed(roles, program) if _are_open(places) else 0,
            window_bytes=0 if isinstance(roles, Contraction) else _window_bytes(block, program),
        )

    def remaining(self, sizes: Mapping[str, int]) -> float:
        """The share of the terms that tiles of these ``sizes``, by knob, do not leave out as padding."""
        return prod(sliding.share(sizes.get(knob, 1)) for knob, sliding in self.slidings)

    def taps_of_rows(self, axis: int | None, most: int) -> Sliding | None:
        """The taps along ``axis`` of the block, at most ``most``, if rows slide over these, and some read padding."""
        found = (one for knob, one in self.slidings if knob == "rows" and one.tap == axis)
        return next((one for one in found if one.taps <= most), None)


def _slidings(program: Program, block: Block, roles: Roles, skipping: Skipping) -> tuple[tuple[str, Sliding], ...]:
    knobs, found = knobs_of(roles), slidings(program, block)
    made = tuple((knobs.get(place, ""), sliding) for place, sliding in found.items())
    kept = (sliding.share(1) for knob, sliding in made if not (knob and skipping.by_tile))
    return made if prod(kept) <= 1 - skipping.least else ()


def knobs_of(roles: Roles) -> dict[int | None, str]:
    """The knobs for the extents of a tile, by the axes."""
    return {roles.vector: "lanes", roles.rows: "rows", roles.panels: "panels"}


def _are_open(axes: Iterable[IterVar]) -> bool:
    """Whether their points are several, and how many is known at run time only."""
    extents = [axis.extent for axis in axes if axis.extent != ONE]
    return bool(extents) and not any(isinstance(extent, Const) for extent in extents)


def _streamed(roles: Roles, program: Program) -> int:
    """Bytes of the panel, if it is a parameter."""
    return max(param_bytes(program, {roles.panel} if isinstance(roles, Contraction) else set()), default=0)


def _window_bytes(block: Block, program: Program) -> int:
    """Bytes of the largest operand that is a parameter."""
    return max(param_bytes(program, {read.source.name for read in _operands(block)}), default=0)


def param_bytes(program: Program, names: Collection[str]) -> Iterator[int]:
    """The bytes of each of the parameters with these ``names``."""
    extent = Extents(program.dims).of
    return (p.dtype.itemsize * prod(map(extent, p.shape)) for p in program.params if p.name in names)


def _values(block: Block) -> Iterator[Expr]:
    if isinstance(block.body, Store):
        yield from walk(block.body.value)


def _operands(block: Block) -> list[Read]:
    """The operands of a reduction other than its own result."""
    written = {region.buffer.name for region in block.writes}
    body = block.body
    return [r for r in reads_in(body.value) if r.source.name not in written] if isinstance(body, Store) else []


def _panel_width(block: Block, roles: Roles) -> int:
    """The width of the panels that an operand is packed in; 0 if it is not."""
    if not isinstance(roles, Contraction):
        return 0
    axis = block.axes[roles.vector].var
    for read in _operands(block):
        match read.indices[-1] if read.source.name == roles.panel and read.indices else None:
            case Binary(BinaryOp.MOD, place, Const(int(width))) if place == axis:
                return width
            case _:
                pass
    return 0


def _overlap(block: Block, roles: Roles, extents: Extents) -> Overlap:
    """The dimensions from the first index that depends on the rows and on a reduction axis."""
    reduced = {axis.var: axis for axis in block.axes if axis.kind is IterKind.REDUCE}
    if roles.rows is not None:
        row = block.axes[roles.rows].var
        for index in (index for read in _operands(block) for index in read.indices):
            taps = [reduced[v] for v in free_vars(index) if v in reduced]
            if row in free_vars(index) and taps:
                return Overlap(_stride(index, row), extents.points(taps))
    return Overlap(1, 1)


def _innermost(block: Block, roles: Roles, extents: Extents) -> int:
    """The extent of the last axis of the reduction, if the rows slide along it."""
    *_, last = [axis for axis in block.axes if axis.kind is IterKind.REDUCE]
    row = None if roles.rows is None else block.axes[roles.rows].var
    used = [free_vars(index) for read in _operands(block) for index in read.indices]
    return extents(last) if any(row in variables and last.var in variables for variables in used) else 0


def _row_bytes(block: Block, roles: Roles, extents: Extents) -> int:
    """Stride between rows of the broadcast operand; 0 if unknown."""
    if not isinstance(roles, Contraction) or roles.rows is None:
        return 0
    row = block.axes[roles.rows].var
    for read in _operands(block):
        if read.source.name == roles.broadcast and isinstance(read.source, Buffer):
            shape, steps = read.source.shape, [_step(index, row) or 0 for index in read.indices]
            inner = (prod(map(extents.of, shape[place + 1 :])) for place in range(len(steps)))
            return read.source.dtype.itemsize * sum(map(mul, steps, inner))
    return 0


def _stride(index: Expr, row: Var) -> int:
    """The increase of ``index`` from a row to the next; 1 if unknown."""
    return max(1, _step(index, row) or 1)


def _step(index: Expr, row: Var) -> int | None:
    """The change of ``index`` from the first row to the second, if it is a number."""
    zeros = {v: const(0) for v in free_vars(index)}
    first, second = (substitute(index, {**zeros, row: const(at)}) for at in (0, 1))
    if isinstance(first, Const) and isinstance(second, Const):
        return abs(int(second.value) - int(first.value))
    return None
