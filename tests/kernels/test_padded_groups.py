"""Convolutions in groups pad the data of a group where they sum over it; tiles have several blocks of its filters."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime
from tilewright.loops.ir import Alloc, Loop, LoopKind, Stmt
from tilewright.loops.visit import walk
from tilewright.target.target import Target

AVX2 = "x86_64,znver3,l1=32K,l2=512K,l3=32M"


def grouped(
    shape: tuple[int, ...], filters: int, groups: int, taps: int = 3, **options: object
) -> tuple[onnx.ModelProto, dict[str, NDArray[np.float32]]]:
    """A convolution in groups between two of one tap, so that its data and its results are in blocks."""
    random = np.random.default_rng(filters)
    rank, channels = len(shape) - 2, shape[1]
    weights = {
        "before": (channels, channels, *[1] * rank),
        "own": (filters, channels // groups, *[taps] * rank),
        "bias": (filters,),
        "after": (8, filters, *[1] * rank),
    }
    constants = {
        name: (random.standard_normal(size) / np.sqrt(np.prod(size[1:]))).astype(np.float32)
        for name, size in weights.items()
    }
    pads = [taps // 2] * (2 * rank)
    nodes = [
        helper.make_node("Conv", ["x", "before"], ["a"]),
        helper.make_node("Conv", ["a", "own", "bias"], ["b"], **{"pads": pads, "group": groups, **options}),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "after"], ["y"]),
    ]
    inputs = {"x": random.standard_normal(shape).astype(np.float32)}
    return model(nodes, inputs, ["y"], constants), inputs


@pytest.mark.share(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", [Target.host(), Target.host().restricted("avx2")], ids=["host", "avx2"])
@pytest.mark.parametrize(
    ("shape", "filters", "groups", "options"),
    [
        ((1, 256, 14, 14), 256, 16, {}),
        ((1, 256, 9, 11), 512, 16, {}),
        ((2, 128, 12, 12), 128, 16, {"strides": [2, 2]}),
        ((1, 512, 7, 7), 512, 16, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
        ((1, 512, 8, 8), 512, 16, {"pads": [0, 2, 1, 1]}),
        ((1, 768, 6, 6), 384, 16, {}),
        ((1, 256, 5, 6, 7), 256, 16, {}),
        ((1, 64, 16, 16), 64, 2, {}),
        ((1, 160, 13, 13), 160, 20, {"auto_pad": "SAME_LOWER", "pads": None, "strides": [2, 2]}),
    ],
)
def test_groups_are_right(
    shape: tuple[int, ...], filters: int, groups: int, options: dict[str, object], target: Target, threads: int
) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    proto, inputs = grouped(shape, filters, groups, **given)
    if "auto_pad" in options:
        own = next(node for node in proto.graph.node if node.output[0] == "b")
        own.attribute.remove(next(attribute for attribute in own.attribute if attribute.name == "pads"))
    (found,) = tilewright.compile(proto, target=target, threads=threads, math="strict").run(None, inputs)
    (wanted,) = run_onnxruntime(proto, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("shape", "groups"), [((1, 512, 28, 28), 32), ((1, 1024, 14, 14), 32), ((1, 512, 14, 14), 16)])
def test_groups_of_bf16_are_right(shape: tuple[int, ...], groups: int) -> None:
    """Dot products read data and weights of other ranks: only the data are of one group."""
    proto, inputs = grouped(shape, shape[1], groups, strides=[2, 2])
    other = tilewright.compile(proto, target="x86_64,znver4", threads=1, math="strict", precision="bf16")
    assert other.compiled.kernels
    (found,) = tilewright.compile(proto, threads=1, math="strict", precision="bf16").run(None, inputs)
    (wanted,) = run_onnxruntime(proto, inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-2 * float(np.max(np.abs(np.asarray(wanted, np.float32)))))


def kernel_of(proto: onnx.ModelProto) -> Stmt:
    """The scheduled loops of the convolution in groups."""
    kernels = tilewright.compile(proto, target=AVX2, threads=1, math="strict").compiled.kernels
    return next(kernel.program.body for kernel in kernels if "padded" in str(kernel.program))


@pytest.mark.parametrize(("groups", "inside"), [(32, True), (2, False)])
def test_a_group_is_padded_where_it_is_summed(groups: int, inside: bool) -> None:
    body = kernel_of(grouped((1, 16 * groups, 14, 14), 16 * groups, groups)[0])
    parallel = [loop for loop in walk(body) if isinstance(loop, Loop) and loop.kind is LoopKind.PARALLEL]
    within = {stmt.buffer.name for loop in parallel for stmt in walk(loop) if isinstance(stmt, Alloc)}
    assert ("padded" in within) is inside


def test_tiles_have_several_blocks_of_a_group() -> None:
    """On AVX2, each multiply-add of a tile of one block needs a broadcast of its own."""
    for channels in (16, 32):
        body = kernel_of(grouped((1, 32 * channels, 14, 14), 32 * channels, 32)[0])
        (sums,) = [stmt.buffer for stmt in walk(body) if isinstance(stmt, Alloc) and stmt.buffer.name == "conv"]
        assert int(str(sums.shape[2])) > 1
