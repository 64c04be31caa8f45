"""Batch dimensions of operators, by the alignment of operands and results."""

from collections.abc import Sequence
from functools import lru_cache

from tilewright.ops.operator import Attributes, Batch, BatchAxis


@lru_cache(maxsize=1024)
def aligned(ranks: tuple[int, ...]) -> tuple[BatchAxis, ...]:
    """All dimensions, with operands aligned at the last ones."""
    rank = max(ranks)
    places = [[at - rank + own for own in ranks] for at in range(rank)]
    return tuple(BatchAxis(tuple(at if at >= 0 else None for at in each), to) for to, each in enumerate(places))


@lru_cache(maxsize=1024)
def all_but(work: tuple[int, ...], rank: int, operands: int = 1) -> tuple[BatchAxis, ...]:
    """All dimensions except those of the work."""
    return tuple(BatchAxis((at,) * operands, at) for at in range(rank) if at not in work)


def windowed(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Batch dimensions of windows that slide over all dimensions except the first two."""
    match attributes, shapes:
        case {"kernel_shape": (*kernel,)}, ((_, _, *spatial),) if len(kernel) == len(spatial):
            rank = 2 + len(spatial)
            return Batch(all_but(tuple(range(2, rank)), rank), attributes, keeps=True)
        case _:
            return None


def reduced_rows(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Batch dimensions of a reduction over the last dimension, which is kept."""
    match attributes, shapes:
        case {"axes": (-1,), **others}, ((*x,),) if x and not others:
            return Batch(all_but((len(x) - 1,), len(x)), attributes, keeps=True)
        case _:
            return None
