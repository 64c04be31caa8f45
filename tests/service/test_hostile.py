"""Models whose author means harm: each is an error of its job, and the next job is done."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import model as made
from tests.frontend.models import single_node
from tests.service.support import Here, X, model
from tests.service.test_bundle import zipped
from tilewright.service.limits import Limits


def with_external_data(location: str) -> bytes:
    proto = single_node("Add", {"x": X}, {"c": X})
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=location)
    return proto.SerializeToString()


def folding_bomb() -> bytes:
    """2**40 elements by 40 nodes."""
    nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(40)]
    nodes.append(helper.make_node("Add", ["x", "v40"], ["y"]))
    return made(nodes, {"x": np.ones(1, np.float32)}, ["y"], {"v0": np.ones(1, np.float32)}).SerializeToString()


def endless_loop() -> bytes:
    """Steps of a body that adds constants, as many as a counter has; nothing of it depends on an input."""
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "a"], ["b"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1]),
        ],
    )
    nodes = [helper.make_node("Loop", ["n", "t", "v"], ["s"], body=body), helper.make_node("Add", ["x", "s"], ["y"])]
    constants = {"n": np.array(1 << 62), "t": np.array(True), "v": np.ones(1, np.float32)}
    return made(nodes, {"x": np.ones(1, np.float32)}, ["y"], constants).SerializeToString()


def enormous_initializer() -> bytes:
    """An initializer that says it has 2**80 elements, and has sixteen bytes."""
    proto = single_node("Add", {"x": X}, {"c": X})
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend([1 << 40, 1 << 40])
    return proto.SerializeToString()


def large_initializer() -> bytes:
    """The most that fits in the memory of a job twice, as one initializer that is folded."""
    weights = np.zeros(100 << 18, np.float32)
    nodes = [helper.make_node("Exp", ["c"], [f"e{i}"]) for i in range(40)]
    nodes += [helper.make_node("Sum", [f"e{i}" for i in range(40)], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    return made(nodes, {"x": np.ones(1, np.float32)}, ["y"], {"c": weights}).SerializeToString()


def of_shape(shape: list[int], operator: str) -> bytes:
    """A value of so many elements, made from a constant."""
    c, n = np.ones(1, np.float32), np.array(shape, np.int64)
    inputs = ["n"] if operator == "ConstantOfShape" else ["c", "n"]
    nodes = [helper.make_node(operator, inputs, ["big"]), helper.make_node("ReduceSum", ["big"], ["s"])]
    nodes.append(helper.make_node("Add", ["x", "s"], ["y"]))
    return made(nodes, {"x": np.ones(1, np.float32)}, ["y"], {"n": n, "c": c}).SerializeToString()


def deep_zip() -> bytes:
    """Weights of another archive: nothing is unpacked twice."""
    inner = zipped({"weights": bytes(1 << 20)})
    return zipped({"model.onnx": with_external_data("inner.zip/weights"), "inner.zip": inner})


KINDS = ("InvalidModel", "UntrustedData", "ResourceLimit", "OutOfMemory", "UnsupportedModel")
HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "no protobuf": lambda: b"\xff" * 4096,
    "a deep protobuf": lambda: b"\x0a\x80\x01" * 100_000,
    "the database": lambda: with_external_data("../../jobs.db"),
    "an absolute path": lambda: with_external_data("/etc/passwd"),
    "a device": lambda: with_external_data("/dev/zero"),
    "a folding bomb": folding_bomb,
    "an enormous initializer": enormous_initializer,
    "initializers that are folded to gigabytes": large_initializer,
    "2**60 elements of a constant": lambda: of_shape([1 << 30, 1 << 30], "ConstantOfShape"),
    "a tile of 2**60": lambda: of_shape([1 << 60], "Tile"),
    "an expansion beyond all numbers": lambda: of_shape([(1 << 62) - 1, (1 << 62) - 1], "Expand"),
    "weights outside of its zip": lambda: zipped({"model.onnx": with_external_data("../model.onnx")}),
    "weights in a zip in its zip": deep_zip,
    "a model that is no model in its zip": lambda: zipped({"model.onnx": b"\xff" * 100, "w": b""}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_model_is_an_error_of_its_job(name: str, tmp_path: Path) -> None:
    with Here(tmp_path, limits=Limits(seconds=60.0, memory_bytes=1 << 30, output_bytes=1 << 20)) as here:
        bad, good = (here.client.post("/v1/jobs", content=body).json()["id"] for body in (HOSTILE[name](), model()))
        worker = here.worker()
        assert worker.step()
        assert worker.step()
        found = here.client.get(f"/v1/jobs/{bad}").json()
        assert found["state"] == "failed"
        assert found["error"]["kind"] in KINDS, found
        assert str(tmp_path) not in found["error"]["text"]
        assert here.client.get(f"/v1/jobs/{good}").json()["state"] == "done"


@pytest.mark.slow
def test_an_endless_loop_costs_its_time_at_most(tmp_path: Path) -> None:
    """It may be compiled, as its steps are those of a run."""
    with Here(tmp_path, limits=Limits(seconds=60.0, memory_bytes=1 << 30)) as here:
        job = here.client.post("/v1/jobs", content=endless_loop()).json()["id"]
        assert here.worker().step()
        found = here.client.get(f"/v1/jobs/{job}").json()
        assert (found["artifact"] is None) != (found["error"] is None)
