"""``annotate`` and ``unannotate``: annotations on blocks, for later steps."""

import dataclasses

from tilewright.loops.program import Program
from tilewright.schedule.tree import BlockRef, block_at, refuse, rewrite


def annotate(program: Program, block: BlockRef, key: str, value: int | str) -> tuple[Program, None]:
    """Set the annotation ``key = value`` on ``block``, in place of an earlier value."""
    place = block_at(program, block)
    others = tuple(note for note in place.stmt.annotations if note[0] != key)
    return rewrite(program, place, dataclasses.replace(place.stmt, annotations=(*others, (key, value)))), None


def unannotate(program: Program, block: BlockRef, key: str) -> tuple[Program, None]:
    """Remove the annotation ``key`` from ``block``. Refuses if there is none."""
    place = block_at(program, block)
    kept = tuple(note for note in place.stmt.annotations if note[0] != key)
    if kept == place.stmt.annotations:
        known = ", ".join(name for name, _ in kept) or "none"
        raise refuse(f"`{block}` has no annotation `{key}`; it has: {known}", block)
    return rewrite(program, place, dataclasses.replace(place.stmt, annotations=kept)), None
