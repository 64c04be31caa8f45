"""Tasks of a model: each distinct convolution once, with all of its alternatives."""

import numpy as np
import pytest

from tests.closeness import assert_near
from tests.passes.graphs import apply, value
from tests.passes.networks import HOST, LANES, conv
from tilewright.base.numerics import Math
from tilewright.graph import Graph, Value
from tilewright.loops.interpreter import interpret
from tilewright.measure.build import image_of
from tilewright.passes.choose import choose
from tilewright.target.target import Target
from tilewright.tune.spaces import kernel_space
from tilewright.tune.tasks import tasks


def network(size: int = 12, lanes: int = LANES) -> Graph:
    """Two equal convolutions of 3x3, one of 1x1, and what comes between."""
    known: dict[Value, np.ndarray] = {}
    x = value("x", 1, 2 * lanes, size, size)
    first = conv(known, x, 2 * lanes, "a")
    between = apply("Relu", first.outputs, "r")
    second = conv(known, between.outputs[0], 2 * lanes, "b")
    last = conv(known, second.outputs[0], lanes, "c", kernel=1)
    return Graph("g", (x,), last.outputs, (first, between, second, last), known)


@pytest.mark.parametrize("math", [Math.DEFAULT, Math.STRICT])
def test_equal_convolutions_are_one_task(math: Math) -> None:
    target = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")
    assert [task.weight for task in tasks(choose(network(lanes=16), target, math))] == [2, 1]


def test_all_alternatives_are_routes_and_the_chosen_one_is_first() -> None:
    choices = choose(network(), HOST)
    task = tasks(choices)[0]
    names = [route.name for route in task.routes]
    assert len(set(names)) == len(names)
    assert {"direct, in blocks", "direct, plain"} <= set(names)
    assert any("F(" in name for name in names)
    chosen = choices.states[network().nodes[0].outputs[0]].way
    assert str(chosen).startswith(task.routes[0].name)


def test_strict_numerics_have_no_minimal_filtering() -> None:
    found = tasks(choose(network(), HOST, Math.STRICT))
    assert not any("F(" in route.name for task in found for route in task.routes)


def test_routes_can_be_built() -> None:
    for task in tasks(choose(network(), HOST)):
        for route in task.routes:
            before_and_after = "F(" in route.name
            before_or_after = "gathered taps" in route.name or "products of taps" in route.name
            assert len(route.kernels) == 1 + 2 * before_and_after + before_or_after
            for kernel in route.kernels:
                space = kernel_space(kernel, HOST)
                image_of(space.schedule(space.analytic()).program, HOST).executable(1)


def test_direct_routes_compute_the_convolution() -> None:
    """For data and weights that are stored as each of them wants."""
    *_, task = tasks(choose(network(6), HOST))
    random = np.random.default_rng(0)
    data = random.standard_normal((1, 2 * LANES, 6, 6)).astype(np.float32)
    weight = random.standard_normal((LANES, 2 * LANES, 1, 1)).astype(np.float32)
    wanted = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], data)
    routes = [route for route in task.routes if route.name.startswith("direct")]
    assert len(routes) == 2
    for route in routes:
        (kernel,) = route.kernels
        in_blocks = "in blocks" in route.name
        stored = (data, weight)
        if in_blocks:
            stored = (channels_in_blocks(data, 1), channels_in_blocks(channels_in_blocks(weight, 1), 0))
        feeds = {
            buffer.name: array.reshape([int(str(extent)) for extent in buffer.shape])
            for buffer, array in zip(kernel.inputs, stored, strict=True)
        }
        found = interpret(kernel, feeds)[kernel.results[0].name]
        plain = np.moveaxis(found.reshape(1, 6, 6, LANES), -1, 1) if in_blocks else found
        assert_near(plain, wanted, 1e-4)


def channels_in_blocks(array: np.ndarray, axis: int) -> np.ndarray:
    """The axis in blocks of ``LANES``, which go last."""
    shape = array.shape
    split = array.reshape(*shape[:axis], shape[axis] // LANES, LANES, *shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(split, axis + 1, -1))
