"""Sketches for the accelerator: what is sampled fits and computes what the program does, also where no template is."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from tests.backend.vta.expressions import CONFIGS, EXPRESSIONS, SMALL, acc, like, narrow
from tilewright import te
from tilewright.backend.vta import LARGE, VTA, Config, Scratchpad, Timing
from tilewright.backend.vta.backend import Accelerator
from tilewright.backend.vta.layers import Convolution, convolution_sums, convolution_tensor, tiles
from tilewright.backend.vta.schedules import has_template
from tilewright.base.errors import BadInput, Unsupported
from tilewright.sketch.accelerator import sketch_space
from tilewright.target.target import Target

HOST = Target.host()


def batched(random: Random, config: Config) -> te.Tensor:
    """A product for each of some matrices."""
    batch, rows, columns, depth = (random.randint(1, 5) for _ in range(4))
    a = tiles((batch, depth, rows), Scratchpad.INP, config, "a")
    w = tiles((batch, columns, depth), Scratchpad.WGT, config, "w")
    k, i = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, config.block_in), "i")
    sums = te.compute(
        like((batch, columns, rows), config),
        lambda n, f, r, b, o: te.sum(
            te.cast(a[n, k, r, b, i], "int32") * te.cast(w[n, f, k, o, i], "int32"), axis=(k, i)
        ),
        name="sums",
    )
    return te.compute(sums.shape, lambda *at: narrow(sums[at] >> 5), name="batched")


def pooled_residual(random: Random, config: Config) -> te.Tensor:
    """A convolution and a residual, and of their sums the largest of each 2 x 2: windows that overlap, or do not."""
    size, step = random.randint(4, 7), random.choice((1, 2))
    layer = Convolution(size, size, random.randint(1, 3), 2, 3, padding=1)
    sums = convolution_sums(layer, config)
    shape = (2, size, size)
    other = acc(shape, config, "other")
    whole = te.compute(like(shape, config), lambda *at: (sums[at] >> 6) + te.cast(other[at], "int32"), name="whole")
    dy, dx = te.reduce_axis((0, 2), "dy"), te.reduce_axis((0, 2), "dx")
    outputs = (size - 2) // step + 1
    largest = te.compute(
        like((2, outputs, outputs), config),
        lambda c, y, x, b, o: te.max(whole[c, y * step + dy, x * step + dx, b, o], axis=(dy, dx)),
        name="largest",
    )
    return te.compute(largest.shape, lambda *at: narrow(largest[at], 0), name="pooled")


def projected(random: Random, config: Config) -> te.Tensor:
    """Two products, added."""
    rows, columns = random.randint(1, 9), random.randint(1, 4)
    found: list[te.Tensor] = []
    for name in ("first", "second"):
        depth = random.randint(1, 4)
        a = tiles((depth, rows), Scratchpad.INP, config, f"{name}_data")
        w = tiles((columns, depth), Scratchpad.WGT, config, f"{name}_weights")
        found.append(_product(a, w, (columns, rows), config, name))
    first, second = found
    return te.compute(first.shape, lambda *at: narrow((first[at] + second[at]) >> 6), name="projected")


def _product(a: te.Tensor, w: te.Tensor, shape: tuple[int, int], config: Config, name: str) -> te.Tensor:
    k, i = te.reduce_axis((0, int(str(a.shape[0]))), "k"), te.reduce_axis((0, config.block_in), "i")
    return te.compute(
        like(shape, config),
        lambda f, n, b, o: te.sum(te.cast(a[k, n, b, i], "int32") * te.cast(w[f, k, o, i], "int32"), axis=(k, i)),
        name=name,
    )


def pooled_twice(random: Random, config: Config) -> te.Tensor:
    """The largest of windows of the largest of windows."""
    size = random.randint(5, 9)
    value: te.Tensor = acc((2, size, size), config, "data")
    for name in ("once", "twice"):
        value, size = _largest(value, size, config, name), size - 1
    return value


def _largest(data: te.Tensor, size: int, config: Config, name: str) -> te.Tensor:
    dy, dx = te.reduce_axis((0, 2), "dy"), te.reduce_axis((0, 2), "dx")
    return te.compute(
        like((2, size - 1, size - 1), config),
        lambda c, y, x, b, o: te.max(data[c, y + dy, x + dx, b, o], axis=(dy, dx)),
        name=name,
    )


WITHOUT: dict[str, Callable[[Random, Config], te.Tensor]] = {
    one.__name__: one for one in (pooled_residual, projected, pooled_twice)
}
ALL = {**EXPRESSIONS, batched.__name__: batched, **WITHOUT}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
def test_samples_fit_and_equal_numpy(name: str, seed: int) -> None:
    """All are compiled; the device checks tokens of those that are run. Hardly any sketch refuses its candidates."""
    random, config = Random(f"{name} {seed}"), CONFIGS[seed % len(CONFIGS)]
    made = te.create_schedule(ALL[name](random, config))
    space = sketch_space(made.program, config, Timing(), HOST)
    sampled = space.sample(3 if seed == 0 else 12, np.random.default_rng(seed))
    assert len(sampled)
    assert space.allowed(sampled).all()
    for at, digits in enumerate(sampled):
        kernel = te.accelerate(made.scheduled(space.schedule(digits)), config)
        assert kernel.program.steps
        if at % 3 == 0:
            kernel.check(seed)


@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_template_has_a_schedule(name: str) -> None:
    result = WITHOUT[name](Random(name), VTA)
    assert not has_template(te.create_schedule(result).program)
    te.accelerate(result, VTA).check()


def test_back_ends_are_named_with_their_configuration() -> None:
    """A schedule that few trials found, and one of the estimates, for two configurations; others are refused."""
    result = batched(Random(1), VTA)
    tuned = te.autoschedule(result, backend="vta", space="sketches", trials=2, search="random")
    assert te.build(tuned, backend="vta").check()
    wide = batched(Random(1), LARGE)
    large = te.build(te.autoschedule(wide, backend="vta,large"), backend="vta,large")
    assert isinstance(large.origin.backend, Accelerator)
    assert large.origin.backend.config == LARGE
    assert large.check()
    with pytest.raises(BadInput, match="backend='vta,small': its configurations are osdi, vta, large"):
        te.build(tuned, backend="vta,small")
    with pytest.raises(Unsupported, match="accelerator vta can't compute main: tensorize"):
        te.autoschedule(wide, backend="vta")
    with pytest.raises(BadInput, match="schedules are chosen for cpu and vta, not for reference"):
        te.autoschedule(result, backend="reference")


def test_what_stays_the_same_can_stay_on_the_chip() -> None:
    """Of a layer with little to multiply, weights are loaded once, or for each of four tiles."""
    made = te.create_schedule(convolution_tensor(Convolution(8, 8, 2, 2, 1), VTA))
    (space,) = sketch_space(made.program, VTA, Timing(), HOST).members
    chosen = {"result.tile_0": 2, "result.tile_1": 4, "result.tile_2": 4, "result.thread_axis": 1, "result.threads": 2}
    chosen |= {"result.order": (0, 1, 2), "sums.depth_0": 1, "sums.depth_1": 1, "sums.depth_2": 1, "image.kept": 0}
    loaded: list[int] = []
    for kept in (0, 1):
        kernel = te.accelerate(made.scheduled(space.schedule(space.digits({**chosen, "filters_wgt.kept": kept}))), VTA)
        kernel.check()
        loaded.append(kernel.counters.loaded_wgt)
    assert loaded == [4 * 4 * 256, 4 * 256]


def test_candidates_that_do_not_fit_are_in_no_sample() -> None:
    """The memories of a small accelerator have room for few tiles of this layer; the largest ones are refused."""
    made = te.create_schedule(convolution_tensor(Convolution(5, 5, 4, 4, 3, padding=1), SMALL))
    (space,) = sketch_space(made.program, SMALL, Timing(), HOST).members
    largest = np.array([radix - 1 for radix in space.radices])
    assert not space.allowed(largest[None])[0]
    sampled = space.sample(3, np.random.default_rng(0))
    for digits in sampled:
        assert te.accelerate(made.scheduled(space.schedule(digits)), SMALL).program.steps


@pytest.mark.slow
@pytest.mark.parametrize("layer", [Convolution(14, 14, 16, 16, 3, padding=1), Convolution(28, 28, 4, 8, 1, 2)])
def test_the_first_choice_is_about_that_of_the_template(layer: Convolution) -> None:
    """It is one of more candidates, by an estimate of the same terms."""
    result = convolution_tensor(layer, VTA)
    found = te.accelerate(te.autoschedule(result, backend="vta", space="sketches"), VTA)
    assert found.cycles.total <= 1.02 * te.accelerate(result, VTA).cycles.total


def test_one_pixel_takes_as_long_as_its_weights() -> None:
    """A layer of 128 to 256 channels on an image of one pixel: 128 micro-ops, each with a tile of its own."""
    kernel = te.accelerate(convolution_tensor(Convolution(1, 1, 8, 16), VTA), VTA)
    assert kernel.counters.gemm == 8 * 16
    assert kernel.counters.loaded_wgt == 8 * 16 * 256
    assert kernel.cycles.total <= 1.1 * kernel.counters.loaded_wgt / Timing().bus_bytes
