"""``prefetch``: requests memory that is read once, in order, before it is needed."""

import dataclasses
from collections.abc import Mapping

from tilewright.loops.program import Program, prefetch_cache_key, prefetch_key, prefetch_step_key
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.tree import LoopRef, loop_at, refuse

CACHES = (1, 2)
"""Cache levels that a prefetch can name."""


def prefetch(
    program: Program, buffer: str, distance: int, cache: int = 1, along: Mapping[LoopRef, int] | None = None
) -> tuple[Program, None]:
    """Each vector load from the parameter ``buffer`` prefetches the data ``distance`` bytes ahead.

    Hardware prefetchers work within a page only. ``cache``: the level of the nearest cache that is filled. The first
    level has few miss buffers and little space for data needed later; but loads from it are faster than from the
    second. ``along``: bytes that each iteration of a loop adds to the distance. Then a load prefetches one line: so
    each tile of rows can ask for its part of the panel that comes after the one that all of them read. Of an unrolled
    loop that adds 0 bytes, only the first iteration prefetches.

    Refuses for other buffers than parameters: those that a kernel has just written are in cache.
    """
    if buffer_named(program, buffer) not in program.params:
        raise refuse(f"`{buffer}` is no parameter: what is computed here is still in cache")
    if distance <= 0:
        raise refuse(f"{distance} bytes ahead is not ahead")
    if cache not in CACHES:
        raise refuse(f"nothing can be asked into a cache of level {cache}; there are {CACHES}")
    steps = along or {}
    for loop in steps:
        loop_at(program, loop)  # only to refuse
    distance_key, cache_key, step_key = prefetch_key(buffer), prefetch_cache_key(buffer), prefetch_step_key(buffer, "")
    others = (n for n in program.annotations if n[0] not in (distance_key, cache_key) and not n[0].startswith(step_key))
    of_cache = () if cache == 1 else ((cache_key, cache),)
    of_loops = ((prefetch_step_key(buffer, loop.name), step) for loop, step in steps.items())
    notes = (*others, (distance_key, distance), *of_cache, *of_loops)
    return dataclasses.replace(program, annotations=notes), None
