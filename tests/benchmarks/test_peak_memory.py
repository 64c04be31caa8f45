"""What a process takes of memory at most is measured."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.peak_memory import OTHER, WAYS, row
from benchmarks.zoo.samples import Sample, save_samples

SIZE = 2048
WEIGHT = 4 * SIZE * SIZE


@pytest.mark.slow
def test_each_way_takes_the_weights_at_least(tmp_path: Path) -> None:
    for name, size in ((OTHER, 8), ("wide", SIZE)):
        _write(name, size, tmp_path)
    found = row("wide", "fp32", tmp_path)
    assert list(found) == list(WAYS)
    assert min(found.values()) >= WEIGHT and max(found.values()) < 6 * WEIGHT
    assert found["loaded"] < 1.1 * found["onnxruntime"]
    assert found["compiled"] < 2.3 * WEIGHT  # the weight as it was read, and packed
    assert row("wide", "bf16", tmp_path)["loaded"] < 0.7 * found["loaded"]


def _write(name: str, size: int, folder: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((size, size), np.float32) / size
    x, y = (helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, size]) for value in "xy")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], name, [x], [y], [numpy_helper.from_array(weight, "w")]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx"
    )
    row_ = np.ones((1, size), np.float32)
    save_samples(folder / f"{name}.npz", [Sample({"x": row_}, {"y": row_.astype(np.float64) @ weight})])
