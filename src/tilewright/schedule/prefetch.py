"""``prefetch``: requests memory that is read once, in order, before it is needed."""

import dataclasses

from tilewright.loops.program import Program, prefetch_cache_key, prefetch_key
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.tree import refuse

CACHES = (1, 2)
"""Levels that data can be asked into."""


def prefetch(program: Program, buffer: str, distance: int, cache: int = 1) -> tuple[Program, None]:
    """Each vector that is loaded from the parameter ``buffer`` asks for what lies ``distance`` bytes further on.

    Hardware sees streams within a page only, and starts anew in each. ``cache``: the level of the nearest cache to
    which it comes. The first has few places for what is on its way, and no room for much that is not needed yet; but
    what is in it need not come from the second. Refuses for what is no parameter: what a kernel has just written is in
    cache.
    """
    if buffer_named(program, buffer) not in program.params:
        raise refuse(f"`{buffer}` is no parameter: what is computed here is still in cache")
    if distance <= 0:
        raise refuse(f"{distance} bytes ahead is not ahead")
    if cache not in CACHES:
        raise refuse(f"nothing can be asked into a cache of level {cache}; there are {CACHES}")
    distance_key, cache_key = prefetch_key(buffer), prefetch_cache_key(buffer)
    others = tuple(note for note in program.annotations if note[0] not in (distance_key, cache_key))
    of_cache = () if cache == 1 else ((cache_key, cache),)
    return dataclasses.replace(program, annotations=(*others, (distance_key, distance), *of_cache)), None
