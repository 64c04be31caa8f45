"""An accelerator of a device: results of regions, configurations that are switched, and what is sent. Without Dask."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.offload.layers import computed, random_product, shape_of, value
from tilewright.backend.vta.config import LARGE, VTA, Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base import errors, fields
from tilewright.base.errors import BadInput, FleetError
from tilewright.fleet.accelerator import FleetAccelerator
from tilewright.fleet.board import Board
from tilewright.fleet.device import Device
from tilewright.fleet.fleet import raise_error, upload_messages
from tilewright.offload.region import Region, region_of

MEMORY = 1 << 20


@dataclass
class Lent:
    """A device in this process, leased, and what was sent to it."""

    device: Device
    lease: str = "lease"
    sent: list[int] = field(default_factory=list[int])
    had: set[str] = field(default_factory=set[str])

    def call(
        self, message: Mapping[str, object], contents: Mapping[str, bytes], seconds: float
    ) -> tuple[dict[str, object], tuple[bytes, ...]]:
        new = {key: content for key, content in contents.items() if key not in self.had}
        self.sent.append(sum(map(len, new.values())))
        self.had.update(new)
        for key, content in new.items():
            for asked, parts in upload_messages(key, content):
                self.device.perform(self.lease, json.dumps(asked), parts)
        text, returned = self.device.perform(self.lease, json.dumps(message), ())
        answer = fields.mapping(json.loads(text))
        raise_error(answer)
        return answer, returned


@pytest.fixture
def lent(tmp_path: Path) -> Lent:
    device = Device(tmp_path, spares=0)
    device.lease("lease", begins=True)
    return Lent(device)


def region_for(config: Config) -> Region:
    random = Random(3)
    first = random_product(random, value("x", 1, 20, 6, 6), "first", 24)
    second = random_product(random, first.result, "second", 10)
    return region_of([first, second], [second.result], config, Timing())


def check(region: Region, runtime: Runtime, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-128, 128, shape_of(region.inputs[0])).astype(np.int8)
    first, second = region.units
    values = {region.inputs[0]: x}
    values[first.result] = computed(first, values)
    (found,), _ = region.run(runtime, [x])
    assert np.array_equal(found, computed(second, values))


def test_regions_run_there(lent: Lent) -> None:
    """The second run sends neither weights nor micro-ops; the third one has the instructions of the second."""
    region = region_for(VTA)
    runtime = Runtime(FleetAccelerator(lent, VTA, MEMORY))
    for seed in range(3):
        check(region, runtime, seed)
    assert lent.sent[0] > 3 * lent.sent[1]
    assert lent.sent[1] > lent.sent[2] == 2 * 36 * 16


def test_reports_are_those_of_a_simulator_here(lent: Lent) -> None:
    region, zeros = region_for(VTA), np.zeros((1, 20, 6, 6), np.int8)
    there = Runtime(FleetAccelerator(lent, VTA, MEMORY, Timing()))
    here = Runtime(SimulatedDevice(VTA, MEMORY, Timing()))
    for _ in range(2):
        (_, far), (_, near) = region.run(there, [zeros]), region.run(here, [zeros])
        assert far.report.counters == near.report.counters
        assert str(far.report.cycles) == str(near.report.cycles)


def test_configurations_are_switched(lent: Lent) -> None:
    """A run after another configuration was loaded is an error; the next one loads its own again."""
    both = [(region_for(config), Runtime(FleetAccelerator(lent, config, MEMORY))) for config in (VTA, LARGE)]
    (small, first), (large, second) = both
    check(small, first, 0)
    check(large, second, 1)
    with pytest.raises(FleetError, match="another configuration was loaded"):
        check(small, first, 2)
    check(small, first, 3)
    check(small, first, 4)


def test_errors_are_those_of_the_simulator(lent: Lent) -> None:
    driver = FleetAccelerator(lent, VTA, MEMORY)
    driver.write(driver.allocate(64), bytes([7] * 64))
    driver.start(driver.config.alignment, 4)
    with pytest.raises(errors.TilewrightError, match="opcode 7"):
        driver.wait()
    with pytest.raises(BadInput, match="runs no program"):
        driver.wait()


def test_a_lease_that_ends_stops_a_run() -> None:
    stop, board, region = threading.Event(), Board(), region_for(VTA)

    class Here:
        def call(
            self, message: Mapping[str, object], contents: Mapping[str, bytes], seconds: float
        ) -> tuple[dict[str, object], tuple[bytes, ...]]:
            stop.set()
            return board.run(message, contents.__getitem__, stop)

    with pytest.raises(FleetError, match="the lease has ended"):
        check(region, Runtime(FleetAccelerator(Here(), VTA, MEMORY)), 0)


def test_too_much_memory_is_refused() -> None:
    asked = {"session": "s", "begins": True, "timing": None, "memory": 1 << 31, "config": {"name": "x"}}
    asked["config"] = {name: getattr(VTA, name) for name in VTA.__slots__}
    with pytest.raises(BadInput, match="bytes of device memory"):
        Board().run(asked, dict[str, bytes]().__getitem__, threading.Event())
