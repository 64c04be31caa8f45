"""Panels that come from memory are asked for ahead, by a tile that has more to do meanwhile than a processor sees."""

from dataclasses import replace

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tilewright.compilation import Options
from tilewright.cost.model import best
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.kernels.contraction import Roles
from tilewright.kernels.nests import Nests, Registers, Tiles, tile_knobs
from tilewright.kernels.tile_facts import TileFacts
from tilewright.space.knobs import Knob
from tilewright.target.target import Target

HOST = replace(Target.host(), l1_bytes=32 << 10, l2_bytes=1 << 20)
TARGET = Target.parse("x86_64,znver4")


@pytest.mark.parametrize(("rows", "size", "expected"), [(16, 64, False), (16, 2048, True)])
def test_what_is_streamed(rows: int, size: int, expected: bool) -> None:
    """A large matrix; a small one stays in cache."""
    x, w = value("x", rows, size), value("w", size, size)
    random = np.random.default_rng(0)
    weights = random.standard_normal((size, size)).astype(np.float32)
    product = apply("MatMul", [x, w], "y")
    compiled = compile_graph(Graph("g", (x,), product.outputs, (product,), {w: weights}), Options(HOST, threads=1))
    (kernel,) = compiled.kernels
    assert bool(kernel.program.prefetched("p1")) is expected
    data = random.standard_normal((rows, size)).astype(np.float32)
    (result,) = compiled.executable.run({"x": data})
    np.testing.assert_allclose(result, data.astype(np.float64) @ weights, rtol=1e-4, atol=1e-3)


def chosen(facts: TileFacts, target: Target = TARGET) -> dict[str, int]:
    """The analytic choice."""
    registers = Registers(32, 16)
    nest = Tiles(
        "product", knobs_of(facts, registers), Roles(1, 0), facts, registers, parallel=False, stream_ahead=1 << 14
    )
    (choice,) = best(Nests((nest,)), target)
    return dict(zip((knob.name for knob in nest.knobs), choice, strict=True))


@pytest.mark.parametrize("rows", [1, 3, 8, 16])
def test_the_tile_that_waits_for_a_stream_asks_ahead(rows: int) -> None:
    """Into the second cache, if the first one does not keep until then what comes so early; not for few rows, if the
    processor is known to see so far ahead itself."""
    facts = TileFacts(512, rows, 1, 1, 1, 256, 4, streamed=1 << 24)
    caches = [chosen(facts, Target.parse(f"x86_64,{cpu}"))["prefetch"] for cpu in ("znver4", "znver3,l1=48K")]
    assert caches == ([2, 1] if rows >= 8 else [0, 1])


def test_the_tile_that_waits_for_a_stream_has_most_rows() -> None:
    """Of 16 rows: 8 and 8 would wait for memory and then have as much to do again, 12 and 4 hide it."""
    for rows in (1, 5, 8, 16, 32):
        values = chosen(TileFacts(512, rows, 1, 1, 1, 256, 4, streamed=1 << 24), Target.parse("x86_64,znver5"))
        assert values["prefetch"]
        assert values["rows"] >= min(rows, 11)


@pytest.mark.parametrize("cpu", ["znver4", "znver5"])
def test_what_is_read_often_is_not_asked_for(cpu: str) -> None:
    """Each tile of rows asks for it again: that takes longer than to wait once."""
    facts = TileFacts(512, 4000, 1, 1, 1, 256, 4, streamed=1 << 24)
    assert chosen(facts, Target.parse(f"x86_64,{cpu}"))["prefetch"] == 0


@pytest.mark.parametrize(("row_bytes", "l1", "most"), [(4096, "32K", 8), (12288, "32K", 8), (4096, "48K", 12)])
def test_rows_of_a_tile_have_places_in_the_first_cache(row_bytes: int, l1: str, most: int) -> None:
    """Rows that lie whole ways apart are in one set, which has as many places as the cache has ways."""
    facts = TileFacts(512, 96, 1, 1, 1, row_bytes // 4, 4)
    target = Target.parse(f"x86_64,znver4,l1={l1}")
    assert chosen(facts, target)["rows"] > most
    assert chosen(replace(facts, row_bytes=row_bytes), target)["rows"] <= most
    assert chosen(replace(facts, row_bytes=row_bytes + 64), target) == chosen(facts, target)


def knobs_of(facts: TileFacts, registers: Registers) -> tuple[Knob, ...]:
    more = Knob("unroll", (0,)), Knob("pack", (0,)), Knob("prefetch", (0, 1, 2)), Knob("slices", (1,))
    return (*tile_knobs(facts, registers), *more)


def test_panels_are_streamed_as_they_lie() -> None:
    """Of a vector and a matrix in wide panels, a tile takes whole rows of a panel: narrower ones jump in memory."""
    assert chosen(TileFacts(2600, 1, 1, 1, 1, 650, 4, streamed=1 << 23, panel_width=64))["lanes"] == 64
