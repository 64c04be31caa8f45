"""Panels whose rows lie apart: images in plain layout, and matrices that are known only at run time.

A strip of such a panel is a piece of each row, and each piece is somewhere else: no processor foresees where the next
strip comes from, which is beside this one.
"""

from math import prod

from tilewright.kernels.contraction import Contraction, Extents, Roles
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE

_MATRIX = 2
"""Dimensions of a matrix."""


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
    terms = {axis.var for axis in block.axes if axis.kind is IterKind.REDUCE and axis.extent != ONE}
    places = [place for place, start in enumerate(starts) if start in terms]
    return prod(map(Extents(program.dims).of, shape[places[-1] + 1 :])) if places else 0
