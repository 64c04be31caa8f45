"""Widths of blocks of channels: registers of words, or several of them for a matrix unit."""

import pytest

from tests.passes import graphs
from tilewright.passes.blocks import Blocks, width_of
from tilewright.target.target import Target

ZEN5 = Target.parse("x86_64,znver5")


@pytest.mark.parametrize(
    ("channels", "registers", "width"),
    [
        (64, 1, 16),
        (64, 2, 32),
        (80, 2, 16),
        (3, 2, 16),
        (64, 4, 64),
        (96, 4, 32),
        (48, 4, 16),
        (24, 2, 32),
        (88, 2, 32),
    ],
)
def test_blocks_of_several_registers_need_no_more_memory(channels: int, registers: int, width: int) -> None:
    assert width_of(graphs.value("x", 1, channels, 8, 8), Blocks(ZEN5, registers)) == width
