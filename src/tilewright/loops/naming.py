"""Unused names within one program."""

from collections.abc import Iterable

from tilewright.base.names import RESERVED, fresh_name, identifier
from tilewright.tensor.build import UNNAMED
from tilewright.tensor.ir import MARK


class Names:
    """Generates names: buffers, blocks, and variables (loops and axes) have separate namespaces."""

    def __init__(self, extents: Iterable[str], wanted_buffers: Iterable[str]) -> None:
        """``extents``: the run-time extents. ``wanted_buffers``: names reserved from unnamed buffers."""
        self._buffers = set(RESERVED)
        self._blocks = set(RESERVED)
        self._loops = {*RESERVED, *extents}
        self._axes: set[str] = set()
        self._wanted = set(map(identifier, wanted_buffers))

    def buffer(self, wanted: str) -> str:
        """``wanted`` made legal and unique; ``UNNAMED`` becomes the next free letter."""
        name = self._letter() if wanted == UNNAMED else fresh_name(identifier(wanted), self._buffers)
        self._buffers.add(name)
        return name

    def _letter(self) -> str:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        taken = self._buffers | self._wanted
        return next((letter for letter in letters if letter not in taken), None) or fresh_name("T", taken)

    def block(self, wanted: str) -> str:
        """A name for a block."""
        name = fresh_name(identifier(wanted), self._blocks)
        self._blocks.add(name)
        return name

    def loop(self, wanted: str) -> str:
        """A name for a loop: that of its axis, if it is free."""
        name = fresh_name(identifier(wanted.partition(MARK)[0].strip("_") or "i"), self._loops | self._axes)
        self._loops.add(name)
        return name

    def axis(self, loop: str, inside: Iterable[str]) -> str:
        """A name for the block axis that ``loop`` drives; ``inside``: the block's other axes."""
        name = fresh_name(f"v{loop}", self._loops | set(inside))
        self._axes.add(name)
        return name
