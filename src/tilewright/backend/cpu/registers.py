"""Known values of the elements of private buffers within one scope (store-to-load forwarding).

LLVM makes registers of private buffers. It takes fewer lines to parse and to promote where what was stored a few lines
before is not loaded again, and what is stored again a few lines after is not stored.
"""

from dataclasses import dataclass, field

from tilewright.backend.cpu.values import Value


@dataclass(slots=True)
class _Held:
    """A buffer as vectors of ``lanes`` elements side by side, by the offsets of their first ones."""

    lanes: int
    values: dict[int, Value] = field(default_factory=dict[int, Value])
    lines: dict[int, int] = field(default_factory=dict[int, int])
    """The stores that nothing has read yet, by their places in the text of the scope."""
    remainders: set[int] = field(default_factory=set[int])
    """Those of the offsets by the number of lanes: where there is one, no vectors overlap."""

    def overlapping(self, offset: int) -> list[int]:
        """The offsets of the other vectors that share elements with the one at ``offset``, which is known from now."""
        self.remainders.add(offset % self.lanes)
        if len(self.remainders) == 1:
            return []
        return [other for other in self.values if other != offset and abs(other - offset) < self.lanes]


class Registers:
    """Vectors of private buffers that were loaded or stored in one scope, at offsets that are literals."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def find(self, buffer: str, offset: int, lanes: int) -> Value | None:
        """What is known to be there."""
        held = self._held.get(buffer)
        return held.values.get(offset) if held is not None and held.lanes == lanes else None

    def loaded(self, buffer: str, offset: int, value: Value) -> None:
        """``value`` was found in memory."""
        held = self._of(buffer, value.lanes)
        for other in held.overlapping(offset):
            held.lines.pop(other, None)
        held.values[offset] = value

    def stored(self, buffer: str, offset: int, value: Value, line: int) -> int | None:
        """``value`` is stored by the text at ``line``: the line of an earlier store that is needless now."""
        held = self._of(buffer, value.lanes)
        for other in held.overlapping(offset):
            held.lines.pop(other, None)
            del held.values[other]
        needless = held.lines.get(offset)
        held.values[offset], held.lines[offset] = value, line
        return needless

    def _of(self, buffer: str, lanes: int) -> _Held:
        """The buffer as such vectors; as others it is known no more, and all their stores stay."""
        held = self._held.get(buffer)
        if held is None or held.lanes != lanes:
            held = self._held[buffer] = _Held(lanes)
        return held

    def forget(self, buffer: str | None) -> None:
        """``buffer`` (None: any) may be another one now, and what was stored may have been read."""
        if buffer is None:
            self._held.clear()
        else:
            self._held.pop(buffer, None)

    def keep(self, buffer: str | None = None) -> None:
        """What was stored in ``buffer`` (None: any) may be read by what is not told here."""
        for held in self._held.values() if buffer is None else filter(None, [self._held.get(buffer)]):
            held.lines.clear()
