"""The micro-op memory as a cache: which micro-ops are on the chip, and where; the least recently used ones give way."""

from collections import OrderedDict
from dataclasses import dataclass, field

from tilewright.backend.vta.instructions import Uop
from tilewright.base.errors import BadProgram


@dataclass(frozen=True, slots=True)
class Placement:
    """Where micro-ops are, and whether they must be loaded first."""

    begin: int
    is_new: bool


@dataclass(slots=True)
class MicroOpCache:
    """Places for sequences of micro-ops in a memory of ``depth``."""

    depth: int
    _begins: OrderedDict[tuple[Uop, ...], int] = field(default_factory=OrderedDict[tuple[Uop, ...], int])
    """Where each sequence begins; the least recently used one first."""

    def place(self, uops: tuple[Uop, ...]) -> Placement:
        """The place of a sequence; others may lose theirs. Raises ``BadProgram`` if it is larger than the memory."""
        if uops in self._begins:
            self._begins.move_to_end(uops)
            return Placement(self._begins[uops], is_new=False)
        if len(uops) > self.depth:
            raise BadProgram(
                f"a kernel of {len(uops)} micro-ops does not fit the micro-op memory of {self.depth}; make two of its "
                "loops those of the instruction, or split it"
            )
        while (begin := self._gap(len(uops))) is None:
            self._begins.popitem(last=False)
        self._begins[uops] = begin
        return Placement(begin, is_new=True)

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
