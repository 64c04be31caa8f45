"""``prefetch``: requests memory that is read once, in order, before it is needed."""

import dataclasses

from tilewright.loops.program import Program, prefetch_cache_key, prefetch_key
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.tree import refuse

CACHES = (1, 2)
"""Cache levels that a prefetch can name."""


def prefetch(program: Program, buffer: str, distance: int, cache: int = 1) -> tuple[Program, None]:
    """Each vector load from the parameter ``buffer`` prefetches the data ``distance`` bytes ahead.

    Hardware prefetchers work within a page only. ``cache``: the level of the nearest cache that is filled. The first
    level has few miss buffers and little space for data needed later; but loads from it are faster than from the
    second. Refuses for other buffers than parameters: those that a kernel has just written are in cache.
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
