"""A back end of somebody's own: given to ``compile``, or installed."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.extending import packages
from tests.extending.python_code import PYTHON
from tilewright.backend import choice
from tilewright.base.errors import UnsupportedModel
from tilewright.cli import main
from tilewright.target.target import Target

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((6, 5)).astype(np.float32)


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "g", [given], [made], [onnx.numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


DENSE = model(helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["y"]))


def test_a_model_runs_on_it() -> None:
    compiled = tilewright.compile(DENSE, backend=PYTHON)
    for rows in (1, 3):
        x = RANDOM.standard_normal((rows, 6)).astype(np.float32)
        powers = np.exp(x @ W)
        np.testing.assert_allclose(compiled(x), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_its_code_is_what_is_shown() -> None:
    kernel = tilewright.compile(DENSE, backend=PYTHON).compiled.kernels[0]
    assert "def kernel(arrays, extents):\n    b0 = arrays" in PYTHON.write(kernel.program, Target.host())


def test_an_installed_one_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages.install(tmp_path, choice.GROUP, "python", "python_code:PYTHON", HERE / "python_code.py")
    monkeypatch.syspath_prepend(tmp_path)
    onnx.save(DENSE, tmp_path / "dense.onnx")
    x = np.zeros((1, 6), np.float32)
    np.save(tmp_path / "x.npy", x)
    asked = ["run", str(tmp_path / "dense.onnx"), "--backend", "python", "--input", f"x={tmp_path / 'x.npy'}"]
    assert main([*asked, "--output", str(tmp_path)]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "output_0.npy"), np.full((1, 5), 0.2), rtol=1e-6)
    assert main(["tune", str(tmp_path / "dense.onnx"), "--backend", "python"]) == 2


def test_what_it_has_not_is_refused_with_the_node() -> None:
    with pytest.raises(UnsupportedModel, match="Erf"):
        tilewright.compile(model(helper.make_node("Erf", ["x"], ["y"], name="Erf")), backend=PYTHON)
