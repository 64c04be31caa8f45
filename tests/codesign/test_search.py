"""The search for a configuration: against all of a small space, and never worse than a preset of the same area."""

from dataclasses import replace
from itertools import product

import pytest

from tilewright.backend.vta.config import TINY, VTA, Config
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.convolution import loop_program
from tilewright.backend.vta.schedules import chosen, estimate
from tilewright.backend.vta.schedules.tiling import shape_of
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.estimate import estimated
from tilewright.backend.vta.synthesis.families import ECP5
from tilewright.base.errors import BadInput
from tilewright.codesign import LayerNetwork, search
from tilewright.codesign.networks import Layer
from tilewright.codesign.screening import Screen
from tilewright.codesign.space import ACC, INP, UOP, WGT, Blocks, Space

LAYERS = (Layer(6, 6, 16, 16, 3, padding=1, calls=2), Layer(6, 6, 16, 32), Layer(1, 9, 32, 16))
OWN = Config("own", block_in=8, block_out=8, uop_bytes=1 << 12, inp_bytes=1 << 12, wgt_bytes=1 << 14, acc_bytes=1 << 14)
CHIP = ECP5.chip("85k").area


def small_space(bound: Area = CHIP, base: Config = VTA) -> Space:
    depths = {UOP: (512,), INP: (16, 64, 256), WGT: (16, 64), ACC: (32, 256)}
    return Space(Design(base), ECP5, bound, (Blocks(1, 4, 4), Blocks(1, 4, 8), Blocks(1, 8, 8)), depths)


def all_designs(space: Space) -> list[Design]:
    return [design for blocks in space.blocks for design in space.designs(blocks)]


def test_designs_are_all_that_fit() -> None:
    space = small_space()
    found = all_designs(space)
    assert len(found) == 3 * 12
    assert len({design.config for design in found}) == len(found)
    assert {design.config.depth(WGT) for design in found} == {16, 64}
    bound = replace(CHIP, dsps=40)  # 8 x 8 takes 72, 4 x 8 takes 40
    assert {Blocks.of(design.config) for design in all_designs(small_space(bound))} == {
        Blocks(1, 4, 4),
        Blocks(1, 4, 8),
    }
    few = all_designs(small_space(replace(CHIP, rams=space.area(found[-1]).rams - 1)))
    assert 0 < len(few) < len(found)
    assert all(space.area(design).rams < space.area(found[-1]).rams for design in few)


def test_addresses_that_instructions_have_no_room_for_are_left_out() -> None:
    space = Space.of(Design(VTA), ECP5, replace(CHIP, rams=10_000))
    deep = dict.fromkeys((INP, WGT, ACC), 8192)
    assert space.design(Blocks(1, 4, 4), {**deep, UOP: 512}) is None  # 39 bits of 32
    assert space.design(Blocks(1, 4, 4), {INP: 1024, ACC: 2048, WGT: 1024, UOP: 512}) is not None


def test_neighbours_differ_in_one_memory_or_trade_two() -> None:
    space = small_space()
    design = space.design(Blocks(1, 4, 4), {UOP: 512, INP: 64, WGT: 16, ACC: 32})
    assert design is not None
    found = [tuple(item.config.depth(pad) for pad in (INP, WGT, ACC)) for item in space.neighbours(design)]
    assert found == []  # depths of this space are further apart
    usual = replace(space, depths={pad: tuple(1 << power for power in range(4, 11)) for pad in (UOP, INP, WGT, ACC)})
    found = [tuple(item.config.depth(pad) for pad in (INP, WGT, ACC)) for item in usual.neighbours(design)]
    assert (128, 16, 32) in found
    assert (32, 16, 32) in found
    assert (32, 32, 32) in found
    assert (64, 16, 32) in found  # other depths of the micro-op memory
    assert (64, 16, 256) not in found


@pytest.mark.parametrize("blocks", small_space().blocks, ids=str)
def test_screening_is_the_analytic_choice(blocks: Blocks) -> None:
    space = small_space()
    timing = space.base.timing
    screen = Screen.of(LAYERS, space.unlimited(blocks), timing)
    for design in space.designs(blocks):
        config, total = design.config, 0.0
        for layer in LAYERS:
            naive = loop_program(layer.blocked(config), config)
            tiles = chosen(naive, config, timing)
            total += layer.calls * estimate(shape_of(naive, config), tiles, config, timing)
        assert screen.estimate(config) == pytest.approx(total)


def test_what_does_not_fit_is_infinite() -> None:
    space = small_space()
    screen = Screen.of((Layer(6, 6, 4, 4, 5, padding=2),), space.unlimited(Blocks(1, 4, 4)), space.base.timing)
    small = space.design(Blocks(1, 4, 4), {UOP: 512, INP: 256, WGT: 16, ACC: 256})  # 25 tiles of weights
    assert small is not None
    assert screen.estimate(small.config) == float("inf")


def test_the_best_of_a_small_space() -> None:
    space, network = replace(small_space(), blocks=(Blocks(1, 4, 8),)), LayerNetwork(LAYERS)
    cycles = {design.config: network.cycles(design) for design in all_designs(space)}
    found = search(network, space, rated=len(cycles))
    assert found.best.cycles == min(number for number in cycles.values() if number is not None)
    assert all(item.cycles == cycles[item.design.config] for item in found.rated)


def test_nothing_that_was_rated_is_better_than_the_front() -> None:
    found = search(LayerNetwork(LAYERS), small_space(), rated=8)
    assert found.screened == 36
    assert found.best == found.front[0]
    for item, other in product(found.rated, found.front):
        assert item.microseconds >= other.microseconds or item.share >= other.share
    for faster, slower in zip(found.front, found.front[1:], strict=False):
        assert faster.microseconds <= slower.microseconds
        assert faster.share > slower.share


@pytest.mark.parametrize("preset", [TINY, pytest.param(OWN, marks=pytest.mark.slow)])
def test_never_worse_than_a_preset_of_the_same_area(preset: Config) -> None:
    """Also if next to nothing of the space is rated."""
    base = Design(preset)
    space, network = Space.of(base, ECP5, estimated(base, ECP5)), LayerNetwork(LAYERS[1:])
    found = search(network, space, (preset, VTA), rated=2)
    own = network.cycles(base)
    assert own is not None
    assert found.best.cycles <= own
    assert found.best.area.fits(space.bound)
    assert {item.design.config.name for item in found.rated} >= {preset.name}
    assert VTA.name not in {item.design.config.name for item in found.rated}


def test_presets_have_the_clock_of_the_others() -> None:
    base = Design(replace(TINY, clock_mhz=50))
    found = search(LayerNetwork(LAYERS[1:]), small_space(base=base.config), (replace(TINY, clock_mhz=200),), rated=1)
    assert {item.design.config.clock_mhz for item in found.rated} == {50}


def test_batches_count_images() -> None:
    """Two images at once take fewer cycles than twice one: weights are loaded once."""
    one = LayerNetwork(LAYERS[1:])
    base = replace(TINY, batch=2, inp_bytes=512, acc_bytes=2048)
    found = search(one, replace(small_space(base=base), blocks=(Blocks(2, 4, 4),)), rated=2)
    single = one.cycles(replace(found.best.design, config=replace(found.best.design.config, batch=1)))
    assert single is not None
    assert found.best.microseconds * 100 == found.best.cycles / 2 < single


def test_no_room() -> None:
    with pytest.raises(BadInput, match=r"no configuration within 10 LUTs, .* has room for the layers"):
        search(LayerNetwork(LAYERS), small_space(Area(10, 10, 10, 10)))
