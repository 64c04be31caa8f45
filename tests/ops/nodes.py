"""One ONNX node by the te evaluator and as native code, against an oracle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import tilewright
from tests.frontend.models import run_onnxruntime, single_node
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify

Array = NDArray[np.generic]
Oracle = Callable[[onnx.ModelProto, Mapping[str, Array]], Sequence[Array]]


def run_reference(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """All outputs, by ONNX's own reference evaluator."""
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(proto).run(None, dict(feeds))


@dataclass(frozen=True)
class NodeCase:
    """A node, its inputs, the constants among its operands (None: left out), and how near the results must be."""

    op: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    constants: Sequence[Array | None] = ()
    outputs: int = 1
    opset: int = 21
    tolerance: float = 1e-5
    oracle: Oracle = run_onnxruntime

    def __str__(self) -> str:
        shapes = ["none" if a is None else f"{a.dtype}{'x'.join(map(str, a.shape))}" for a in self.inputs]
        options = [f"{name}{value}" for name, value in self.attributes.items()]
        return "-".join([self.op, *shapes, *options, str(self.opset)])

    @property
    def feeds(self) -> dict[str, Array]:
        """The inputs by name."""
        return {f"x{position}": array for position, array in enumerate(self.inputs) if array is not None}

    def model(self) -> onnx.ModelProto:
        """A model of this node alone; it is called `n`."""
        constants = {f"c{position}": array for position, array in enumerate(self.constants) if array is not None}
        order = ["" if array is None else f"x{position}" for position, array in enumerate(self.inputs)]
        order += ["" if array is None else f"c{position}" for position, array in enumerate(self.constants)]
        return single_node(self.op, self.feeds, constants, order, self.outputs, self.opset, **self.attributes)


def check(case: NodeCase) -> None:
    """Both ways of Tilewright give what the oracle gives: dtypes and shapes exactly, floats within the tolerance."""
    feeds, proto = case.feeds, case.model()
    expected = case.oracle(proto, feeds)
    graph = importer.load(proto)
    verify(graph)
    _compare(evaluate_graph(graph, feeds), expected, case.tolerance)
    _compare(tilewright.compile(proto).run(None, feeds), expected, case.tolerance)


def _compare(results: Sequence[Array], expected: Sequence[Array], tolerance: float) -> None:
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        near = tolerance if wanted.dtype.kind == "f" else 0
        np.testing.assert_allclose(result, wanted, rtol=near, atol=near)
