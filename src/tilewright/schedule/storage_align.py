"""``storage_align``: pads a buffer's stride to avoid bank conflicts.

The buffer stays dense: the next inner dimension gets extra, unused elements.
"""

import dataclasses
from math import prod

from tilewright.loops.program import Program
from tilewright.loops.visit import replace_buffers
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.tree import BlockRef, block_at, buffers_written, refuse
from tilewright.symbolic.expr import Const, const


def storage_align(
    program: Program, block: BlockRef, buffer: str, axis: int, factor: int, offset: int
) -> tuple[Program, None]:
    """Make the stride of dimension ``axis`` of ``buffer``, which ``block`` writes, ``offset`` modulo ``factor``.

    Strides count elements. Primitives that shrink buffers (``compute_at``) undo it, so it comes after them. Refuses for
    parameters, run-time extents and the innermost dimension, and if no padding gives this stride.
    """
    writer = block_at(program, block).stmt
    old = buffer_named(program, buffer)
    if old not in buffers_written(writer):
        raise refuse(f"`{block}` does not write `{buffer}`", block)
    if old in program.params:
        raise refuse(f"`{buffer}` is a parameter, whose layout is the caller's; cache_write it first", block)
    if not 0 <= axis < len(old.shape) - 1:
        raise refuse(f"`{buffer}` has no dimension {axis} with others inside, which could be padded", block)
    if factor < 1 or not 0 <= offset < factor:
        raise refuse(f"{offset} modulo {factor} is no stride: 0 <= offset < factor", block)
    sizes = [extent.value for extent in old.shape if isinstance(extent, Const)]
    if len(sizes) < len(old.shape):
        raise refuse(f"`{buffer}` has run-time extents; its strides are known when it runs", block)
    extent, rest = int(sizes[axis + 1]), int(prod(sizes[axis + 2 :]))
    padded = next((n for n in range(extent, extent + factor) if n * rest % factor == offset), None)
    if padded is None:
        raise refuse(f"no multiple of {rest}, the elements of what is inside, is {offset} modulo {factor}", block)
    shape = (*old.shape[: axis + 1], const(padded), *old.shape[axis + 2 :])
    body = replace_buffers(program.body, {old: dataclasses.replace(old, shape=shape)})
    return dataclasses.replace(program, body=body), None
