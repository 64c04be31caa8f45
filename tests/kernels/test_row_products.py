"""Sums of products of rows: lanes along the reduction, without copies; results are those of NumPy and ONNX Runtime."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.backend.cpu.support import run_native
from tests.frontend.models import run_onnxruntime
from tests.kernels.test_run_time_panels import transposed
from tilewright.cost.analytic import open_space
from tilewright.kernels.nests import Tiles
from tilewright.kernels.row_products import RowProducts
from tilewright.kernels.schedules import inline_all
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import allocations
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef
from tilewright.target.target import Target
from tilewright.tensor import build as te

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=1")
HOST = Target.host()


def f(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def program(rows: int, columns: int, inner: int) -> Program:
    """``a @ transpose(b) + c``."""
    shapes = {"a": (rows, inner), "b": (columns, inner), "c": (columns,)}
    a, b, c = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    across, k = te.compute((inner, columns), lambda k, n: b[n, k], name="across"), te.reduce_axis((0, inner), name="k")
    product = te.compute((rows, columns), lambda m, n: te.sum(a[m, k.var] * across[k.var, n], axis=k), name="product")
    result = te.compute((rows, columns), lambda m, n: product[m, n] + c[n], name="result")
    return lower([result], name="kernel", inputs=[a, b, c])


@pytest.mark.share(2)
@pytest.mark.parametrize(("rows", "columns", "inner"), [(1, 9, 40), (3, 7, 16), (5, 11, 23), (9, 10, 5)])
def test_every_tile_keeps_the_meaning(rows: int, columns: int, inner: int) -> None:
    naive = program(rows, columns, inner)
    arrays = {"a": f(rows, inner), "b": f(columns, inner), "c": f(columns)}
    wanted = arrays["a"] @ arrays["b"].T + arrays["c"]
    for place in range(4):
        s = Schedule(naive)
        inline_all(s, keep=frozenset())
        nest = RowProducts.of(s, BlockRef("product"), TARGET, parallel=False)
        assert nest is not None
        population = nest.population()
        nest.schedule(s, dict(zip(population.names, population[place * (len(population) - 1) // 3], strict=True)))
        np.testing.assert_allclose(interpret(s.program, arrays)["result"], wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(run_native(s.program, arrays)[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "by_rows"),
    [(1, 512, 512, True), (7, 300, 1030, True), (128, 512, 512, False), (16, 1024, 64, False), (3, 1, 4096, True)],
)
def test_few_rows_without_a_copy(rows: int, columns: int, inner: int, by_rows: bool) -> None:
    s = Schedule(program(rows, columns, inner))
    *_, nest = open_space(s, TARGET).nests
    assert isinstance(nest, RowProducts if by_rows else Tiles)
    made = {alloc.buffer.name for alloc in allocations(s.program.body)[0]}
    assert ("across" in made) is not by_rows


@pytest.mark.parametrize("target", [HOST, HOST.restricted("avx2")], ids=["host", "avx2"])
@pytest.mark.parametrize(
    "shapes",
    [((1, 130), (70, 130)), ((5, 37), (83, 37)), ((2, 3, 40), (2, 50, 40)), ((2, 1, 1, 64), (3, 77, 64))],
    ids=str,
)
def test_models(shapes: tuple[tuple[int, ...], ...], target: Target) -> None:
    proto, feeds = transposed(*shapes)
    model = tilewright.compile(proto, target=target, threads=1)
    (found,) = model.run(None, feeds)
    (wanted,) = run_onnxruntime(proto, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
