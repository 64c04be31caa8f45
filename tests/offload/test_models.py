"""Models on two devices give the bits that the CPU gives alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import pytest

import tilewright
from tests.frontend.models import run_onnxruntime
from tests.offload.models import Signal, Writer, image, inverted, mobilenet_v2, residual, resnet18
from tests.quantization.models import convolutions, normal
from tilewright.backend.vta.config import VTA, Config
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.errors import BadInput, Unsupported
from tilewright.frontend.onnx.write import exporter
from tilewright.offload.accelerator import Accelerator, Kind, Placing
from tilewright.offload.model import AcceleratedModel
from tilewright.offload.recognize import Stays

ALWAYS = Accelerator(placing=Placing.ALWAYS)


def split(proto: onnx.ModelProto, accelerator: Accelerator | str) -> AcceleratedModel:
    model = tilewright.compile(proto, accelerator=accelerator, threads=1)
    assert isinstance(model, AcceleratedModel)
    return model


@cache
def made(make: Callable[[], onnx.ModelProto]) -> AcceleratedModel:
    return split(make(), ALWAYS)


def alone(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return np.asarray(tilewright.compile(proto, threads=1).run(None, {"x": x})[0])


@pytest.mark.parametrize("make", [residual, pytest.param(inverted, marks=pytest.mark.slow)])
def test_bits_are_those_of_the_cpu(make: Callable[[], onnx.ModelProto]) -> None:
    proto, model = make(), made(make)
    cpu = tilewright.compile(proto, threads=1)
    for seed in range(2):
        x = image(proto, seed)
        (found,) = model.run(None, {"x": x})
        assert np.array_equal(found, cpu.run(None, {"x": x})[0])
        (theirs,) = run_onnxruntime(proto, {"x": x})
        assert np.allclose(found, theirs, rtol=1e-6)
    assert len(np.unique(found)) == found.size


def test_values_stay_between_layers() -> None:
    """All before the mean is one program: one value enters it and one leaves."""
    first = made(residual).regions[0]
    assert len(first.nodes) == 9
    stages = [stage for stage in made(residual).stages if stage.name.startswith("accelerator0")]
    assert [(len(stage.reads), len(stage.makes)) for stage in stages] == [(1, 1)]


@pytest.mark.slow
def test_what_stays_on_the_cpu_is_computed_in_integers() -> None:
    """Weights are dequantized in the part that reads them, where they and what reads them become one operator."""
    kernels = made(inverted).explain().kernels
    assert not any(kernel.kernel.startswith("part0.") and kernel.types[-1] == "f32" for kernel in kernels)


def test_devices_are_exchanged() -> None:
    net = Writer()
    x = net.input(1, 4, 6, 6)
    proto = net.model(x, net.convolution(net.convolution(x, 6), 4))
    feed, opened = image(proto), list[int]()

    def connect(size: int) -> SimulatedDevice:
        opened.append(size)
        return SimulatedDevice(VTA, size)

    want = alone(proto, feed)
    for accelerator in (replace(ALWAYS, connect=connect), "vta,large,always", "vta,cycles,always,osdi"):
        model = split(proto, accelerator)
        assert np.array_equal(model.run(None, {"x": feed})[0], want)
    assert len(opened) == 1
    reports = [report for report in model.last_reports.values() if report.cycles is not None]
    assert len(reports) == len(model.regions) == 1


def test_a_fast_accelerator_is_worth_it_and_a_slow_one_is_not() -> None:
    """What passes takes time, whatever its clock is."""
    net = Writer()
    x = h = net.input(1, 128, 28, 28)
    for _ in range(4):
        h = net.convolution(h, 128)
    proto = net.model(x, net.addition(h, x))
    fast = split(proto, Accelerator(replace(VTA, name="fast", clock_mhz=1_000_000)))
    slow = split(proto, "vta")
    assert len(fast.regions) == 1
    assert not slow.regions
    assert len(slow.stays) == 5
    assert "us on the accelerator" in slow.stays[0].reason
    feeds = {"x": image(proto)}
    assert np.array_equal(slow.run(None, feeds)[0], fast.run(None, feeds)[0])


def test_explain_tells_the_split() -> None:
    found = made(residual).explain()
    regions = [finding for finding in found.findings if finding.kind == "accelerator"]
    assert [finding.subject for finding in regions] == ["accelerator0", "accelerator1"]
    assert "cycles" in regions[0].reason and "bytes loaded" in regions[0].reason
    stays = [finding for finding in found.findings if finding.kind == "not accelerated"]
    assert [finding.reason for finding in stays] == [
        "its result is not only quantized: the accelerator stores bytes, no sums"
    ]
    fates = {row.node: row.fate for row in found.nodes}
    assert sum(fate == "accelerator" for fate in fates.values()) > 9 and "python" not in fates.values()


# What is no unit -----------------------------------------------------------------------------------------------------


def reasons(build: Callable[[Writer, Signal], Signal], shape: tuple[int, ...] = (1, 4, 6, 6)) -> list[Stays]:
    """Why nodes of a model stay; what it computes is compared with the CPU alone."""
    net = Writer()
    x = net.input(*shape)
    proto = net.model(x, build(net, x))
    model, feed = split(proto, ALWAYS), {"x": image(proto)}
    assert np.array_equal(model.run(None, feed)[0], alone(proto, feed["x"]))
    return list(model.stays)


def of_scale(scale: float) -> Callable[[Writer, Signal], Signal]:
    def build(net: Writer, x: Signal) -> Signal:
        parameters = net.constant(np.float32(scale)), net.constant(np.int8(0))
        codes = net.node("QuantizeLinear", x.name, *parameters)
        return net.convolution(replace(x, name=net.node("DequantizeLinear", codes, *parameters)), 4)

    return build


def unsigned(net: Writer, x: Signal) -> Signal:
    parameters = net.constant(np.float32(1 / 32)), net.constant(np.uint8(128))
    codes = net.node("QuantizeLinear", x.name, *parameters)
    return net.convolution(replace(x, name=net.node("DequantizeLinear", codes, *parameters)), 4)


def padded(net: Writer, x: Signal) -> Signal:
    return net.convolution(x, 4, 1, pads=(1, 1, 1, 1))


def far_apart(net: Writer, x: Signal) -> Signal:
    return net.addition(x, net.quantized(net.convolution(x, 4).name, -25, x.shape))


def long_sums(net: Writer, x: Signal) -> Signal:
    return net.matrix(x, 3)


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (of_scale(0.1), (1, 4, 6, 6), "not powers of two"),
        (unsigned, (1, 4, 6, 6), "--activations i8"),
        (padded, (1, 4, 6, 6), "padding is larger than its filter"),
        (far_apart, (1, 4, 6, 6), "further apart"),
        (long_sums, (2, 8192), "2^24"),
        (lambda net, x: net.convolution(x, 8, group=2), (1, 4, 6, 6), "more or fewer filters than channels"),
        (lambda net, x: net.convolution(x, 6, group=2), (1, 6, 6, 6), "groups of 3 channels do not divide the blocks"),
        (lambda net, x: net.pooled(x, up=1), (1, 4, 6, 6), "another scale than its data"),
        (lambda net, x: net.convolution(x, 4), (2, 4, 6, 6), "no image of a batch of 1"),
    ],
)
def test_why_a_node_stays(build: Callable[[Writer, Signal], Signal], shape: tuple[int, ...], reason: str) -> None:
    found = reasons(build, shape)
    assert len(found) == 1
    assert reason in found[0].reason


def test_memories_that_are_too_small() -> None:
    narrow = Config("narrow", 1, 4, 4, uop_bytes=256, inp_bytes=256, wgt_bytes=32, acc_bytes=1024)
    net = Writer()
    x = net.input(1, 4, 6, 6)
    model = split(net.model(x, net.convolution(x, 4)), Accelerator(narrow, Placing.ALWAYS))
    assert [item.reason for item in model.stays] == ["no tile of it fits the memories of narrow"]


@pytest.mark.parametrize(
    "text", ["", "tpu", "vta,", "vta,fast", "vta,vta,osdi", "vta,always,cost", "vta,cycles,functional", "always"]
)
def test_words_that_name_nothing(text: str) -> None:
    with pytest.raises(BadInput, match="accelerator="):
        tilewright.compile(residual(), accelerator=text)


@pytest.mark.parametrize("changed", [{"batch": 2}, {"block_in": 8}, {"inp_bits": 16}])
def test_configurations_that_have_no_layout(changed: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="models are split for"):
        Accelerator(replace(VTA, **changed))


def test_other_devices_are_refused() -> None:
    for options in ({"isolate": True}, {"backend": "reference"}):
        with pytest.raises(BadInput, match="accelerator="):
            tilewright.compile(residual(), accelerator="vta", **options)
    with pytest.raises(Unsupported, match="in stages can't be split"):
        nodes = [onnx.helper.make_node("NonZero", ["x"], ["y"])]
        entering = [onnx.helper.make_tensor_value_info("x", 1, [4])]
        graph = onnx.helper.make_graph(nodes, "g", entering, [onnx.helper.make_tensor_value_info("y", 7, [1, None])])
        tilewright.compile(onnx.helper.make_model(graph, ir_version=10), accelerator="vta")


@pytest.mark.slow
def test_what_quantize_makes_is_offloaded() -> None:
    """All but the grouped convolution, and the last layer."""
    data = {"x": normal(20, 8, 3, 10, 10)}
    options = {"accuracy": 1.0, "metric": "l2", "activations": "i8", "power_of_two": True, "method": "minmax"}
    quantized = tilewright.quantize(convolutions(), data, threads=1, **options)
    proto = exporter.export(quantized.graph)
    model = tilewright.compile(proto, shapes={"x": (1, 3, 10, 10)}, accelerator=ALWAYS, threads=1)
    assert isinstance(model, AcceleratedModel)
    x = data["x"][:1]
    assert np.array_equal(model.run(None, {"x": x})[0], alone(proto, x))
    assert sum(len(region.nodes) for region in model.regions) >= 3


# Networks ------------------------------------------------------------------------------------------------------------


# Micro-ops by hand: pixels x blocks of channels x blocks of filters x taps; 1,294,776 of the depthwise convolutions.
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.FUNCTIONAL, Kind.CYCLES])
@pytest.mark.parametrize(("make", "products"), [(resnet18, 9_081_856), (mobilenet_v2, 2_618_952)])
def test_networks(make: Callable[[], onnx.ModelProto], products: int, kind: Kind) -> None:
    proto = make()
    x = image(proto)
    model = split(proto, replace(ALWAYS, kind=kind))
    (found,) = model.run(None, {"x": x})
    assert np.array_equal(found, alone(proto, x))
    assert len(np.unique(found)) > 900
    assert sum(region.counters.gemm for region in model.regions) == products
