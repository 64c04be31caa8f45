"""Panels whose rows lie apart: images in plain layout, and matrices that are known only at run time.

A strip of such a panel is a piece of each row, and each piece is somewhere else: no processor foresees where the next
strip comes from, which is beside this one.
"""

from enum import Enum
from math import prod

from tilewright.kernels.contraction import Contraction, Extents, Roles, is_block
from tilewright.kernels.schedules import ref, schedule_elementwise
from tilewright.loops.ir import Block, LoopKind
from tilewright.loops.memory import GLOBAL
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, block_at, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE
from tilewright.symbolic.traversal import free_vars

_MATRIX = 2
"""Dimensions of a matrix."""


class Pack(Enum):
    """What is copied of a panel whose rows lie apart, so that tiles read it from one end to the other."""

    NOTHING = 0
    MATRIX = 1
    """All of it, in panels, before the first tile."""
    STRIPS = 2
    """Each strip, before the tiles of rows that read it."""


def may_pack(program: Program, roles: Roles) -> bool:
    """Whether the panel comes from a row-major matrix at run time."""
    if not isinstance(roles, Contraction) or roles.rows is None:
        return False
    if not roles.panel_is_contiguous or roles.panels is not None:
        return False
    return any(p.name == roles.panel and len(p.shape) == _MATRIX for p in program.params)


def row_length(program: Program, block: Block, roles: Roles) -> int:
    """The elements of a panel between two terms of a sum, if it is a parameter, not packed, and no matrix; else 0."""
    if not isinstance(roles, Contraction) or not roles.panel_is_contiguous:
        return 0
    region, lanes = next(r for r in block.reads if r.buffer.name == roles.panel), block.axes[roles.vector].var
    starts, shape = [start for start, _ in region.ranges], region.buffer.shape
    if region.buffer not in program.params or len(starts) <= _MATRIX or starts[-1] != lanes:
        return 0
    terms = [axis for axis in block.axes if axis.kind is IterKind.REDUCE and axis.extent != ONE]
    places = [place for place, start in enumerate(starts) if any(is_block(start, axis) for axis in terms)]
    return prod(map(Extents(program.dims).of, shape[places[-1] + 1 :])) if places else 0


def pack_matrix(s: Schedule, anchor: BlockRef, panel: str, lanes: int) -> None:
    """First copy the matrix that ``anchor`` reads as its panel into panels of ``lanes`` columns."""
    copy = s.cache_read(anchor, panel, GLOBAL)
    packed = block_at(s.program, copy).stmt.writes[0].buffer.name
    s.transform_layout(copy, packed, f"k, n -> n // {lanes}, k, n % {lanes}")
    schedule_elementwise(s, copy, lanes, parallel=True)


def pack_strips(s: Schedule, anchor: BlockRef, roles: Contraction) -> None:
    """Copy each strip of the panel of ``anchor``, whose tiles are scheduled, before they read it."""
    columns = free_vars(block_at(s.program, anchor).stmt.bindings[roles.vector])
    loops = [ref(loop) for loop in loops_of(s.program, anchor)]
    at = next(loop for loop in loops if loop.name in {var.name for var in columns})
    for loop in loops_of(s.program, anchor)[loops.index(at) + 1 :]:
        if loop.kind is LoopKind.PARALLEL:  # a region for each strip would cost more than it saves
            s.serial(ref(loop))
    copy = s.cache_read(anchor, roles.panel, GLOBAL)
    s.compute_at(copy, at)
    s.vectorize(s.get_loops(copy)[-1])
