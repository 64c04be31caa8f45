"""``prefetch``: memory that is read once, in order, is asked for before it is needed."""

import dataclasses

from tilewright.loops.program import Program, prefetch_key
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.tree import refuse


def prefetch(program: Program, buffer: str, distance: int) -> tuple[Program, None]:
    """Each vector that is loaded from the parameter ``buffer`` asks for what lies ``distance`` bytes further on.

    Hardware sees streams within a page only, and starts anew in each. Refuses for what is no parameter: what a kernel
    has just written is in cache.
    """
    if buffer_named(program, buffer) not in program.params:
        raise refuse(f"`{buffer}` is no parameter: what is computed here is still in cache")
    if distance <= 0:
        raise refuse(f"{distance} bytes ahead is not ahead")
    key = prefetch_key(buffer)
    others = tuple(note for note in program.annotations if note[0] != key)
    return dataclasses.replace(program, annotations=(*others, (key, distance))), None
