"""Convolutions pad the data of an image, or of a group, where they sum over them; tiles have several blocks of the
filters of a group."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime
from tilewright.kernels.padded_parts import PaddedParts
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.tiling import Plan
from tilewright.loops.ir import Alloc, Loop, LoopKind, Stmt
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
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


def single(
    shape: tuple[int, ...], filters: int, taps: int, **options: object
) -> tuple[onnx.ModelProto, dict[str, NDArray[np.float32]]]:
    """A convolution of plain data."""
    random = np.random.default_rng(filters)
    rank = len(shape) - 2
    size = (filters, shape[1] // int(str(options.get("group", 1))), *[taps] * rank)
    weight = (random.standard_normal(size) / np.sqrt(np.prod(size[1:]))).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **{"pads": [taps // 2] * (2 * rank), **options})]
    inputs = {"x": random.standard_normal(shape).astype(np.float32)}
    return model(nodes, inputs, ["y"], {"w": weight}), inputs


IMAGES = [
    ((16, 32, 12, 12), 64, 3, {"strides": [2, 2]}),
    ((16, 3, 30, 31), 32, 7, {"strides": [2, 2]}),
    ((9, 24, 9, 11), 40, 5, {}),
    ((16, 64, 20), 64, 3, {}),
    ((8, 16, 5, 6, 7), 32, 3, {}),
    ((16, 64, 14, 14), 64, 3, {"dilations": [4, 4], "pads": [4, 4, 4, 4]}),
    ((16, 64, 10, 10), 64, 3, {"group": 2, "strides": [2, 1]}),
    ((4, 64, 10, 10), 128, 3, {"group": 4, "pads": [0, 2, 1, 1]}),
    ((16, 32, 13, 13), 32, 2, {"strides": [3, 3], "pads": [1, 1, 1, 1]}),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", [Target.host(), Target.host().restricted("avx2")], ids=["host", "avx2"])
@pytest.mark.parametrize(("shape", "filters", "taps", "options"), IMAGES)
def test_images_are_right(
    shape: tuple[int, ...], filters: int, taps: int, options: dict[str, object], target: Target, threads: int
) -> None:
    proto, inputs = single(shape, filters, taps, **options)
    (found,) = tilewright.compile(proto, target=target, threads=threads, math="strict").run(None, inputs)
    (wanted,) = run_onnxruntime(proto, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_most_of_these_images_are_padded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the results above are theirs."""
    gone: list[tuple[int, ...]] = []
    go = PaddedParts.go

    def counted(nest: PaddedParts, s: Schedule, plan: Plan, pack: Pack, prefetch: int) -> None:
        gone.append(nest.parts)
        go(nest, s, plan, pack, prefetch)

    monkeypatch.setattr(PaddedParts, "go", counted)
    for shape, filters, taps, options in IMAGES:
        proto, _ = single(shape, filters, taps, **options)
        tilewright.compile(proto, target=f"{AVX2},cores=2", threads=1, math="strict")
    assert len(gone) == 7


def kernel_of(proto: onnx.ModelProto, target: str = AVX2) -> Stmt:
    """The scheduled loops of the convolution that pads."""
    kernels = tilewright.compile(proto, target=target, threads=1, math="strict").compiled.kernels
    return next(kernel.program.body for kernel in kernels if "padded" in str(kernel.program))


def is_padded_in_parts(body: Stmt) -> bool:
    """Whether what is padded lies in a loop over parts."""
    parallel = [loop for loop in walk(body) if isinstance(loop, Loop) and loop.kind is LoopKind.PARALLEL]
    return "padded" in {stmt.buffer.name for loop in parallel for stmt in walk(loop) if isinstance(stmt, Alloc)}


@pytest.mark.parametrize(("groups", "cores", "inside"), [(32, 16, True), (2, 1, True), (2, 2, False), (4, 2, True)])
def test_a_group_is_padded_where_it_is_summed(groups: int, cores: int, inside: bool) -> None:
    """If there are parts enough for the cores."""
    body = kernel_of(grouped((1, 16 * groups, 14, 14), 16 * groups, groups)[0], f"{AVX2},cores={cores}")
    assert is_padded_in_parts(body) is inside


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "inside"),
    [
        ((16, 256, 28, 28), 256, 2, True),  # 13 MB of all images
        ((16, 256, 14, 14), 256, 2, True),
        ((16, 1024, 7, 7), 1024, 2, False),  # each image would read 36 MiB of filters again, from memory
        ((2, 256, 28, 28), 256, 2, False),  # two cores want more parts
    ],
)
def test_an_image_is_padded_where_it_is_summed(shape: tuple[int, ...], filters: int, stride: int, inside: bool) -> None:
    """If its filters, which each image reads again, take less time."""
    body = kernel_of(single(shape, filters, 3, strides=[stride, stride])[0], f"{AVX2},cores=2")
    assert is_padded_in_parts(body) is inside


def test_groups_of_images_of_any_size_are_padded_before() -> None:
    """What a loop over them would pad has no known size."""
    proto, inputs = grouped((1, 512, 14, 14), 512, 32)
    for dim, name in zip(list(proto.graph.input[0].type.tensor_type.shape.dim)[2:], "hw", strict=True):
        dim.dim_param = name
    assert not is_padded_in_parts(kernel_of(proto))
    (found,), (wanted,) = tilewright.compile(proto, math="strict").run(None, inputs), run_onnxruntime(proto, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_plain_data_of_an_image_are_transposed_in_squares() -> None:
    """What is padded is in blocks of channels, and plain data are read along rows."""
    body = kernel_of(single((16, 256, 14, 14), 256, 3, dilations=[2, 2], pads=[2, 2, 2, 2])[0], f"{AVX2},cores=2")
    assert is_padded_in_parts(body)
    inner = [loop for loop in walk(body) if isinstance(loop, Loop) and loop.kind is LoopKind.UNROLLED]
    (squares,) = [loop.body for loop in inner if "padded" in {block.name for block in all_blocks(loop)}]
    assert isinstance(squares, Loop) and squares.kind is LoopKind.VECTORIZED


def test_tiles_have_several_blocks_of_a_group() -> None:
    """On AVX2, each multiply-add of a tile of one block needs a broadcast of its own."""
    for channels in (16, 32):
        body = kernel_of(grouped((1, 32 * channels, 14, 14), 32 * channels, 32)[0])
        (sums,) = [stmt.buffer for stmt in walk(body) if isinstance(stmt, Alloc) and stmt.buffer.name == "conv"]
        assert int(str(sums.shape[2])) > 1
