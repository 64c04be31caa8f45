"""Blocks that move elements across are found, and computed in squares; others stay as they are."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tilewright.backend.cpu.image import kernel_text
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.graph import Graph, evaluate_graph
from tilewright.kernels.transposes import crossed_axis, shortest_run
from tilewright.loops.lower import lower
from tilewright.schedule.tree import all_blocks
from tilewright.symbolic.expr import Expr
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor

HOST = Target.host()
WIDTH = HOST.vector_bits // 32


def crossed(shape: tuple[int, ...], made: Tensor) -> int | None:
    assert len(made.shape) == len(shape)
    (block,) = all_blocks(lower([made]).body)
    return crossed_axis(block, 8)


def test_what_crosses() -> None:
    a, b = te.placeholder((32, 64), name="a"), te.placeholder((64,), name="b")

    def of(*shape: int, read: Callable[..., Expr]) -> int | None:
        return crossed(shape, te.compute(shape, read))

    def transposed(i: Expr, j: Expr) -> Expr:
        return a[j, i]

    assert of(64, 32, read=transposed) == 0
    assert of(64, 32, read=lambda i, j: a[j, i] * b[i] + 1.0) == 0
    assert of(64, 32, read=lambda i, j: a[j, i % 16]) == 0
    assert of(60, 32, read=lambda i, j: a[j, i + 4]) == 0
    assert of(32, 64, read=lambda i, j: a[i, j]) is None
    assert of(64, 32, read=lambda i, j: a[j, i % 4]) is None  # too short
    assert of(64, 32, read=lambda i, j: a[j, j]) is None
    assert of(64, 32, read=lambda i, j: a[j, i] + a[i // 2, j]) is None  # one of them would be scattered
    assert of(64, 32, read=lambda i, j: a[j, (i * 3) % 64]) is None
    assert of(64, 2, read=transposed) is None
    assert of(3, 32, read=transposed) is None


def test_runs_of_narrower_blocks() -> None:
    a = te.placeholder((3, 20, 16), name="a")

    def of(width: int, read: Callable[[Expr, Expr], Expr]) -> int | None:
        (block,) = all_blocks(lower([te.compute((20, width), read)]).body)
        return shortest_run(block)

    assert of(48, lambda i, j: a[j // 16, i, j % 16]) == 16
    assert of(48, lambda i, j: a[j // 16, i, j % 16] + a[j // 16, i, j % 8]) == 8
    assert of(16, lambda i, j: a[0, i, j % 16]) is None
    assert of(20, lambda i, j: a[0, i, i % 16] + a[0, j, i % 8]) is None


@pytest.mark.parametrize("target", [HOST, HOST.restricted("avx2")])
@pytest.mark.parametrize("shape", [(2, WIDTH, 5), (1, 3 * WIDTH + 4, 2 * WIDTH), (3, 40, 49), (2, 33, 31)])
def test_transposes_in_squares(shape: tuple[int, ...], target: Target) -> None:
    x = value("x", *shape)
    node = apply("Transpose", [x], "y", perm=(0, 2, 1))
    scaled = apply("Relu", node.outputs, "z")
    for nodes in ((node,), (node, scaled)):
        graph = Graph("g", (x,), nodes[-1].outputs, nodes, {})
        feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        compiled = compile_graph(graph, Options(target, threads=2))
        (result,) = compiled.executable.run(feeds)
        np.testing.assert_array_equal(result, evaluate_graph(graph, feeds)[0])
        if target is HOST and shape[1] % WIDTH == 0 == shape[2] % WIDTH:
            text = kernel_text(compiled.kernels[0].program).text
            assert "gather" not in text
            assert "scatter" not in text
