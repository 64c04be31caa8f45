"""Copies of matrices that a kernel multiplies by are in panels; results are those of ONNX Runtime."""

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

import tilewright
from tests.frontend.models import model, run_onnxruntime
from tests.ops.nodes import NodeCase, check
from tilewright.kernels.packing import Group
from tilewright.kernels.relayout import Layouts
from tilewright.kernels.run_time_panels import copied_panels, with_copies
from tilewright.loops.visit import allocations
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Compute, Tensor, inputs_of

HOST = Target.host()
random = np.random.default_rng(3)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-1, 1, shape).astype(np.float32)


def product(b: Tensor, rows: int = 5) -> Tensor:
    a, k = te.placeholder((rows, b.shape[0]), name="a"), te.reduce_axis((0, b.shape[0]), name="k")
    return te.compute((rows, b.shape[1]), lambda m, n: te.sum(a[m, k.var] * b[k.var, n], axis=k), name="c")


def no_groups(op: Compute, source: Tensor, layouts: Layouts) -> None:
    """No instruction has several products."""


def test_what_is_copied() -> None:
    b = te.placeholder((40, 30), name="b")
    across = te.compute((30, 40), lambda k, n: b[n, k], name="across")
    rows = te.compute((20, 30), lambda k, n: b[k + 7, n], name="rows")
    half = te.compute((40, 15), lambda k, n: b[k, n * 2], name="half")
    scaled = te.compute((30, 40), lambda k, n: across[k, n] * 2.0, name="scaled")
    assert copied_panels([product(across)], {}, no_groups) == {across}
    assert copied_panels([product(half)], {}, no_groups) == {half}
    assert not copied_panels([product(b)], {}, no_groups)
    assert not copied_panels([product(rows)], {}, no_groups)
    assert not copied_panels([product(across), across], {}, no_groups)
    assert not copied_panels([product(across), product(across)], {}, no_groups)
    assert not copied_panels([product(scaled)], {}, no_groups)  # of what is computed itself


def test_what_an_instruction_groups_is_copied() -> None:
    b = te.placeholder((40, 30), name="b")
    rows = te.compute((20, 30), lambda k, n: b[k + 7, n], name="rows")
    made = product(rows)
    assert isinstance(made.op, Compute)
    group = Group(made.op.reduce_axis[0].var, 2)
    assert copied_panels([made], {}, lambda op, source, layouts: group if source is rows else None) == {rows}


def test_copies_of_placeholders() -> None:
    """A result of the kernel itself needs none."""
    b = te.placeholder((40, 30), name="b")
    twice = te.compute((40, 30), lambda k, n: b[k, n] * 2.0, name="twice")
    (made,) = with_copies([product(b)], [b])
    copy = next(source for source in inputs_of(made.op) if source.name == "b_copy")
    assert copied_panels([made], {}, lambda op, source, layouts: None) == set()
    assert inputs_of(copy.op) == (b,)
    kept = product(twice)
    assert with_copies([kept], [twice]) == [kept]


def transposed(*shapes: tuple[int, ...]) -> tuple[ModelProto, dict[str, NDArray[np.float32]]]:
    """``a @ transpose(b)``."""
    feeds = {name: f(*shape) for name, shape in zip("ab", shapes, strict=True)}
    rank = len(shapes[1])
    nodes = [
        helper.make_node("Transpose", ["b"], ["t"], perm=[*range(rank - 2), rank - 1, rank - 2]),
        helper.make_node("MatMul", ["a", "t"], ["y"]),
    ]
    return model(nodes, feeds, ["y"]), feeds


@pytest.mark.parametrize(
    "shapes",
    [
        ((128, 64), (128, 64)),
        ((37, 29), (83, 29)),
        ((3, 20, 48), (3, 100, 48)),
        ((2, 1, 9, 16), (3, 40, 16)),
        ((1, 70), (90, 70)),
        ((40, 6), (5, 6)),
        ((1, 4, 30, 64), (1, 4, 200, 64)),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", [HOST, HOST.restricted("avx2")], ids=["host", "avx2"])
def test_products_with_transposed_matrices(shapes: tuple[tuple[int, ...], ...], target: Target) -> None:
    proto, feeds = transposed(*shapes)
    (found,) = tilewright.compile(proto, target=target).run(None, feeds)
    (wanted,) = run_onnxruntime(proto, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flips", [{"transB": 1}, {"transA": 1}, {"transA": 1, "transB": 1}], ids=str)
def test_gemm(flips: dict[str, int]) -> None:
    left, right = ((30, 50) if flips.get("transA") else (50, 30)), ((90, 30) if flips.get("transB") else (30, 90))
    check(NodeCase("Gemm", [f(*left), f(*right)], flips, [f(90)]))


def test_the_copy_is_in_panels() -> None:
    proto, _ = transposed((64, 96), (320, 96))
    (kernel,) = tilewright.compile(proto, threads=1).compiled.kernels
    (copy,) = {alloc.buffer for alloc in allocations(kernel.naive.body)[0]}
    assert len(copy.shape) == 3
