"""Simulated runs: right results, counts as of an independent count, and what bad code does."""

from collections import OrderedDict, defaultdict

import numpy as np
import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

from tilewright import te
from tilewright.base.errors import Unsupported
from tilewright.measure.build import as_artifact, image_of
from tilewright.runtime.memory import Pages
from tilewright.simulation import cycles
from tilewright.simulation.cores import core_of
from tilewright.simulation.cycles import simulate
from tilewright.simulation.emulator import READ, WRITE, Emulator, Stopped
from tilewright.simulation.watching import LINE, Caches
from tilewright.target.cores import Cache
from tilewright.target.target import Target
from tilewright.tune.untuned import schedule

A72 = Target.parse("aarch64,cortex-a72")


def product(size: int, target: Target = A72):
    """The artifact of a product of matrices as the compiler schedules it, and inputs."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C")
    image = image_of(schedule(te.create_schedule(c).program, target).program, target)
    drawn = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    return as_artifact(image), {"A": drawn[0], "B": drawn[1]}


@pytest.mark.parametrize("name", ["cortex-a53", "cortex-a72", "neoverse-v1", "apple-m1"])
def test_results_are_right_and_cycles_are_possible(name: str) -> None:
    target = Target.parse(f"aarch64,{name}")
    parts, inputs = product(48, target)
    found = simulate(parts, inputs)
    np.testing.assert_allclose(found.outputs[0], inputs["A"] @ inputs["B"], atol=1e-4)
    least = 48**3 / 4 / target.fma_per_cycle
    assert least <= found.cost.blocks <= 4 * least
    assert found.cost.cycles >= found.cost.blocks
    assert simulate(parts, inputs).cost == found.cost


def test_a_core_with_more_pipelines_takes_fewer_cycles() -> None:
    found = [
        simulate(*product(48, Target.parse(f"aarch64,{name}"))).cost.cycles
        for name in ("cortex-a72", "cortex-a76", "neoverse-v1")
    ]
    assert found[0] > found[1] > found[2]


def test_misses_go_on_as_they_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.parse("aarch64,cortex-a72,l1=4K,l2=16K")
    parts, inputs = product(64, target)
    whole = simulate(parts, inputs)
    monkeypatch.setattr(cycles, "COUNTED", whole.instructions // 4)
    part = simulate(parts, inputs)
    assert part.instructions == whole.instructions
    assert part.near.all == pytest.approx(whole.near.all, rel=0.15)
    assert part.cost.cycles == pytest.approx(whole.cost.cycles, rel=0.05)


def test_smaller_caches_miss_more() -> None:
    found = [
        simulate(*product(64, Target.parse(f"aarch64,cortex-a72,l1={size}"))).near.all for size in ("2K", "8K", "32K")
    ]
    assert found[0] > found[1] > found[2] >= 3 * 64 * 64 * 4 / LINE


def test_caches_evict_what_was_not_used_for_longest() -> None:
    """Against a cache of ordered dictionaries, on random accesses that the emulator makes."""
    near, far = Cache(8 * LINE * 2, 2, 0, 0), Cache(16 * LINE * 4, 4, 0, 0)
    addresses = 0x10_0000 + np.random.default_rng(1).integers(0, 1 << 14, 4000) // 4 * 4
    with Emulator() as emulator:
        # A loop: x1 = *x0++; w3 = *x1; until x2 is 0.
        code = [0xF8408401, 0xB9400023, 0xF1000442, 0x54FFFFA1, 0xD65F03C0]
        pages, data, table = Pages(4096), Pages(1 << 14), Pages(8 * len(addresses))
        pages.view()[: 4 * len(code)] = np.array(code, np.uint32).tobytes()
        table.view()[: 8 * len(addresses)] = addresses.astype(np.uint64).tobytes()
        emulator.map(0x1000, pages, 7)
        emulator.map(0x10_0000, data, READ | WRITE)
        emulator.map(0x80_0000, table, READ)
        caches = Caches(emulator, near, far)
        emulator.begin(0x1000, (0x80_0000, 0, len(addresses)))
        emulator.go(60.0)
        found = caches.found()
    order: list[int] = []
    for place, address in enumerate(addresses.tolist()):
        order += [(0x80_0000 + 8 * place) // LINE, address // LINE]
    missed = misses(order, near)
    assert (found[0].all, found[1].all) == (len(missed), len(misses(missed, far)))


def misses(lines: list[int], cache: Cache) -> list[int]:
    sets: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)
    found, count = list[int](), cache.bytes // LINE // cache.ways
    for line in lines:
        own = sets[line % count]
        if line not in own:
            found.append(line)
        own[line] = None
        own.move_to_end(line)
        if len(own) > cache.ways:
            own.popitem(last=False)
    return found


def test_what_writes_beside_its_arrays_is_stopped() -> None:
    with Emulator() as emulator:
        pages = Pages(4096)
        pages.view()[:8] = np.array([0xF9000001, 0xD65F03C0], np.uint32).tobytes()  # str x1, [x0]; ret
        emulator.map(0x1000, pages, 7)
        emulator.begin(0x1000, (0x5000, 1))
        with pytest.raises(Stopped, match="UNMAPPED"):
            emulator.go(10.0)


def test_vectors_of_sve_are_on() -> None:
    with Emulator() as emulator:
        pages = Pages(4096)
        # index z0.s, #3, w13; mov w0, v0.s[1]; ret
        pages.view()[:12] = np.array([0x04AD4860, 0x0E0C3C00, 0xD65F03C0], np.uint32).tobytes()
        emulator.map(0x1000, pages, 7)
        emulator.begin(0x1000, ())
        assert emulator.go(10.0) == 3


def test_what_does_not_end_is_stopped() -> None:
    with Emulator() as emulator:
        pages = Pages(4096)
        pages.view()[:4] = np.array([0x14000000], np.uint32).tobytes()  # b .
        emulator.map(0x1000, pages, 7)
        emulator.begin(0x1000, ())
        with pytest.raises(Stopped, match="more than"):
            emulator.go(0.2)


@pytest.mark.parametrize("text", ["x86_64,znver4", "aarch64", "riscv64", "aarch64,neoverse-v2"])
def test_what_has_no_table_is_refused(text: str) -> None:
    with pytest.raises(Unsupported, match="cortex-a72"):
        core_of(Target.parse(text))


def test_a_target_has_its_own_caches() -> None:
    core = core_of(Target.parse("aarch64,cortex-a72,l1=16K,l2=2M"))
    assert (core.l1.bytes, core.l2.bytes, core.l3) == (16 << 10, 2 << 20, None)
