"""Strips of images in plain layout are pieces that lie apart: they are wide, and the next one is asked for."""

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tilewright import te
from tilewright.compilation import Options
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.kernels.nests import Nests, Tiles
from tilewright.kernels.panels_ahead import LINE_BYTES
from tilewright.kernels.tiling import Order
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,graniterapids,l1=48K,l2=2M,l3=480M")


def tiles(images: int, channels: int, filters: int, places: int) -> Tiles:
    """The nest of products of all places of images with filters."""
    x = te.placeholder((images, channels, places), "float32", name="x")
    w = te.placeholder((filters, channels), "float32", name="w")
    k = te.reduce_axis((0, channels), name="k")
    y = te.compute((images, filters, places), lambda n, f, p: te.sum(x[n, k, p] * w[f, k], axis=k), name="y")
    (nest,) = open_space(Schedule(te.create_schedule(y).program), TARGET).nests
    assert isinstance(nest, Tiles)
    return nest


def chosen(nest: Tiles) -> dict[str, int]:
    """The analytic choice."""
    (choice,) = best(Nests((nest,)), TARGET)
    return dict(zip((knob.name for knob in nest.knobs), choice, strict=True))


def test_terms_lie_as_far_apart_as_an_image_has_places() -> None:
    assert tiles(2, 8, 16, 49).facts.row_length == 49


@pytest.mark.parametrize("packed", [True, False])
def test_matrices_and_packed_panels_have_facts_of_their_own(packed: bool) -> None:
    a = te.placeholder((8, 32), "float32", name="a")
    b = te.placeholder((4, 32, 16) if packed else (32, 64), "float32", name="b")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute(
        (8, 64), lambda i, j: te.sum(a[i, k] * (b[j // 16, k, j % 16] if packed else b[k, j]), axis=k), name="c"
    )
    (nest,) = open_space(Schedule(te.create_schedule(c).program), TARGET).nests
    assert isinstance(nest, Tiles)
    assert nest.facts.row_length == 0
    assert nest.facts.is_row_major is not packed


@pytest.mark.parametrize("images", [4, 16])
def test_strips_of_one_image_are_preferred_to_those_of_several(images: int) -> None:
    """Both fill as many registers; those of several images have twice as many pieces."""
    assert chosen(tiles(images, 96, 32, 1024))["panels"] == 1


def test_pieces_that_come_from_memory_are_as_long_as_registers_permit() -> None:
    near, far = chosen(tiles(1, 64, 64, 12544)), chosen(tiles(16, 64, 64, 50176))
    assert (near["lanes"], far["lanes"]) == (32, 64)
    assert far["prefetch"] == near["prefetch"] == 2
    assert far["order"] == Order.COLUMNS_ROWS.value


def test_the_next_strip_is_asked_for() -> None:
    """An image larger than the second cache, in a model; where strips end in an image, too."""
    x, w = value("x", 1, 48, 115, 101), value("w", 20, 48, 1, 1)
    random = np.random.default_rng(0)
    weights = random.standard_normal(tuple(map(int, map(str, w.shape))), np.float32)
    node = apply("Conv", [x, w], "y")
    compiled = compile_graph(Graph("g", (x,), node.outputs, (node,), {w: weights}), Options(TARGET, threads=1))
    (kernel,) = compiled.kernels
    steps = {parameter.name: kernel.program.prefetched(parameter.name) for parameter in kernel.program.params}
    (ahead,) = {step for step in steps.values() if step}
    assert any(all(asks_for_all(begin, ahead, places) for begin in range(0, LINE_BYTES, 4)) for places in (32, 64))
    assert ahead < 1 << 14


def asks_for_all(begin: int, ahead: int, places: int) -> bool:
    """Whether a strip that begins there, and what its vectors ask for, have all lines of the next strip."""
    size = 4 * places
    asked = {(begin + ahead + offset) // LINE_BYTES for offset in range(0, size, LINE_BYTES)}
    here, following = (
        set(range(start // LINE_BYTES, (start + size - 1) // LINE_BYTES + 1)) for start in (begin, begin + size)
    )
    return following <= here | asked
