"""A memo table keyed by object identity, for objects that are too large to compare."""

from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class ByIdentity(Generic[Made]):
    """Values computed from objects. The objects are kept alive, so that their addresses are not reused."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[tuple[object, ...], Made]] = {}

    def of(self, make: Callable[[], Made], *objects: object) -> Made:
        """The value that ``make`` computes from exactly these objects, in this order; computed once."""
        place = tuple(map(id, objects))
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = objects, make()
        return known[1]
