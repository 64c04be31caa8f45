"""Groups that run for a part of a batch at a time compute the same bits, in less memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright import compilation
from tilewright.backend.cpu.image import emit
from tilewright.base.arrays import Array
from tilewright.base.dtypes import f32
from tilewright.base.errors import BadProgram
from tilewright.base.numerics import Math, Precision
from tilewright.base.settings import Settings
from tilewright.compilation import Compiled, Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Value
from tilewright.insight.compare import all_values
from tilewright.insight.explain import explain
from tilewright.insight.places import calls_of
from tilewright.insight.profile import profile
from tilewright.interface import manifest
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Loop
from tilewright.loops.parser import parse_program
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.passes.choose_parts import choose_parts
from tilewright.passes.fuse import Group, fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.parts_of_batches import InParts, images_of
from tilewright.target.target import Target

BATCH = 8
SMALL = replace(Target.host(), l2_bytes=40 << 10, cores=1)
"""A processor with a small second cache."""


def network(batch: int | str = BATCH, size: int = 20) -> onnx.ModelProto:
    """Convolutions with a residual, whose input leaves the graph, too; then a pool and a product."""
    random = np.random.default_rng(5)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.float32(np.prod(shape[1:])) ** -0.5
        return numpy_helper.from_array(random.standard_normal(shape, np.float32) * scale, name)

    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], "c0", pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"], "r0"),
        node("MaxPool", ["r0"], ["p"], "p", kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
        node("Conv", ["p", "w1"], ["c1"], "c1"),
        node("Relu", ["c1"], ["r1"], "r1"),
        node("Conv", ["r1", "w2"], ["c2"], "c2", pads=[1, 1, 1, 1]),
        node("Add", ["c2", "p"], ["a"], "a"),
        node("Relu", ["a"], ["r2"], "r2"),
        node("GlobalAveragePool", ["r2"], ["g"], "g"),
        node("Flatten", ["g"], ["f"], "f"),
        node("Gemm", ["f", "w3"], ["y"], "y"),
    ]
    weights = [weight("w0", 32, 3, 3, 3), weight("w1", 48, 32, 1, 1), weight("w2", 32, 48, 3, 3), weight("w3", 32, 10)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, size, size])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "r1")]
    graph = helper.make_graph(nodes, "network", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def quantized() -> onnx.ModelProto:
    """Two convolutions of bytes, with all values between them as bytes."""
    random, node = np.random.default_rng(7), helper.make_node
    nodes: list[onnx.NodeProto] = []
    stored = [
        numpy_helper.from_array(np.array(0.05, np.float32), "scale"),
        numpy_helper.from_array(np.array(128, np.uint8), "zero"),
    ]
    stored.append(numpy_helper.from_array(np.array(0, np.int8), "none"))

    def as_bytes(value: str) -> str:
        nodes.append(node("QuantizeLinear", [value, "scale", "zero"], [f"{value}.q"], f"{value}.q"))
        nodes.append(node("DequantizeLinear", [f"{value}.q", "scale", "zero"], [f"{value}.d"], f"{value}.d"))
        return f"{value}.d"

    data = as_bytes("x")
    for name, filters, channels in (("c", 32, 3), ("y", 16, 32)):
        stored.append(numpy_helper.from_array(random.integers(-9, 9, (filters, channels, 3, 3), np.int8), f"{name}.w"))
        nodes.append(node("DequantizeLinear", [f"{name}.w", "scale", "none"], [f"{name}.f"], f"{name}.f"))
        nodes.append(node("Conv", [data, f"{name}.f"], [name], name, pads=[1, 1, 1, 1]))
        data = as_bytes(name)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, 3, 20, 20])
    result = helper.make_tensor_value_info(data, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "quantized", [given], [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def images() -> dict[str, Array]:
    return {"x": np.random.default_rng(6).standard_normal((BATCH, 3, 20, 20), np.float32)}


def in_loops(length: int, count: int) -> Callable[[Sequence[int]], tuple[InParts, ...]]:
    """From the images of groups: all that keep these, at most ``length`` in a loop, in ``count`` parts."""

    def chosen(found: Sequence[int]) -> tuple[InParts, ...]:
        loops: list[InParts] = []
        for known, places in groupby(range(len(found)), found.__getitem__):
            run = list(places)
            starts = run[::length] if known == BATCH else []
            loops += [InParts(start, min(start + length, run[-1] + 1), count) for start in starts]
        return tuple(loops)

    return chosen


Loops = Callable[[Sequence[int]], tuple[InParts, ...]]


@cache
def compiled(loops: Loops, precision: Precision, model: Callable[[], onnx.ModelProto] = network) -> Compiled:
    """A model with these loops."""

    def chosen(laid_out: LaidOut, groups: Sequence[Group], _: Target) -> tuple[InParts, ...]:
        return loops([images_of(group, laid_out.graph) for group in groups])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "choose_parts", chosen)
        return compile_graph(importer.load(model()), Options(SMALL, threads=3, precision=precision, math=Math.STRICT))


def whole(_: Sequence[int]) -> tuple[InParts, ...]:
    """No loops."""
    return ()


ALL = in_loops(99, 8)
F32, BF16 = Precision.FP32, Precision.BF16
CASES = [
    pytest.param(ALL, BF16, id="all, bf16"),
    pytest.param(in_loops(2, 4), F32, id="two"),
    pytest.param(in_loops(2, 2), BF16, id="two, bf16", marks=pytest.mark.slow),
    pytest.param(in_loops(3, 2), F32, id="three", marks=pytest.mark.slow),
    pytest.param(in_loops(99, 4), F32, id="all", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("loops", "precision"), CASES)
def test_bits_are_the_same(loops: Loops, precision: Precision) -> None:
    expected, made = compiled(whole, precision), compiled(loops, precision)
    assert any(isinstance(stmt, Loop) for stmt in walk(made.main.body))
    for threads in (1, 2, 3):
        pairs = zip(made.executable.run(images(), threads=threads), expected.executable.run(images()), strict=True)
        for found, value in pairs:
            np.testing.assert_array_equal(found, value)
    values, found = all_values(expected, images()), all_values(made, images())
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
def test_bytes_are_the_same() -> None:
    expected, made = (compiled(loops, F32, quantized) for loops in (whole, ALL))
    assert {call.times for call in calls_of(made)} == {BATCH}
    np.testing.assert_array_equal(made.executable.run(images())[0], expected.executable.run(images())[0])


def test_values_in_a_loop_need_less_memory() -> None:
    few, many = (compiled(loops, BF16).executable.manifest.workspace for loops in (ALL, whole))
    assert isinstance(few, int)
    assert isinstance(many, int)
    assert few < many / 4


MAIN = """
program main(x: f32[6, 2, 2]) -> (y: f32[6, 4]):
  for part in range(3):
    alloc t: f32[2, 4]
    kernel double(x[2 * part +: 2, :, :], t)
    kernel double(t, y[2 * part +: 2, :])
"""
DOUBLE = """
program double(a: f32[2, 4]) -> (b: f32[2, 4]):
  for i in range(2):
    for j in range(4):
      b[i, j] = a[i, j] + a[i, j]
"""


def test_a_loop_in_main_has_its_meaning_in_the_interpreter_and_in_code() -> None:
    main, kernel = parse_program(MAIN), parse_program(DOUBLE)
    verify(main)
    assert parse_program(str(main)) == main
    x = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
    expected = 4 * x.reshape(6, 4)
    np.testing.assert_array_equal(interpret(main, {"x": x}, programs={"double": kernel})["y"], expected)
    made = emit(main, [kernel], Target.host()).link()
    shown = manifest(
        [Value("x", f32, main.inputs[0].shape)], [Value("y", f32, main.results[0].shape)], [], (), made.needs
    )
    np.testing.assert_array_equal(made.launch(shown, threads=1).run({"x": x})[0], expected)
    assert made.needs.workspace_bytes == 64, "one part of t"


def test_what_does_not_lie_in_one_piece_is_refused() -> None:
    main = parse_program(MAIN.replace("y[2 * part +: 2, :]", "y[2 * part +: 2, 1 +: 2]"))
    with pytest.raises(BadProgram, match="in one piece"):
        emit(main, [parse_program(DOUBLE)], Target.host())


def test_it_is_explained_and_profiled() -> None:
    made = compiled(ALL, BF16)
    known = explain(made, made.graph)
    (finding,) = (one for one in known.findings if one.kind == "in parts")
    assert (finding.subject, "8 times" in finding.reason) == ("node c0 (Conv) to node y (Gemm)", True)
    times = [call.times for call in calls_of(made)]
    assert times == [8] * len(times)
    assert [row.calls for row in profile(made.executable, images(), made, None, 0.01).kernels] == times
    assert sum(kernel.calls for kernel in known.kernels) == sum(times)


def chosen(model: onnx.ModelProto, target: Target) -> tuple[InParts, ...]:
    """The loops of ``model``."""
    options = Options(target, threads=1, math=Math.STRICT)
    graph = compilation.prepare(importer.load(model))
    choices = compilation.decide(graph, options)
    laid_out = compilation.transform(choices, dict(choices.graph.constants))
    return choose_parts(laid_out, fuse(laid_out.graph, laid_out.leaving_blocks, laid_out.layouts), target)


def test_what_does_not_fit_the_cache_is_computed_in_parts() -> None:
    large = network(BATCH, 112)
    target = replace(SMALL, l2_bytes=4 << 20)
    (loop,) = chosen(large, target)
    assert (loop.start, loop.count) == (0, BATCH)
    assert chosen(large, replace(target, cores=2))[0].count == BATCH // 2
    assert chosen(large, replace(target, cores=3)) == ()
    assert chosen(large, replace(target, l2_bytes=1 << 30)) == ()
    assert chosen(network(1, 112), target) == ()
    assert chosen(network("n", 112), target) == ()


@pytest.mark.parametrize(("pads", "loops"), [((1, 1, 1, 1), 1), ((0, 0, 0, 0), 0)])
def test_padded_data_are_values_between(pads: tuple[int, ...], loops: int) -> None:
    """A convolution alone has a loop if it copies its data to pad them."""
    weight = numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (16, 64, 56, 56))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, strides=(2, 2))
    graph = helper.make_graph([node], "alone", [x], [y], [weight])
    found = chosen(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), replace(SMALL, l2_bytes=4 << 20)
    )
    assert len(found) == loops


MIXING = {
    "mean": helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=1),
    "sum": helper.make_node("CumSum", ["x", "axis"], ["y"]),
    "flipped": helper.make_node("Slice", ["x", "one", "least", "axes", "one"], ["y"]),
    "product": helper.make_node("MatMul", ["square", "x"], ["y"]),
}


@pytest.mark.parametrize("name", MIXING)
def test_images_that_are_mixed(name: str) -> None:
    """A sum over images, and images in another order, stay together."""
    constants = {
        "axes": np.array([0]),
        "axis": np.array(0),
        "one": np.array([-1]),
        "least": np.array([-1000]),
        "square": np.ones((6, 6), np.float32),
    }
    read = {key: value for key, value in constants.items() if key in MIXING[name].input}
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 6])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(value, key) for key, value in read.items()]
    graph = helper.make_graph([MIXING[name]], "g", [given], [result], stored)
    made = importer.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert all(images_of(group, made) == 1 for group in fuse(made))


@pytest.mark.slow
def test_an_artifact_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of(laid_out: LaidOut, groups: Sequence[Group], _: Target) -> tuple[InParts, ...]:
        return ALL([images_of(group, laid_out.graph) for group in groups])

    monkeypatch.setattr(compilation, "choose_parts", all_of)
    model = tilewright.compile(network(), threads=1, settings=Settings())
    model.save(tmp_path / "parts.tw")
    loaded = tilewright.load(tmp_path / "parts.tw")
    for found, value in zip(loaded.run(None, images()), model.run(None, images()), strict=True):
        np.testing.assert_array_equal(found, value)
