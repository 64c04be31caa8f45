"""``lower_virtual_thread``: interleaves the virtual threads of a loop, block by block, to hide latencies.

``for v in vthread(2): alloc T[4]; fetch(v); use(v)`` becomes ``alloc T[2, 4]; for v in unrolled(2): fetch(v); for v in
unrolled(2): use(v)``: one thread computes while another one waits. (Chen et al., OSDI 2018.)
"""

import dataclasses
from collections.abc import Mapping

from tilewright.base.names import fresh_name
from tilewright.loops import visit
from tilewright.loops.ir import Alloc, Block, Buffer, If, Loop, LoopKind, Seq, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import seq
from tilewright.schedule.blocks import axis_vars, moved_accesses, recovered
from tilewright.schedule.loop_kinds import require_few_copies
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    LoopRef,
    block_at,
    bounds_at,
    buffers_read,
    buffers_written,
    depends_on,
    loop_at,
    refuse,
    rewrite,
    substitute_loops,
    variable_names,
)
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Var


def lower_virtual_thread(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """Move ``loop``, which is bound to ``vthread``, around each block in it, unrolled; allocations get a dimension.

    Refuses if the number of iterations of a loop inside depends on the virtual thread.
    """
    place = loop_at(program, loop)
    if place.stmt.kind is not LoopKind.VIRTUAL_THREAD:
        raise refuse(f"`{loop}` is {place.stmt.kind.value}; bind it to vthread first", loop)
    lowered = rewrite(program, place, _Interleaving(program, place).visit(place.stmt.body, {}))
    require_few_copies(lowered, loop)
    return lowered, None


class _Interleaving:
    def __init__(self, program: Program, place: Location[Loop]) -> None:
        self._program = program
        self._loop = place.stmt
        self._taken = variable_names(program)

    def visit(self, stmt: Stmt, owned: Mapping[Buffer, Buffer]) -> Stmt:
        """``stmt`` for all virtual threads; ``owned``: the buffers of one thread, and their replacements for all."""
        match stmt:
            case Seq(statements):
                return seq(*(self.visit(inner, owned) for inner in statements))
            case Alloc(buffer, body):
                shape = (self._loop.extent, *buffer.shape)
                shared = dataclasses.replace(buffer, shape=shape)
                return Alloc(shared, self.visit(body, {**owned, buffer: shared}))
            case Loop():
                if depends_on(stmt.extent, [self._loop.var]):
                    raise refuse(f"`{stmt.var}` has {stmt.extent} iterations, which differ", LoopRef(stmt.var.name))
                return dataclasses.replace(stmt, body=self.visit(stmt.body, owned))
            case If():
                raise refuse(f"the condition `{stmt.condition}` is outside of all blocks", LoopRef(self._loop.var.name))
            case Block():
                return self._around(self._block(stmt, owned))
            case _:
                if any(buffer in owned for buffer in visit.buffers(stmt)):
                    raise refuse("a buffer of a virtual thread is used outside of blocks", LoopRef(self._loop.var.name))
                return self._around(stmt)

    def _around(self, stmt: Stmt) -> Stmt:
        """``stmt`` in a new loop over the virtual threads."""
        var = Var(fresh_name(self._loop.var.name, self._taken))
        self._taken.add(var.name)
        return Loop(var, self._loop.extent, substitute_loops(stmt, {self._loop.var: var}), LoopKind.UNROLLED)

    def _block(self, block: Block, owned: Mapping[Buffer, Buffer]) -> Block:
        used = [buffer for buffer in owned if buffer in buffers_read(block) | buffers_written(block)]
        if not used:
            return block
        at = block_at(self._program, BlockRef(block.name))
        own = recovered(block, self._loop.var, self._loop.extent, bounds_at(self._program, at))
        if own is None:
            (var,) = axis_vars(self._program, [f"v{self._loop.var.name}"], [axis.name for axis in block.axes])
            own = var
            axes = (IterVar(var, self._loop.extent, IterKind.SPATIAL), *block.axes)
            block = dataclasses.replace(block, axes=axes, bindings=(self._loop.var, *block.bindings))
            if buffers_written(block) - owned.keys():
                reason = f"`{block.name}` writes what outlives the virtual threads, and no axis of it tells them apart"
                raise refuse(reason, BlockRef(block.name))
        for buffer in used:
            block = moved_accesses(self._program, block, buffer, owned[buffer], lambda at, own=own: (own, *at))
        return block
