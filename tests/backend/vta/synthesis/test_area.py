"""Areas: how they add up, what fits, and the parts of the fitted model that follow from the configuration alone."""

from dataclasses import replace

import pytest

from tilewright.backend.vta.config import LARGE, PRESETS, TINY, VTA, Config
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.estimate import estimated, multipliers
from tilewright.backend.vta.synthesis.families import ECP5, FAMILIES, Family
from tilewright.base.errors import BadInput


def test_areas() -> None:
    bound = Area(luts=100, flip_flops=50, dsps=0, rams=4)
    assert Area(10, 5) + Area(1, 1, 1, 1) == Area(11, 6, 1, 1)
    assert Area(10, 5, 0, 1).times(3) == Area(30, 15, 0, 3)
    assert Area(30, 30, 0, 1).share(bound) == 0.6
    assert Area(dsps=1).share(bound) == float("inf")
    assert Area(100, 50, 0, 4).fits(bound)
    assert not Area(dsps=1).fits(bound)
    Area(100).require_fit(bound, "all")
    with pytest.raises(BadInput, match="vta on a chip: it takes 1,000 luts, and there are 100"):
        Area(1000).require_fit(bound, "vta on a chip")


def test_cells_that_nobody_counts_take_nothing() -> None:
    assert ECP5.area({"LUT4": 3, "CCU2C": 2, "TRELLIS_FF": 5, "MULT18X18D": 1, "PFUMX": 9}) == Area(7, 5, 1, 0)


def test_a_chip_is_named() -> None:
    assert ECP5.chip("85k").area.dsps == 156
    with pytest.raises(BadInput, match="85 is no chip of ecp5: choose one of 25k, 45k, 85k"):
        ECP5.chip("85")


def test_multipliers_follow_from_blocks() -> None:
    assert multipliers(TINY) == 16 + 4
    assert multipliers(VTA) == 256 + 16
    assert multipliers(replace(VTA, batch=2)) == 512 + 32


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_more_of_anything_is_no_smaller(family: Family) -> None:
    """A wider block, a deeper memory, a wider bus."""
    for config in PRESETS.values():
        small = estimated(Design(config), family)
        assert small.fits(estimated(Design(replace(config, wgt_bytes=2 * config.wgt_bytes)), family))
        assert small.fits(estimated(Design(config, 16), family))
    assert estimated(Design(VTA), family).fits(estimated(Design(LARGE), family))


@pytest.mark.parametrize(
    ("config", "blocks"),
    [
        (TINY, 3 * 4 + 1 + 1 + 4 + 4 + 1),  # queues; uop, inp, wgt, acc and out: 64 words of up to 128 bits
        (VTA, 3 * 4 + 16 + 15 + 114 + 57 + 15),  # wgt: 1,024 words of 2,048 bits as 114 blocks of 18 bits
    ],
)
def test_memories_are_cut_into_blocks_of_one_shape(config: Config, blocks: int) -> None:
    assert estimated(Design(config), ECP5).rams == blocks
