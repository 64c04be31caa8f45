"""Constants of a graph that are not kept in memory, and are made again when one is read.

A compiled model keeps the graphs that it was made from, to explain itself. Who asks for that rarely reads numbers, and
the numbers of all weights are most of a process's memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput
from tilewright.graph.ir import Graph, Value

KEPT_BYTES = 1 << 16
"""Bytes up to which a constant is kept."""


class Remade(Mapping[Value, Array]):
    """The constants of a graph without the numbers of large ones; ``make`` makes all of them, when one is first read.

    From then on they are kept.
    """

    def __init__(self, constants: Mapping[Value, Array], make: Callable[[], Mapping[Value, Array]]) -> None:
        self._kept = {value: array if array.nbytes <= KEPT_BYTES else None for value, array in constants.items()}
        self._make = make
        self._made: Mapping[Value, Array] | None = None

    def __getitem__(self, value: Value) -> Array:
        """Raises ``BadInput`` if it is not made this time."""
        kept = self._kept[value]
        if kept is not None:
            return kept
        if self._made is None:
            self._made = self._make()
        if value not in self._made:
            raise BadInput(f"{value!r} is not there this time; compile the model again to see its numbers")
        return self._made[value]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, value: object) -> bool:
        return value in self._kept


def without_numbers(graph: Graph, make: Callable[[], Graph]) -> Graph:
    """``graph`` without the arrays of large constants, which are those of the graph that ``make`` makes."""
    return replace(graph, constants=Remade(graph.constants, lambda: make().constants))
