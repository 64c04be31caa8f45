"""Accesses of a nest in tiles: the first one of a box, and what each loop adds.

Some loops of a nest run over the elements of a tile, its *lanes*: together over each element once, in the order of
memory. The other ones step by whole tiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.backend.vta.compiler.forms import Form, Steps, extents
from tilewright.backend.vta.compiler.nests import Box
from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Buffer

Lanes = Mapping[str, int]
"""The loops over a tile's elements: what an iteration of each adds."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """An access of a buffer: ``form`` is the position in elements, ``size`` the elements of a tile."""

    buffer: Buffer
    form: Form
    size: int
    lanes: Lanes

    def start(self, box: Box) -> tuple[int, Steps]:
        """The tile of a box's first iterations, and the steps of its loops in tiles."""
        base, steps = box.start(self.form)
        moving = {name: step for name, step in steps.items() if name not in self.lanes}
        if base % self.size or any(step % self.size for step in moving.values()):
            raise Unsupported(f"it accesses parts of tiles of {self.buffer.name}, which have {self.size} elements")
        return base // self.size, {name: step // self.size for name, step in moving.items()}

    @property
    def tiles(self) -> int:
        """Tiles of the buffer."""
        return tiles_of(self.buffer, self.size)


def tiles_of(buffer: Buffer, size: int) -> int:
    """How many tiles of ``size`` elements a buffer has. Raises ``Unsupported`` for parts of tiles."""
    elements = 1
    for extent in extents(buffer):
        elements *= extent
    if elements % size:
        raise Unsupported(f"{buffer.name} has {elements} elements, and tiles have {size}: pad it to whole ones")
    return elements // size


def lanes_of(form: Form, loops: Mapping[str, int], size: int, what: str) -> Lanes:
    """The lanes of an access. Raises ``Unsupported`` if they are not a tile."""
    steps = dict(form.loops)
    lanes = {name: steps[name] for name, extent in loops.items() if extent > 1 and steps.get(name, 0) % size}
    next_step = 1
    for name, step in sorted(lanes.items(), key=lambda item: item[1]):
        if step != next_step:
            raise Unsupported(f"{what}: its loops do not run over whole tiles, in the order of memory")
        next_step *= loops[name]
    if next_step != size:
        raise Unsupported(f"{what}: its loops run over {next_step} elements of a tile, which has {size}")
    return lanes


def require_whole(box: Box, lanes: Lanes, loops: Mapping[str, int]) -> None:
    """Raises ``Unsupported`` if a condition leaves out elements of tiles."""
    for name in lanes:
        span = box.spans.get(name)
        if span is None or (span.first, span.last) != (0, loops[name]) or span.count != loops[name]:
            raise Unsupported(f"a condition depends on `{name}`, which runs over the elements of a tile")
