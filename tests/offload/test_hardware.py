"""Two layers and an addition give NumPy's bits as hardware."""

from random import Random

import pytest

pytest.importorskip("amaranth", reason="hardware needs the extra rtl")

from tests.offload.layers import random_addition, random_product, value
from tests.offload.test_regions import of, run
from tilewright.backend.vta.rtl import TINY, RtlDevice
from tilewright.backend.vta.simulated import SimulatedDevice


@pytest.mark.slow
def test_two_layers() -> None:
    random = Random(2)
    first = random_product(random, value("x", 1, 5, 4, 4), "first", 6)
    second = random_product(random, first.result, "second", 6)
    added = random_addition(random, (second.result, second.result), "sum")
    region = of((first, second, added), TINY)
    run(region, RtlDevice(TINY), 0)
    run(region, SimulatedDevice(TINY), 0)
