"""Programs of regions give NumPy's bits, on the simulators and as hardware."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.offload.layers import (
    Codes,
    computed,
    random_addition,
    random_grouped,
    random_pooling,
    random_product,
    shape_of,
    value,
)
from tilewright.backend.vta import runtime
from tilewright.backend.vta.config import LARGE, VTA, Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.driver import Driver
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.graph import Node, Value
from tilewright.offload.device import timed
from tilewright.offload.region import Region, region_of
from tilewright.offload.units import Addition, Unit
from tilewright.ops.operator import require

SMALL = Config("small", 1, 4, 4, uop_bytes=512, inp_bytes=256, wgt_bytes=1024, acc_bytes=2048)
"""Layers need many tiles and stages."""


def random_units(random: Random, most_channels: int, is_matrix: bool) -> tuple[Unit, ...]:
    """A few layers, each after one of those before; the same shapes are added."""
    size = (random.randint(2, 9), random.randint(2, 9))
    channels = random.randint(1, most_channels)
    data = value("x", *((size[0], channels) if is_matrix else (1, channels, *size)))
    known, units = [data], list[Unit]()
    for number in range(random.randint(2, 4)):
        chosen, kind = random.choice(known), random.random()
        if is_matrix or kind < 0.5:
            unit: Unit = random_product(random, chosen, f"p{number}", random.randint(1, most_channels))
        else:
            unit = (random_grouped if kind < 0.75 else random_pooling)(random, chosen, f"p{number}")
        units.append(unit)
        known.append(unit.result)
        same = [v for v in known[:-1] if shape_of(v) == shape_of(unit.result)]
        if same or random.random() < 0.5:
            added = random_addition(random, (random.choice(same or known[-1:]), unit.result), f"s{number}")
            units.append(added)
            known.append(added.result)
    return tuple(units)


def run(region: Region, device: Driver, seed: int, times: int = 1) -> None:
    """Compare a region's results with NumPy's."""
    numbers, runtime = np.random.default_rng(seed), Runtime(device)
    for _ in range(times):
        arrays = [numbers.integers(-128, 128, shape_of(v)).astype(np.int8) for v in region.inputs]
        values: dict[Value, Codes] = dict(zip(region.inputs, arrays, strict=True))
        for unit in region.units:
            values[unit.result] = computed(unit, values)
        found, _ = region.run(runtime, arrays)
        for output, array in zip(region.outputs, found, strict=True):
            assert np.array_equal(array, values[output]), output


def of(units: tuple[Unit, ...], config: Config) -> Region:
    return region_of(units, [unit.result for unit in units], config, Timing())


def random_region(seed: int, config: Config) -> Region:
    most_channels = 9 if config is SMALL else 40
    return of(random_units(Random(seed), most_channels, is_matrix=seed % 4 == 3), config)


@pytest.mark.parametrize("seed", range(4))
def test_random_regions(seed: int) -> None:
    """Tokens and addresses are checked in each run."""
    for config in (SMALL, VTA) if seed < 2 else (LARGE,):
        run(random_region(seed, config), SimulatedDevice(config, 1 << 20), seed)


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, VTA, LARGE], ids=lambda config: config.name)
def test_many_random_regions(config: Config) -> None:
    """Twice: the second run finds its micro-ops on the chip."""
    for seed in range(40):
        run(random_region(seed, config), SimulatedDevice(config, 1 << 22), seed, times=2)


def test_a_stopwatch_counts_what_a_run_takes() -> None:
    region = random_region(5, VTA)
    runtime = Runtime(SimulatedDevice(VTA, 1 << 20, Timing()))
    arrays = [np.zeros(shape_of(v), np.int8) for v in region.inputs]
    reports = [region.run(runtime, arrays)[1].report for _ in range(2)]
    for runs, report in enumerate(reports, 1):
        found = timed(region, Timing(), runs)
        assert found.counters == report.counters
        assert found.cycles is not None and report.cycles is not None
        assert found.cycles.total == report.cycles.total


@pytest.mark.parametrize("left", [(0, 0), (2, 0), (0, 3)])
@pytest.mark.parametrize("size", [(2, 2), (6, 6), (10, 3)])
def test_additions_of_any_size_fit(size: tuple[int, int], left: tuple[int, int]) -> None:
    """In one tile or several, sums take the place of an operand: three accumulators for each result, and not four."""
    a, b, c = (value(name, 1, 8, *size) for name in ("a", "b", "c"))
    node = Node(require("Add"), (), (c,), source="node c")
    run(of((Addition((node,), (a, b), c, left, 1, -128, 127),), SMALL), SimulatedDevice(SMALL, 1 << 20), 0)


def test_what_is_kept_of_micro_ops_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their memory is too small, other ones are loaded together in each run."""
    narrow = replace(SMALL, uop_bytes=64)
    regions, blocks = [random_region(seed, narrow) for seed in (0, 1, 4)], list[int]()
    for most in (runtime.MOST_STORED, 1 << 20):
        monkeypatch.setattr(runtime, "MOST_STORED", most)
        device = SimulatedDevice(narrow, 1 << 20)
        running, live = Runtime(device), set[int]()
        monkeypatch.setattr(SimulatedDevice, "allocate", lambda self, size, live=live: _allocated(self, size, live))
        monkeypatch.setattr(SimulatedDevice, "free", lambda self, address, live=live: live.discard(address))
        for region in [regions[number] for number in (0, 1, 2, 0, 0, 2, 1, 0)]:
            region.run(running, [np.zeros(shape_of(v), np.int8) for v in region.inputs])
        blocks.append(len(live))
    assert blocks[0] < 70 < 120 < blocks[1]


_ALLOCATE = SimulatedDevice.allocate


def _allocated(device: SimulatedDevice, size: int, live: set[int]) -> int:
    address = _ALLOCATE(device, size)
    live.add(address)
    return address
