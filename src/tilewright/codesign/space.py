"""Configurations that fit an area: blocks, and depths of the memories; widths and device memory are those given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from tilewright.backend.vta.config import MOST_TILES, Config, Scratchpad
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.instructions import require_encodable
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.estimate import estimated
from tilewright.backend.vta.synthesis.families import Family
from tilewright.base.errors import BadInput

UOP, INP, WGT, ACC = Scratchpad.UOP, Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC
SEARCHED = (UOP, INP, WGT, ACC)
"""Memories whose depths are searched: out has that of acc."""
NAME = "searched"
"""Of all configurations that are made here."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The form of the product of a micro-op."""

    batch: int
    block_in: int
    block_out: int

    @staticmethod
    def of(config: Config) -> "Blocks":
        """Those of a configuration."""
        return Blocks(config.batch, config.block_in, config.block_out)

    def __str__(self) -> str:
        return f"{self.batch} x {self.block_in} x {self.block_out}"


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched: every block with every depth, as far as instructions can name the tiles, and they fit.

    ``base``: what is not searched, such as widths, the clock and the bytes of device memory in a cycle.
    """

    base: Design
    family: Family
    bound: Area
    blocks: tuple[Blocks, ...]
    depths: Mapping[Scratchpad, tuple[int, ...]]

    @staticmethod
    def of(base: Design, family: Family, bound: Area, *, square: bool = False) -> "Space":
        """The usual one: blocks of 4 to 64, memories of 16 tiles (512 micro-ops) up to 8192.

        ``square``: only the blocks with which results can be operands, as in models.
        """
        sizes = tuple(1 << power for power in range(2, 7))
        pairs = ((a, b) for a, b in product(sizes, sizes) if a == b or not square)
        depths = tuple(1 << power for power in range(4, 14))
        blocks = tuple(Blocks(base.config.batch, *pair) for pair in pairs)
        return Space(base, family, bound, blocks, {pad: depths[5:] if pad is UOP else depths for pad in SEARCHED})

    def designs(self, blocks: Blocks) -> Iterator[Design]:
        """Those of some blocks that fit, smallest memories first."""
        if self.design(blocks, {pad: self.depths[pad][0] for pad in SEARCHED}) is None:
            return
        for sizes in product(*(self.depths[pad] for pad in SEARCHED)):
            found = self.design(blocks, dict(zip(SEARCHED, sizes, strict=True)))
            if found is not None:
                yield found

    def design(self, blocks: Blocks, depths: Mapping[Scratchpad, int]) -> Design | None:
        """The design of some blocks and depths; None if it does not fit, or instructions have no room for addresses."""
        config = self._config(blocks, depths)
        try:
            require_encodable(config)
        except BadInput:
            return None
        found = replace(self.base, config=config)
        return found if self.area(found).fits(self.bound) else None

    def unlimited(self, blocks: Blocks) -> Config:
        """With memories in which all tiles have room."""
        return self._config(blocks, dict.fromkeys(SEARCHED, MOST_TILES))

    def _config(self, blocks: Blocks, depths: Mapping[Scratchpad, int]) -> Config:
        base = self.base.config
        rows, columns = blocks.batch * blocks.block_in, blocks.batch * blocks.block_out
        return replace(
            base,
            name=NAME,
            batch=blocks.batch,
            block_in=blocks.block_in,
            block_out=blocks.block_out,
            uop_bytes=depths[UOP] * base.uop_bits // 8,
            inp_bytes=depths[INP] * rows * base.inp_bits // 8,
            wgt_bytes=depths[WGT] * blocks.block_in * blocks.block_out * base.wgt_bits // 8,
            acc_bytes=depths[ACC] * columns * base.acc_bits // 8,
        )

    def area(self, design: Design) -> Area:
        """By the fitted model."""
        return estimated(design, self.family)

    def neighbours(self, design: Design) -> Iterator[Design]:
        """Those that fit with one memory of half or twice the depth, or one twice and another one half as deep."""
        blocks = Blocks.of(design.config)
        for depths in _changed({pad: design.config.depth(pad) for pad in SEARCHED}):
            if all(depth in self.depths[pad] for pad, depth in depths.items()):
                found = self.design(blocks, depths)
                if found is not None:
                    yield found


def _changed(own: Mapping[Scratchpad, int]) -> Iterator[dict[Scratchpad, int]]:
    for pad in SEARCHED:
        yield {**own, pad: own[pad] // 2}
        yield {**own, pad: own[pad] * 2}
        for other in SEARCHED:
            if other is not pad:
                yield {**own, pad: own[pad] * 2, other: own[other] // 2}
