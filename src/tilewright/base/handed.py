"""Values that a caller hands over: the memory of large ones is freed as soon as their last user is done.

A parameter that is a graph is a reference that its caller's variable keeps alive until the call returns, with all
weights. Where that costs memory, the caller passes a box, and the callee takes the value out of it:

    graph = Handed(load())
    compile_handed(graph)       # takes it; nothing else refers to it while the model is compiled
"""

from typing import Generic, TypeVar

from tilewright.base.errors import InternalError

T = TypeVar("T")


class Handed(Generic[T]):
    """A box with a value that is taken out once."""

    __slots__ = ("_values",)

    def __init__(self, value: T) -> None:
        self._values = [value]

    @property
    def value(self) -> T:
        """The value, which stays in the box. Raises ``InternalError`` if it was taken."""
        if not self._values:
            raise InternalError("what was handed over has been taken already")
        return self._values[0]

    def take(self) -> T:
        """The value, of which the box keeps nothing. Raises ``InternalError`` if it was taken."""
        if not self._values:
            raise InternalError("what was handed over has been taken already")
        return self._values.pop()
