"""Traffic that depends on where elements lie: rows apart in a line, and results stored piece by piece."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import te
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.cost.pieces import are_evicted
from tilewright.kernels.nests import Nests, Tiles
from tilewright.kernels.tiling import Order
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,emeraldrapids,l1=48K,l2=2M,l3=260M")
ZEN3 = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M")


def nest_of(result: te.Tensor, target: Target = TARGET) -> Tiles:
    (nest,) = open_space(Schedule(te.create_schedule(result).program), target).nests
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


def depthwise(images: int, channels: int, size: int, stride: int) -> Tiles:
    """A window of 3 x 3 over each channel."""
    x = te.placeholder((images, channels, size + 2, size + 2), "float32", name="x")
    w = te.placeholder((channels, 3, 3), "float32", name="w")
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    places = size // stride
    return nest_of(
        te.compute(
            (images, channels, places, places),
            lambda n, c, i, j: te.sum(x[n, c, i * stride + r, j * stride + s] * w[c, r, s], axis=(r, s)),
            name="y",
        )
    )


def window(nest: Tiles) -> dict[str, int]:
    (choice,) = best(Nests((nest,)), ZEN3)
    return dict(zip((knob.name for knob in nest.knobs), choice, strict=True))


def test_windows_go_along_rows_of_images() -> None:
    """A strip of columns has a line of each row, and no processor foresees the next one."""
    assert Order(window(depthwise(1, 32, 112, 1))["order"]) is Order.ROWS_COLUMNS


def test_windows_over_data_from_memory_read_few_rows_side_by_side() -> None:
    near, far = window(depthwise(1, 64, 112, 2)), window(depthwise(16, 64, 112, 2))
    assert near["rows"] > far["rows"]
    assert 2 * (far["rows"] - 1) + 3 <= ZEN3.machine.foreseen_rows + 1


def padded_columns(columns: int) -> Tiles:
    """A product of 466 rows with weights of so many columns, whose rows have 16 elements."""
    a = te.placeholder((466, 462), "float32", name="a")
    b = te.placeholder((1, 462, 16), "float32", name="b")
    k = te.reduce_axis((0, 462), name="k")
    return nest_of(
        te.compute((466, columns), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="c"), ZEN3
    )


def test_all_columns_of_a_row_are_no_piece_of_it() -> None:
    """Nine of 16 elements: lines are read one after the other, as for eight of 16 they are not."""
    nest = padded_columns(9)
    assert nest.facts.row_length == 16
    population = nest.population()
    whole = population.column("lanes") == 16
    together = replace(nest, facts=replace(nest.facts, row_length=0))
    more = estimate(nest, population, ZEN3) - estimate(together, population, ZEN3)
    assert np.all(more[whole] == 0)
    assert np.all(more[~whole] > 0)
    assert window(nest)["lanes"] == 16


def matrices(batch: int, columns: int) -> Tiles:
    """``batch`` products of 279 x 8 by 8 x columns, both known at run time only."""
    a = te.placeholder((batch, 279, 8), "float32", name="a")
    b = te.placeholder((batch, 8, columns), "float32", name="b")
    k = te.reduce_axis((0, 8), name="k")
    return nest_of(
        te.compute((batch, 279, columns), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="c"), ZEN3
    )


def test_a_matrix_of_a_batch_stays_in_cache_while_its_rows_are_multiplied() -> None:
    """12 of 58 KB exceed the second cache, but not one: so each row of the result is stored as a whole. Of one matrix
    of 4 MB, pieces would come anew for each tile of rows."""
    assert Order(window(matrices(12, 1809))["order"]) is Order.ROWS_COLUMNS
    assert Order(window(matrices(1, 125_000))["order"]) is not Order.ROWS_COLUMNS


def column_sums(rows: int, columns: int) -> Tiles:
    x = te.placeholder((rows, columns), "float32", name="x")
    r = te.reduce_axis((0, rows), name="r")
    return nest_of(te.compute((columns,), lambda j: te.sum(x[r, j], axis=r), name="y"), ZEN3)


def test_sums_of_rows_beyond_the_second_cache_read_wide_pieces() -> None:
    """Of 40 images at a time, tiles could have as many sums; but each has rows of its own, far apart."""
    x = te.placeholder((40, 88, 64), "float32", name="x")
    r = te.reduce_axis((0, 88), name="r")
    nest = nest_of(te.compute((40, 64), lambda n, j: te.sum(x[n, r, j], axis=r), name="y"), ZEN3)
    assert window(nest)["lanes"] == 4 * ZEN3.lanes(32)


def test_sums_of_columns_are_as_wide_as_registers_allow() -> None:
    """Nothing slides: several sums at a time hide the latency of each, and read whole lines."""
    assert window(column_sums(14, 2432))["lanes"] == 4 * ZEN3.lanes(32)
    assert window(column_sums(184, 10))["lanes"] == ZEN3.lanes(32)
    assert window(depthwise(1, 32, 112, 1))["lanes"] == TARGET.lanes(32)


@pytest.mark.parametrize(
    ("pieces", "distance", "bytes_of_piece", "are_lost"),
    [
        (9, 4096, 64, True),
        (7, 4096, 64, False),
        (9, 4096 + 64, 64, False),
        (400, 4096 + 64, 64, False),
        (33, 1024, 64, True),
        (28, 3 * 1024, 64, False),
        (300, 4 * 63, 128, True),
    ],
)
def test_pieces_that_share_sets_evict_one_another(
    pieces: int, distance: int, bytes_of_piece: int, are_lost: bool
) -> None:
    """Eight ways of 4,096 bytes. Replayed on a cache that evicts what was used least recently."""
    assert bool(are_evicted(pieces, distance, np.array(bytes_of_piece), ZEN3)) is are_lost
    lines = [place * distance // 64 + line for place in range(pieces) for line in range(-(-bytes_of_piece // 64))]
    sets: dict[int, list[int]] = {}
    missed = 0
    for turn in range(2):
        for line in lines:
            kept = sets.setdefault(line % 64, [])
            if line in kept:
                kept.remove(line)
            else:
                missed += turn
            kept.append(line)
            del kept[:-8]
    assert (missed > 0) is are_lost
