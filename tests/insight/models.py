"""A small model with a kernel of each kind, and what compiling it gives."""

import numpy as np
import onnx
from onnx import helper

from tests.frontend.models import Array, model
from tilewright.compilation import Compiled, Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph
from tilewright.target.target import Target

X = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
FEEDS: dict[str, Array] = {"x": X}


def classifier() -> onnx.ModelProto:
    """softmax(relu(x @ w + b) @ w' + b') with a folded, a dissolved and an unused node."""
    w, b = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32), np.ones(8, np.float32)
    nodes = [
        helper.make_node("Neg", ["w"], ["minus_w"], name="folded"),
        helper.make_node("Identity", ["x"], ["same"], name="dissolved"),
        helper.make_node("Exp", ["x"], ["nobody"], name="unused"),
        helper.make_node("Gemm", ["same", "w", "b"], ["h"], name="fc0"),
        helper.make_node("Relu", ["h"], ["g"], name="act"),
        helper.make_node("Gemm", ["g", "minus_w", "b"], ["logits"], name="fc1"),
        helper.make_node("Softmax", ["logits"], ["y"], name="soft"),
    ]
    return model(nodes, {"x": X}, ["y"], {"w": w, "b": b})


def compiled(proto: onnx.ModelProto) -> tuple[Graph, Compiled]:
    """The imported graph, and what became of it, for one thread."""
    graph = importer.load(proto)
    return graph, compile_graph(graph, Options(Target.host(), threads=1))
