"""The roles of a program's blocks: what decides in which memory each result lives.

The *anchor* is the block that multiplies or reduces, if there is one. Blocks that only copy parameters fetch: the
anchor's operands to inp and wgt, all others to acc. The last block stores, and the rest computes on acc.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Block, Buffer, Store
from tilewright.loops.program import Program
from tilewright.schedule.tree import all_blocks, buffers_read, buffers_written
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select
from tilewright.symbolic.operations import BinaryOp


@dataclass(frozen=True, slots=True)
class Roles:
    """The blocks of a program by what they do."""

    last: Block
    anchor: Block | None
    factors: tuple[Read, Read] | None
    """What the anchor multiplies, data first; None if it does not."""
    fetching: tuple[Block, ...]
    computing: tuple[Block, ...]
    """Those on acc, the anchor included."""
    is_copy: bool
    """Whether the last block only stores what another one computed."""


def roles_of(program: Program) -> Roles:
    """The roles. Raises ``Unsupported`` for several results or reductions."""
    blocks = all_blocks(program.body)
    if len(program.results) != 1:
        raise Unsupported(f"{program.name} has {len(program.results)} results; give each a program of its own")
    last = next(block for block in blocks if program.results[0] in buffers_written(block))
    reducing = _reducing(program)
    if len(reducing) > 1:
        names = ", ".join(block.name for block in reducing)
        raise Unsupported(f"{names} reduce; the template has one reduction: use sketches (te.autoschedule)")
    anchor = reducing[0] if reducing else None
    fetching = tuple(block for block in blocks if block is not last and fetches(block, program.params))
    computing = tuple(block for block in blocks if block is not last and block not in fetching)
    stored = copied(last)
    is_copy = stored is not None and stored.source not in program.params
    return Roles(last, anchor, None if anchor is None else factors_of(anchor), fetching, computing, is_copy)


def has_template(program: Program) -> bool:
    """Whether there is at most one reduction, and one result: what ``tiled.schedule_tiles`` has a schedule for."""
    return len(program.results) == 1 and len(_reducing(program)) <= 1


def _reducing(program: Program) -> list[Block]:
    return [b for b in all_blocks(program.body) if any(axis.kind is IterKind.REDUCE for axis in b.axes)]


def fetches(block: Block, params: Sequence[Buffer]) -> bool:
    """Whether a block only copies a parameter."""
    source = copied(block)
    return source is not None and source.source in params


def copied(block: Block) -> Read | None:
    """What a block copies, perhaps with zeros around; None if it does more."""
    if block.init is not None or not isinstance(block.body, Store):
        return None
    value = block.body.value
    if isinstance(value, Select) and isinstance(value.b, Const):
        value = value.a
    return _read(value)


def factors_of(anchor: Block) -> tuple[Read, Read] | None:
    """The two factors of a sum of products."""
    match anchor.body:
        case Store(value=Binary(BinaryOp.ADD, Read(), Binary(BinaryOp.MUL, a, b))):
            first, second = _read(a), _read(b)
            return None if first is None or second is None else (first, second)
        case _:
            return None


def _read(value: Expr) -> Read | None:
    while isinstance(value, Cast):
        value = value.a
    return value if isinstance(value, Read) else None


def parameters_read(block: Block, program: Program) -> tuple[Buffer, ...]:
    """The parameters that a block reads, in their order."""
    read = buffers_read(block)
    return tuple(buffer for buffer in program.inputs if buffer in read)
