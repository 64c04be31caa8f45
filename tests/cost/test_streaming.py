"""Panels that come from memory for few rows are asked for ahead, by a tile that has much to do meanwhile."""

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tilewright.base.target import Target
from tilewright.cost.model import best
from tilewright.driver import Options, compile_graph
from tilewright.graph import Graph
from tilewright.kernels.contraction import Roles
from tilewright.kernels.nests import Registers, TileFacts, Tiles, tile_knobs
from tilewright.kernels.space import Knob, Space

HOST = Target.host()
TARGET = Target.parse("x86_64,znver5")


@pytest.mark.parametrize(("rows", "size", "expected"), [(4, 1024, True), (4, 64, False), (128, 1024, False)])
def test_what_is_streamed(rows: int, size: int, expected: bool) -> None:
    """A large matrix for few rows; a small one stays in cache, and many rows hide where a panel comes from."""
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


def test_the_tile_that_waits_for_a_stream_has_most_rows() -> None:
    """Of 16 rows: 8 and 8 would wait for memory and then have as much to do again, 12 and 4 hide it."""
    registers = Registers(32, 16)
    for rows in (1, 5, 8, 16, 32):
        facts = TileFacts(512, rows, 1, 1, 1, 256, 4, streamed=1 << 24)
        nest = Tiles("product", knobs_of(facts, registers), Roles(1, 0), facts, registers, parallel=False)
        (choice,) = best(Space((nest,)), TARGET).choices
        values = dict(zip((knob.name for knob in nest.knobs), choice, strict=True))
        assert values["prefetch"]
        assert values["rows"] >= min(rows, 11)


def knobs_of(facts: TileFacts, registers: Registers) -> tuple[Knob, ...]:
    return (*tile_knobs(facts, registers), Knob("unroll", (0,)), Knob("pack", (0,)), Knob("prefetch", (0, 1)))


def test_panels_are_streamed_as_they_lie() -> None:
    """Of a vector and a matrix in wide panels, a tile takes whole rows of a panel: narrower ones jump in memory."""
    registers = Registers(32, 16)
    facts = TileFacts(2600, 1, 1, 1, 1, 650, 4, streamed=1 << 23, panel_width=64)
    nest = Tiles("product", knobs_of(facts, registers), Roles(1, 0), facts, registers, parallel=False)
    (choice,) = best(Space((nest,)), TARGET).choices
    assert choice[0] == 64
