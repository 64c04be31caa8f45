"""Somebody follows docs/optimize.md: a model is made faster in ONNX Runtime, by a rule of their own."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.cli.schema import report
from tests.stories.pages import Page
from tilewright.cli import main

PAGE = Page.of("docs/optimize.md")


def in_onnxruntime(path: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def test_a_model_for_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for part in ("sums.onnx", "factor.rules"):
        PAGE.run(part, {})
    assert main([*PAGE.command("--cost onnxruntime"), "--json", "--quiet"]) == 0
    told = report("optimize", capsys.readouterr().out)
    assert told["rules"] == {"factor-out": 1}
    (account,) = told["given"]
    assert (account["fate"], account["matches"], account["reason"]) == ("applied", 1, "")
    assert told["nodes"] == {"before": 3, "after": 2}
    assert told["measured"] < 1
    assert [node.op_type for node in onnx.load("faster.onnx").graph.node] == ["Add", "Mul"]
    random = np.random.default_rng(3)
    feeds = {name: random.standard_normal(1 << 20).astype(np.float32) for name in "abc"}
    expected = (feeds["a"].astype(np.float64) + feeds["b"]) * feeds["c"]
    for path in ("sums.onnx", "faster.onnx"):
        np.testing.assert_allclose(in_onnxruntime(path, feeds), expected, rtol=1e-4, atol=1e-5)
