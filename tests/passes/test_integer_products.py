"""Quantized matrix products by dot-product instructions, against NumPy's integers."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tests.frontend.models import model
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.graph import Node
from tilewright.passes.alternatives import Facts, Way, expand, facts_of, known
from tilewright.passes.normalize import normalize
from tilewright.target.target import Target

Array = NDArray[np.generic]
BEST, OLD = Target.parse("x86_64,znver5"), Target.parse("x86_64")
EIGHT = (np.uint8, np.int8)


def drawn(dtype: type, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(len(shape)).integers(info.min, info.max, shape, endpoint=True).astype(dtype)


@dataclass(frozen=True)
class Case:
    """``a [..., m, k]`` times a constant matrix; zero points are constants, but for one that is given at run time."""

    a: Array
    b: Array
    a_zero: Array | None = None
    b_zero: Array | None = None
    is_given: bool = False
    rows: str | None = None

    def model(self) -> onnx.ModelProto:
        known = {"b": self.b, "bz": self.b_zero, "az": None if self.is_given else self.a_zero}
        known = {name: array for name, array in known.items() if array is not None}
        shape: list[int | str] = [*self.a.shape]
        if self.rows is not None:
            shape[-2] = self.rows
        kinds = {"a": (self.a, shape), **({"az": (self.a_zero, ())} if self.is_given else {})}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), extents)
            for name, (array, extents) in kinds.items()
            if array is not None
        ]
        operands = ["a", "b", "az" if self.a_zero is not None else "", "bz" if self.b_zero is not None else ""]
        node = helper.make_node("MatMulInteger", operands, ["y"], name="product")
        constants = [numpy_helper.from_array(array, name) for name, array in known.items()]
        graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    @property
    def feeds(self) -> dict[str, Array]:
        return {"a": self.a, **({"az": self.a_zero} if self.is_given and self.a_zero is not None else {})}

    @property
    def expected(self) -> Array:
        zero = np.int32(0) if self.a_zero is None else self.a_zero.astype(np.int32)
        left = self.a.astype(np.int32) - (zero[:, None] if zero.ndim else zero)
        return left @ (self.b.astype(np.int32) - (0 if self.b_zero is None else self.b_zero.astype(np.int32)))


def check(case: Case) -> None:
    (found,) = tilewright.compile(case.model()).run(None, case.feeds)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.share(3)
@pytest.mark.parametrize(("a", "b"), list(product(EIGHT, EIGHT)))
@pytest.mark.parametrize("shape", [(5, 7, 6), (33, 300, 65), (1, 64, 32), (13, 4, 16)])
def test_sizes_and_types(shape: tuple[int, int, int], a: type, b: type) -> None:
    m, k, n = shape
    check(Case(drawn(a, m, k), drawn(b, k, n), drawn(a), drawn(b)))


@pytest.mark.share(3)
@pytest.mark.parametrize("a", EIGHT)
@pytest.mark.parametrize("b_zero", [None, drawn(np.int8), drawn(np.int8, 40), np.zeros(1, np.int8)])
@pytest.mark.parametrize("a_zero", ["none", "number", "given", "rows", "neutral"])
def test_zero_points(a: type, a_zero: str, b_zero: Array | None) -> None:
    zeros = {"none": None, "rows": drawn(a, 9), "neutral": np.array(0 if a is np.uint8 else -128, a)}
    check(Case(drawn(a, 9, 21), drawn(np.int8, 21, 40), zeros.get(a_zero, drawn(a)), b_zero, a_zero == "given"))


def test_extremes_do_not_saturate() -> None:
    check(Case(np.full((8, 512), 255, np.uint8), np.full((512, 64), -128, np.int8)))
    check(Case(np.full((8, 512), -128, np.int8), np.full((512, 64), -128, np.int8), np.array(127, np.int8)))


def test_many_matrices_and_run_time_rows() -> None:
    check(Case(drawn(np.int8, 3, 10, 24), drawn(np.int8, 24, 48), drawn(np.int8)))
    for rows in (0, 1, 7, 29):
        check(Case(drawn(np.uint8, rows, 24), drawn(np.int8, 24, 48), drawn(np.uint8), rows="m"))


def operators(case: Case, target: Target) -> list[str]:
    graph = normalize(load(case.model()))
    assert [node.op.name for node in graph.nodes] == ["MatMulInteger"], "the importer leaves it as it is"
    return [node.op.name for node in expand(graph, facts_of(graph, target)).nodes]


def test_what_is_computed() -> None:
    bytes_ = Case(drawn(np.uint8, 8, 32), drawn(np.int8, 32, 64))
    assert operators(bytes_, BEST) == ["DotProducts"]
    assert operators(Case(bytes_.a, bytes_.b, drawn(np.uint8), np.zeros((), np.int8)), BEST) == ["DotProducts", "Sub"]
    assert operators(bytes_, OLD) == ["Cast", "MatMul"]
    assert operators(Case(drawn(np.uint8, 32), bytes_.b), BEST) == ["Cast", "MatMul"]
    no_rows = Case(drawn(np.uint8, 4, 0), drawn(np.int8, 0, 64))
    assert "DotProducts" not in operators(no_rows, BEST)


class Nowhere:
    """An alternative in the place of dot products, which never applies."""

    name = "dot products"

    def ways(self, _node: Node, _facts: Facts) -> Iterable[Way]:
        return ()


def test_alternatives_take_the_place_of_others() -> None:
    graph = normalize(load(Case(drawn(np.uint8, 8, 32), drawn(np.int8, 32, 64)).model()))
    expanded = expand(graph, facts_of(graph, BEST, alternatives=known([Nowhere()])))
    assert [node.op.name for node in expanded.nodes] == ["Cast", "MatMul"]


@dataclass(frozen=True)
class Window:
    """A convolution of ``x`` by a constant weight, whose zero points are numbers (of the weight: for each filter)."""

    x: Array
    weight: Array
    x_zero: int = 0
    zeros: tuple[int, ...] = (0,)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)

    def model(self) -> onnx.ModelProto:
        constants = {
            "w": self.weight,
            "xz": np.array(self.x_zero, self.x.dtype),
            "wz": np.array(self.zeros, self.weight.dtype),
        }
        moves = {"pads": self.pads, "strides": self.strides, "dilations": self.dilations}
        node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **moves)
        return model([node], {"x": self.x}, ["y"], constants)

    @property
    def expected(self) -> Array:
        top, left, bottom, right = self.pads
        x = np.pad(self.x.astype(np.int32) - self.x_zero, ((0, 0), (0, 0), (top, bottom), (left, right)))
        weight = self.weight.astype(np.int32) - np.array(self.zeros, np.int32)[:, None, None, None]
        (sy, sx), (dy, dx), (kernel_y, kernel_x) = self.strides, self.dilations, weight.shape[2:]
        height, width = (
            (e - (k - 1) * d - 1) // s * s + 1
            for e, k, d, s in zip(x.shape[2:], weight.shape[2:], self.dilations, self.strides, strict=True)
        )
        parts = [
            np.einsum(
                "nchw,fc->nfhw",
                x[:, :, a * dy : a * dy + height : sy, b * dx : b * dx + width : sx],
                weight[:, :, a, b],
            )
            for a in range(kernel_y)
            for b in range(kernel_x)
        ]
        return np.sum(parts, axis=0, dtype=np.int32)


@pytest.mark.share(4)
@pytest.mark.parametrize(("x", "x_zero"), [(np.uint8, 0), (np.uint8, 200), (np.int8, 0), (np.int8, -128), (np.int8, 5)])
@pytest.mark.parametrize(
    ("weight", "zeros"), [(np.int8, (0,)), (np.uint8, (128,)), (np.uint8, (7,)), (np.int8, (0, 1) * 9)]
)
def test_convolutions(x: type, x_zero: int, weight: type, zeros: tuple[int, ...]) -> None:
    for channels in (6, 20):
        moves = (1, 0, 2, 1), (2, 1), (1, 2)
        case = Window(drawn(x, 2, channels, 9, 8), drawn(weight, 18, channels, 3, 2), x_zero, zeros, *moves)
        (found,) = tilewright.compile(case.model()).run(None, {"x": case.x})
        np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize(
    ("x", "x_zero", "is_left_out"), [(np.uint8, 0, True), (np.int8, -128, True), (np.int8, 0, False)]
)
def test_padding_by_a_known_zero_is_left_out(x: type, x_zero: int, is_left_out: bool) -> None:
    """That is one of unsigned numbers, as which signed ones are multiplied."""
    case = Window(drawn(x, 1, 32, 7, 7), drawn(np.int8, 32, 32, 3, 3), x_zero, (0,), (1, 1, 1, 1), (1, 1), (1, 1))
    found = compile_graph(load(case.model()), Options(replace(BEST, l2_bytes=1 << 20), threads=1))
    traces = [str(kernel.schedule.trace) for kernel in found.kernels]
    assert any("skip_padding" in trace for trace in traces) is is_left_out


@pytest.mark.share(3)
@pytest.mark.parametrize("open_", ["n", "h", "w", "hw"])
@pytest.mark.parametrize("channels", [6, 16])
def test_open_sizes_of_convolutions(channels: int, open_: str) -> None:
    case = Window(drawn(np.uint8, 1, channels, 9, 7), drawn(np.int8, 16, channels, 3, 3), 3, (0,), (1, 1, 1, 1))
    proto = case.model()
    for name in open_:
        dim = proto.graph.input[0].type.tensor_type.shape.dim["nchw".index(name)]
        dim.Clear()
        dim.dim_param = name
    (found,) = tilewright.compile(proto).run(None, {"x": case.x})
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize("x", EIGHT)
def test_short_sums_are_exact_in_reals(x: type) -> None:
    """Depthwise filters: all terms are as large as they can be, and of one sign."""
    info = np.iinfo(x)
    data = np.where(drawn(np.uint8, 1, 8, 9, 9) < 200, info.max, info.max - 1).astype(x)
    weight = np.full((8, 1, 5, 5), 255, np.uint8)
    zeros = {"xz": np.array(info.min, x), "wz": np.array(0, np.uint8)}
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], group=8, pads=[2] * 4)
    proto = model([node], {"x": data}, ["y"], {"w": weight, **zeros})
    (found,) = tilewright.compile(proto).run(None, {"x": data})
    padded = np.pad(data.astype(np.int32) - info.min, [(0, 0), (0, 0), (2, 2), (2, 2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (2, 3))
    np.testing.assert_array_equal(found, 255 * windows.sum((-1, -2)))
    graph = normalize(load(proto))
    (conv,) = (n for n in expand(graph, facts_of(graph, BEST)).nodes if n.op.name == "Conv")
    assert conv.outputs[0].dtype.is_float


@pytest.mark.share(2)
@pytest.mark.parametrize("open_", ["", "nhw"])
@pytest.mark.parametrize("channels", [12, 32])
@pytest.mark.parametrize(("x", "x_zero", "zero"), [(np.uint8, 200, 0), (np.int8, -5, 0), (np.uint8, 0, 128)])
def test_filters_of_single_channels(x: type, x_zero: int, zero: int, channels: int, open_: str) -> None:
    """Bytes are widened in registers, if filters have no zero point; blocks may not be full."""
    data, weight = drawn(x, 2, channels, 9, 7), drawn(np.uint8 if zero else np.int8, channels, 1, 3, 3)
    zeros = {"xz": np.array(x_zero, x), "wz": np.array(zero, weight.dtype)}
    moves = {"pads": [1, 0, 2, 1], "strides": [2, 1]}
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], group=channels, **moves)
    proto = model([node], {"x": data}, ["y"], {"w": weight, **zeros})
    for name in open_:
        dim = proto.graph.input[0].type.tensor_type.shape.dim["nchw".index(name)]
        dim.Clear()
        dim.dim_param = name
    padded = np.pad(data.astype(np.int32) - x_zero, [(0, 0), (0, 0), (1, 2), (0, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2]
    expected = np.einsum("nchwij,cij->nchw", windows, weight[:, 0].astype(np.int32) - zero)
    (found,) = tilewright.compile(proto).run(None, {"x": data})
    np.testing.assert_array_equal(found, expected)
    graph = normalize(load(proto))
    assert "ChannelConvolution" in [n.op.name for n in expand(graph, facts_of(graph, BEST)).nodes]


@pytest.mark.share(3)
@pytest.mark.parametrize("zeros", [0, 9])
@pytest.mark.parametrize("sizes", [(32, 4, 4), (64, 8, 8), (32, 16, 16), (64, 32, 16), (24, 4, 4), (32, 4, 8)])
def test_groups_of_channels(sizes: tuple[int, int, int], zeros: int) -> None:
    """Small ones are summed up together, if they fill blocks. ``sizes``: channels; channels, filters of a group."""
    channels, own, made = sizes
    group = channels // own
    data, weight = drawn(np.uint8, 1, channels, 7, 6), drawn(np.int8, group * made, own, 3, 3)
    constants = {"w": weight, "xz": np.array(100, np.uint8), "wz": np.array(zeros, np.int8)}
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], group=group, pads=[1] * 4)
    proto = model([node], {"x": data}, ["y"], constants)
    padded = np.pad(data.astype(np.int32) - 100, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).reshape(1, group, own, 7, 6, 3, 3)
    filters = weight.astype(np.int32).reshape(group, made, own, 3, 3) - zeros
    (found,) = tilewright.compile(proto).run(None, {"x": data})
    np.testing.assert_array_equal(found, np.einsum("ngchwij,gfcij->ngfhw", windows, filters).reshape(found.shape))
    graph = normalize(load(proto))
    names = [n.op.name for n in expand(graph, facts_of(graph, BEST)).nodes]
    fills = zeros == 0 and sizes != (24, 4, 4)
    assert ("BlockedDotConvolution" in names) is fills


def test_how_convolutions_are_computed() -> None:
    def names(case: Window, target: Target) -> list[str]:
        graph = normalize(load(case.model()))
        assert [node.op.name for node in graph.nodes] == ["ConvInteger"], "the importer leaves it as it is"
        return [node.op.name for node in expand(graph, facts_of(graph, target)).nodes]

    plain = Window(drawn(np.uint8, 1, 4, 5, 5), drawn(np.int8, 16, 4, 3, 3))
    assert names(plain, BEST) == ["ChannelGroups", "DotConvolution"]
    assert "DotConvolution" not in names(plain, OLD)
    assert names(replace(plain, x=drawn(np.uint8, 1, 16, 5, 5), weight=drawn(np.int8, 16, 16, 3, 3)), BEST) == [
        "BlockedDotConvolution"
    ]
    assert "DotConvolution" in names(replace(plain, zeros=(1,)), BEST)
    compiled = compile_graph(load(plain.model()), Options(target=BEST))
    assert any("vpdpbusd_add" in str(kernel.program) for kernel in compiled.kernels)


def test_the_weight_is_not_constant() -> None:
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    a, b = drawn(np.uint8, 4, 8), drawn(np.int8, 8, 16)
    proto = model([node], {"a": a, "b": b}, ["y"], {})
    (found,) = tilewright.compile(proto).run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def test_the_instruction_is_used_in_a_register_tile() -> None:
    case = Case(drawn(np.uint8, 128, 384), drawn(np.int8, 384, 384), drawn(np.uint8))
    compiled = compile_graph(load(case.model()), Options(target=BEST))
    text = "".join(kernel.program.intrinsics[0].name + str(kernel.program) for kernel in compiled.kernels)
    assert "vpdpbusd_add" in text
    assert "unrolled" in text


@pytest.mark.parametrize("limit", [127, 64])
@pytest.mark.parametrize("x", EIGHT)
@pytest.mark.parametrize(
    "processor",
    ["x86-64-v3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("x86-64-v2", "skylake-avx512", "znver4"))],
)
def test_other_processors(processor: str, x: type, limit: int) -> None:
    """Convolutions in blocks, and of other channels; products of matrices. Small weights have another instruction."""
    target = Target.parse(f"x86_64,{processor}")
    if not set(target.features) <= set(Target.host().features):
        pytest.skip(f"this machine is no {processor}")
    weights = [np.clip(drawn(np.int8, *shape), -limit, limit) for shape in ((24, 16, 3, 2), (10, 6, 3, 2), (36, 50))]
    for weight in weights[:2]:
        case = Window(drawn(x, 1, weight.shape[1], 6, 5), weight, 5, (0,), (1, 0, 0, 1))
        (found,) = tilewright.compile(case.model(), target=target).run(None, {"x": case.x})
        np.testing.assert_array_equal(found, case.expected)
    case = Case(drawn(x, 7, 36), weights[2], drawn(x))
    (found,) = tilewright.compile(case.model(), target=target).run(None, case.feeds)
    np.testing.assert_array_equal(found, case.expected)


@pytest.mark.parametrize(
    ("processor", "x", "limit", "instruction"),
    [
        ("x86_64,x86-64-v3", np.uint8, 127, "pmaddwd_words_ymm"),
        ("x86_64,x86-64-v3", np.int8, 127, "pmaddwd_words_ymm"),
        ("x86_64,haswell", np.int8, 64, "pmaddubsw_ymm"),
        ("x86_64,alderlake", np.int8, 64, "vpdpbusd_ymm"),
        ("x86_64,skylake-avx512", np.uint8, 65, "pmaddwd_words_zmm"),
        ("aarch64,neoverse-n1", np.int8, 127, "sdot"),
        ("aarch64,neoverse-n1", np.uint8, 127, "sdot"),
        ("aarch64,neoverse-v1", np.uint8, 64, "usdot"),
        ("aarch64,neoverse-v1", np.int8, 127, "sdot"),
    ],
)
def test_instructions_of_other_processors(processor: str, x: type, limit: int, instruction: str) -> None:
    weight = np.clip(drawn(np.int8, 16, 16, 3, 3), -limit, limit)
    case = Window(drawn(x, 1, 16, 5, 5), weight, 3)
    compiled = compile_graph(load(case.model()), Options(target=Target.parse(processor)))
    assert any(f"{instruction}_add(" in str(kernel.program) for kernel in compiled.kernels)
