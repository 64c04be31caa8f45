"""Traffic that depends on where elements lie: rows apart in a line, and results stored piece by piece."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import te
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.kernels.nests import Nests, Tiles
from tilewright.kernels.tiling import Order
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,emeraldrapids,l1=48K,l2=2M,l3=260M")


def nest_of(result: te.Tensor) -> Tiles:
    (nest,) = open_space(Schedule(te.create_schedule(result).program), TARGET).nests
    assert isinstance(nest, Tiles)
    return nest


def batched_product(batch: int, rows: int, depth: int, columns: int) -> Tiles:
    """A product with weights in panels of 32 columns."""
    a = te.placeholder((batch, rows, depth), "float32", name="a")
    b = te.placeholder((batch, columns // 32, depth, 32), "float32", name="b")
    k = te.reduce_axis((0, depth), name="k")
    return nest_of(
        te.compute(
            (batch, rows, columns),
            lambda n, i, j: te.sum(a[n, i, k] * b[n, j // 32, k, j % 32], axis=k),
            name="c",
        )
    )


def order_of(nest: Tiles) -> Order:
    (choice,) = best(Nests((nest,)), TARGET)
    return Order(choice[[knob.name for knob in nest.knobs].index("order")])


@pytest.mark.parametrize(("batch", "order"), [(16, Order.ROWS_COLUMNS), (1, Order.COLUMNS_ROWS)])
def test_results_beyond_the_second_cache_are_stored_row_by_row(batch: int, order: Order) -> None:
    assert order_of(batched_product(batch, 512, 32, 512)) is order


def test_long_sums_do_not_depend_on_how_they_are_stored() -> None:
    assert order_of(batched_product(16, 1024, 1024, 1024)) is Order.COLUMNS_ROWS


def strided(stride: int) -> Tiles:
    """A convolution of 16 images in blocks of filters, with a single tap."""
    x = te.placeholder((16, 128, 14 * stride, 14 * stride), "float32", name="x")
    w = te.placeholder((16, 128, 16), "float32", name="w")
    k = te.reduce_axis((0, 128), name="k")
    return nest_of(
        te.compute(
            (16, 16, 14, 14, 16),
            lambda n, p, i, j, f: te.sum(x[n, k, i * stride, j * stride] * w[p, k, f], axis=k),
            name="y",
        )
    )


def test_rows_that_lie_apart_bring_whole_lines() -> None:
    """All data of stride 2 do not stay in the second cache while the panels pass; those of stride 1 do."""
    assert order_of(strided(1)) is Order.PANEL_FIRST
    assert order_of(strided(2)) is not Order.PANEL_FIRST
    apart = strided(2)
    together = replace(apart, facts=replace(apart.facts, row_bytes=apart.facts.itemsize))
    population = apart.population()
    first = population.column("order") == Order.PANEL_FIRST.value
    more = estimate(apart, population, TARGET) - estimate(together, population, TARGET)
    assert np.all(more[first] > 0)
