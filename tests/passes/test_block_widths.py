"""How many registers blocks of channels fill, by what a graph computes and puts together."""

import pytest

from tests.passes import graphs
from tilewright.base.dtypes import bf16, i8, u8
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops.operator import require
from tilewright.passes.block_widths import blocks_of
from tilewright.passes.blocks import width_of
from tilewright.passes.precision import WIDE, Narrow
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

UNIT = Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")
ZEN5 = Target.parse("x86_64,znver5")


def put_together(*channels: int) -> Graph:
    """A convolution of bytes, and values of so many ``channels`` that are put together."""
    x, weight = (Value(name, dtype, tuple(map(const, shape))) for name, dtype, shape in SUM)
    (sums,) = [make_node(require("ConvInteger"), [x, weight, None, None], ["sums"], {"pads": (0, 0, 0, 0)})]
    parts = [graphs.value(f"x{place}", 1, count, 8, 8) for place, count in enumerate(channels)]
    nodes: list[Node] = [sums, graphs.apply("Concat", parts, "y", axis=1)] if parts else [sums]
    return Graph("g", (x, *parts), nodes[-1].outputs, tuple(nodes), {})


SUM = (("x", u8, (1, 64, 8, 8)), ("w", i8, (64, 64, 1, 1)))


def widths(graph: Graph, *channels: int, narrow: Narrow = WIDE, target: Target = UNIT) -> list[int]:
    blocks = blocks_of(graph, narrow, target)
    return [width_of(graphs.value("v", 1, count, 8, 8), blocks) for count in channels]


def test_bytes_fill_rows_of_a_matrix_unit() -> None:
    assert widths(put_together(), 64, 96, 48, 24, 1280) == [64, 32, 16, 32, 64]
    assert widths(put_together(), 64, 96, 48, target=ZEN5) == [16, 16, 16]
    assert widths(put_together(), 64, 96, 48, narrow=Narrow(bf16)) == [32, 32, 16]
    floats = Graph("g", (), (), (), {})
    assert widths(floats, 64) == [16]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((64, 128), [64, 64]),
        ((64, 96), [32, 32]),
        ((64, 80), [64, 16]),  # these are copied
        ((64, 20), [64, 32]),
    ],
)
def test_what_is_put_together_has_blocks_of_one_width(parts: tuple[int, ...], expected: list[int]) -> None:
    assert widths(put_together(*parts), *parts) == expected


def test_the_widths_of_what_is_put_together_again_follow() -> None:
    first = put_together(64, 192)
    x = graphs.value("z", 1, 32, 8, 8)
    second = graphs.apply("Concat", [first.outputs[0], x], "again", axis=1)
    graph = Graph("g", (*first.inputs, x), second.outputs, (*first.nodes, second), {})
    assert widths(graph, 64, 192, 256, 32, 288, 128) == [32, 32, 32, 32, 32, 64]
