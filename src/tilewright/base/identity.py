"""Memoizes by object identity, where comparing large objects would take longer than computing again."""

from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class ByIdentity(Generic[Made]):
    """Things that were made of objects. The objects are kept with them: an address is never another object's."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[tuple[object, ...], Made]] = {}

    def of(self, make: Callable[[], Made], *objects: object) -> Made:
        """What ``make`` has made of just these objects, in this order; made now, if it was not before."""
        place = tuple(map(id, objects))
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = objects, make()
        return known[1]
