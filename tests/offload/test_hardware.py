"""Two layers and an addition give NumPy's bits as hardware."""

from random import Random

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="hardware needs the extra rtl")

import tilewright
from tests.offload.layers import random_addition, random_product, value
from tests.offload.models import Writer, image
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


@pytest.mark.slow
def test_a_model() -> None:
    """By its word, in the configuration that is small enough."""
    net = Writer()
    x = net.input(1, 4, 4, 4)
    proto = net.model(x, net.convolution(x, 4))
    feeds = {"x": image(proto)}
    model = tilewright.compile(proto, accelerator="vta,rtl,always", threads=1)
    assert [stage.name for stage in model.stages] == ["part0", "accelerator0 (accelerator)", "part2"]
    assert np.array_equal(model.run(None, feeds)[0], tilewright.compile(proto, threads=1).run(None, feeds)[0])
