"""Dimensions along which operators do the same at each place, by how operands and results are aligned."""

from collections.abc import Sequence
from functools import lru_cache

from tilewright.ops.operator import Attributes, Batch, BatchAxis


@lru_cache(maxsize=1024)
def aligned(ranks: tuple[int, ...]) -> tuple[BatchAxis, ...]:
    """All dimensions, the last ones of operands being in one place."""
    rank = max(ranks)
    places = [[at - rank + own for own in ranks] for at in range(rank)]
    return tuple(BatchAxis(tuple(at if at >= 0 else None for at in each), to) for to, each in enumerate(places))


@lru_cache(maxsize=1024)
def all_but(work: tuple[int, ...], rank: int, operands: int = 1) -> tuple[BatchAxis, ...]:
    """All dimensions but those of the work."""
    return tuple(BatchAxis((at,) * operands, at) for at in range(rank) if at not in work)


def windowed(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Of windows that slide over all dimensions but the first two."""
    match attributes, shapes:
        case {"kernel_shape": (*kernel,)}, ((_, _, *spatial),) if len(kernel) == len(spatial):
            rank = 2 + len(spatial)
            return Batch(all_but(tuple(range(2, rank)), rank), attributes, keeps=True)
        case _:
            return None


def reduced_rows(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Of what is reduced over the last dimension, which stays."""
    match attributes, shapes:
        case {"axes": (-1,), **others}, ((*x,),) if x and not others:
            return Batch(all_but((len(x) - 1,), len(x)), attributes, keeps=True)
        case _:
            return None
