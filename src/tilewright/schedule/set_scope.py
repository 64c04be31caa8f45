"""``set_scope``: sets the memory of an intermediate buffer."""

import dataclasses

from tilewright.loops.memory import Memory
from tilewright.loops.program import Program
from tilewright.loops.visit import replace_buffers
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.tree import refuse


def set_scope(program: Program, buffer: str, scope: Memory) -> tuple[Program, None]:
    """Move ``buffer`` to the memory ``scope``. Refuses for parameters, which the caller allocates."""
    old = buffer_named(program, buffer)
    if old in program.params:
        raise refuse(f"`{buffer}` is a parameter and lives where the caller put it; use cache_read or cache_write")
    body = replace_buffers(program.body, {old: dataclasses.replace(old, memory=scope)})
    return dataclasses.replace(program, body=body), None
