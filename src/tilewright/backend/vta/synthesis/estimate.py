"""The area of a configuration without tools: multipliers and memories as they are cut, fitted numbers for the rest.

Multipliers follow from the blocks. Memories are cut into blocks of the family's shapes. Look-up tables and flip-flops
are sums of what grows with a configuration, times numbers that were fitted to what Yosys makes of some of them
(`python -m benchmarks.vta_area` fits them, and shows how far they are off).
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.families import ECP5, ICE40, Family

STORED = (Scratchpad.UOP, Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC, Scratchpad.OUT)
QUEUES = 3
"""Modules with a queue of instructions."""


@dataclass(frozen=True, slots=True)
class Features:
    """What look-up tables and flip-flops grow with."""

    constant: float
    """Loops, addresses, queues, the bus: about the same in all configurations."""
    sums: float
    """Additions of products, in each micro-op."""
    lanes: float
    """Elements of an accumulator: each has all operations of ALU."""
    tile_bits: float
    """Of all memories: what is read while it is written goes around them."""


def features(design: Design) -> Features:
    """Those of a configuration."""
    config = design.config
    lanes = config.elements(Scratchpad.ACC)
    return Features(
        1,
        lanes * (config.block_in - 1),
        lanes,
        sum(8 * config.tile_bytes(pad) for pad in STORED),
    )


@dataclass(frozen=True, slots=True)
class Fitted:
    """A family's numbers, in the order of ``Features``; and its memories."""

    luts: tuple[float, ...]
    flip_flops: tuple[float, ...]
    shapes: tuple[tuple[int, int], ...]
    """(bits, words) of a block of memory."""
    least_words: int
    """Memories of fewer words are made of look-up tables."""


def estimated(design: Design, family: Family) -> Area:
    """About the area of ``design``."""
    fitted, parts = FITTED[family.name], astuple(features(design))
    return Area(
        _sum(fitted.luts, parts), _sum(fitted.flip_flops, parts), multipliers(design.config), rams(design, fitted)
    )


def _sum(numbers: tuple[float, ...], parts: tuple[float, ...]) -> int:
    return round(sum(number * part for number, part in zip(numbers, parts, strict=True)))


def multipliers(config: Config) -> int:
    """Of GEMM, and one for each lane of ALU."""
    return config.products + config.elements(Scratchpad.ACC)


def rams(design: Design, fitted: Fitted) -> int:
    """Blocks of memory: of the memories on the chip, and of queues."""
    config = design.config
    stored = sum(_blocks(8 * config.tile_bytes(pad), config.depth(pad), fitted) for pad in STORED)
    return stored + QUEUES * _blocks(config.instruction_bits, design.timing.queue_length, fitted)


def _blocks(bits: int, words: int, fitted: Fitted) -> int:
    """The fewest blocks of one shape that hold so many words of so many bits."""
    if words < fitted.least_words:
        return 0
    return min(-(-bits // width) * -(-words // depth) for width, depth in fitted.shapes)


FITTED: Mapping[str, Fitted] = {
    ECP5.name: Fitted(
        (5150.79, 0.0, 1209.67, 6.08),
        (1351.96, 16.86, 122.81, 0.1),
        ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
        least_words=64,
    ),
    ICE40.name: Fitted(
        (3244.96, 0.0, 663.32, 3.84),
        (1339.51, 0.0, 71.94, 1.27),
        ((16, 256), (8, 512), (4, 1024), (2, 2048)),
        least_words=64,
    ),
}
"""By the name of a family: fitted to Yosys 0.23."""
