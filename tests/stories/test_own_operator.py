"""Somebody follows docs/extending.md: operators of their own, each a file, compiled and held against NumPy."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.stories.pages import Page

PAGE = Page.of("docs/extending.md")
RANDOM = np.random.default_rng(11)
X, W = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((5, 24), (24, 40)))
S = RANDOM.standard_normal(40).astype(np.float32)


def net(**attributes: float) -> onnx.ModelProto:
    """A product, an activation and a normalization; the latter two are of ``my.domain``."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Swish2", ["h"], ["a"], domain="my.domain", **attributes),
        helper.make_node("PeakNorm", ["a", "s"], ["y"], domain="my.domain"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", n]) for name, n in (("x", 24), ("y", 40))]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(S, "s")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], initializer=weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_numpy(beta: float) -> np.ndarray:
    h = X.astype(np.float64) @ W
    a = 2 * h / (1 + np.exp(-beta * h))
    return a / (np.abs(a).max(-1, keepdims=True) + 1e-6) * S


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page shows, and what it imports before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for module, part in (("my_swish2", "SWISH2 = "), ("my_peak_norm", "PEAK_NORM = ")):
        (tmp_path / f"{module}.py").write_text(PAGE.snippet(part))
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_operators_of_ones_own() -> None:
    swish2, peak_norm = (import_module(name) for name in ("my_swish2", "my_peak_norm"))
    names: dict[str, object] = {"tilewright": tilewright, "SWISH2": swish2.SWISH2, "PEAK_NORM": peak_norm.PEAK_NORM}
    for attributes, beta in (({"beta": 1.5}, 1.5), ({}, 1.0)):
        onnx.save(net(**attributes), "net.onnx")
        PAGE.run("operators=[", names)
        model = names["model"]
        assert isinstance(model, tilewright.CompiledModel)
        np.testing.assert_allclose(model.run(None, {"x": X})[0], by_numpy(beta), rtol=1e-4, atol=1e-5)
        assert len(model.explain().kernels) == 2, "the activation is in the kernel of the product"


@pytest.mark.usefixtures("folder")
def test_without_them_the_model_is_refused() -> None:
    onnx.save(net(), "net.onnx")
    with pytest.raises(tilewright.UnsupportedModel, match=r"Swish2.*my\.domain|my\.domain.*Swish2"):
        tilewright.compile("net.onnx")
