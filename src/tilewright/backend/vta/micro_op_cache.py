"""The micro-op memory as a cache: which micro-ops are on the chip, and where; the least recently used ones give way."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from tilewright.backend.vta.instructions import Uop
from tilewright.base.errors import BadProgram


@dataclass(slots=True)
class MicroOpCache:
    """Places for sequences of micro-ops in a memory of ``depth``."""

    depth: int
    _begins: OrderedDict[tuple[Uop, ...], int] = field(default_factory=OrderedDict[tuple[Uop, ...], int])
    """Where each sequence begins; the least recently used one first."""
    _known: dict[Uop, dict[int, tuple[Uop, ...]]] = field(default_factory=dict[Uop, dict[int, tuple[Uop, ...]]])
    """Where each micro-op is, and the sequence that it is of."""

    def place(self, uops: tuple[Uop, ...]) -> int | None:
        """Where a sequence begins, be it a part of a longer one; None if it is not on the chip."""
        if uops in self._begins:
            self._begins.move_to_end(uops)
            return self._begins[uops]
        for place, longer in self._known.get(uops[0], {}).items() if uops else ():
            at = place - self._begins[longer]
            if longer[at : at + len(uops)] == uops:
                self._begins.move_to_end(longer)
                return place
        return None

    def add(self, sequences: Sequence[tuple[Uop, ...]]) -> int:
        """Where sequences begin that are not on the chip, one after another; others may lose their place.

        Raises ``BadProgram`` if they are larger than the memory.
        """
        uops = tuple(chain.from_iterable(sequences))
        if len(uops) > self.depth:
            raise BadProgram(
                f"a kernel of {len(uops)} micro-ops does not fit the micro-op memory of {self.depth}; make two of its "
                "loops those of the instruction, or split it"
            )
        while (begin := self._gap(len(uops))) is None:
            self._forget(*self._begins.popitem(last=False))
        at = begin
        for sequence in sequences:
            self._begins[sequence] = at
            for place, uop in enumerate(sequence, at):
                self._known.setdefault(uop, {})[place] = sequence
            at += len(sequence)
        return begin

    def _forget(self, sequence: tuple[Uop, ...], begin: int) -> None:
        for place, uop in enumerate(sequence, begin):
            del self._known[uop][place]

    def _gap(self, length: int) -> int | None:
        """The first free place for ``length`` micro-ops."""
        end = 0
        for uops, begin in sorted(self._begins.items(), key=lambda item: item[1]):
            if begin - end >= length:
                return end
            end = begin + len(uops)
        return end if self.depth - end >= length else None

    def clear(self) -> None:
        """Forget everything: the memory on the chip was changed by somebody else."""
        self._begins.clear()
        self._known.clear()


def without_parts(sequences: Sequence[tuple[Uop, ...]]) -> list[tuple[Uop, ...]]:
    """The sequences that are in no other one."""
    found: list[tuple[Uop, ...]] = []
    together = MicroOpCache(sum(map(len, sequences)))
    for sequence in sorted(sequences, key=lambda one: -len(one)):
        if together.place(sequence) is None:
            together.add([sequence])
            found.append(sequence)
    return sorted(found, key=sequences.index)
