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


def may_pack(program: Program, roles: Roles) -> bool:
    """Whether the panel comes from a row-major matrix at run time."""
    if not isinstance(roles, Contraction) or roles.rows is None:
        return False
    if not roles.panel_is_contiguous or roles.panels is not None:
        return False
    return any(p.name == roles.panel and len(p.shape) == 2 for p in program.params)


def row_length(program: Program, block: Block, roles: Roles) -> int:
    """The elements of a panel between two terms of a sum, if it is a parameter that is no matrix; else 0."""
    if not isinstance(roles, Contraction) or not roles.panel_is_contiguous:
        return 0
    extents, found = Extents(program.dims), [region for region in block.reads if region.buffer.name == roles.panel]
    terms = {axis.var for axis in block.axes if axis.kind is IterKind.REDUCE and axis.extent != ONE}
    for region in found if found[0].buffer in program.params and len(found[0].ranges) > 2 else ():
        places = [place for place, (start, _) in enumerate(region.ranges) if start in terms]
        return prod(map(extents.of, region.buffer.shape[max(places, default=-1) + 1 :])) if places else 0
    return 0
