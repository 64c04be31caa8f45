"""Constants as kernels read them: in another layout or dtype than in the graph, made when all else is decided.

The largest come first, and each array of the graph is let go of once all that is made of it is there. So what is in
memory at once is little more than the constants once, in whichever form takes more, and one of the largest twice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.arrays import own
from tilewright.base.memory import give_back
from tilewright.graph import Array, Graph, Value
from tilewright.kernels.packing import Empty, pack
from tilewright.ops.shapes import static
from tilewright.passes.main_program import Step
from tilewright.schedule.index_map import IndexMap

_OFTEN = 8 << 20
"""Bytes that are freed until the system gets them back: the C library would keep them, in holes that are too small for
what is made next."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a constant is made of: a constant of the graph, and the layouts in which it is packed, in order."""

    source: Value
    packings: tuple[IndexMap, ...] = ()


def used_constants(graph: Graph, steps: Sequence[Step], packed: Mapping[Value, Stored]) -> dict[Value, Stored]:
    """The constants of ``graph`` and those ``packed`` for kernels that main reads."""
    used = dict.fromkeys((*(v for step in steps for v in step.arguments), *graph.outputs))
    plain = {value: Stored(value) for value in used if value in graph.constants}
    known = {**plain, **packed}
    return {value: known[value] for value in used if value in known}


def bytes_of(value: Value) -> int:
    """The bytes of a constant."""
    shape = static(value.shape)
    assert shape is not None, "constants have static shapes"
    return value.dtype.itemsize * prod(shape)


def stored_arrays(stored: Mapping[Value, Stored], arrays: dict[Value, Array], empty: Empty) -> list[Array]:
    """The arrays of ``stored``, in order; those in ``arrays`` that they are made of are taken out."""
    users = Counter(one.source for one in stored.values())
    made: dict[Value, Array] = {}
    freed = _OFTEN
    for value in sorted(stored, key=bytes_of, reverse=True):
        if freed >= _OFTEN:
            give_back()
            freed = 0
        one = stored[value]
        made[value] = _made(value, arrays[one.source], one.packings, empty)
        users[one.source] -= 1
        if not users[one.source]:
            freed += bytes_of(one.source) if arrays.pop(one.source) is not made[value] else 0
    return [made[value] for value in stored]


def _made(value: Value, array: Array, packings: Sequence[IndexMap], empty: Empty) -> Array:
    array = array.astype(value.dtype.numpy, copy=False)
    for packing in packings:
        array = pack(array, packing, empty)
    return own(array)
