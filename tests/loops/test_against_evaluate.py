"""Two meanings of tensor expressions agree: lowered and interpreted, and evaluated with NumPy."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.loops import workloads
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.symbolic.expr import Const
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Placeholder, Tensor, inputs_of, topological_order

WORKLOADS: dict[str, Callable[[], Tensor | Sequence[Tensor]]] = {
    "matmul": lambda: workloads.matmul(5, 4, 6),
    "conv2d": lambda: workloads.conv2d_padded(6, 2, 3, 3, 2),
    "argmax": lambda: workloads.argmax(4, 5),
    "welford": lambda: workloads.welford(3, 5),
    "cumsum": lambda: workloads.cumsum(5, 2),
    "lstm": lambda: workloads.lstm(4, 2),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_agree(name: str) -> None:
    made = WORKLOADS[name]()
    outputs = [made] if isinstance(made, Tensor) else list(made)
    program = lower(outputs)
    fed = {param.name for param in program.inputs}
    read = {t for op in topological_order(outputs) for t in inputs_of(op) if isinstance(t.op, Placeholder)}
    random = np.random.default_rng(1)
    feeds = {t: random.standard_normal([size(e) for e in t.shape]).astype(np.float32) for t in read if t.name in fed}
    results = interpret(program, {t.name: array for t, array in feeds.items()})
    for param, expected in zip(program.results, evaluate(outputs, feeds), strict=True):
        np.testing.assert_allclose(results[param.name], expected, rtol=1e-5, atol=1e-6)


def size(extent: object) -> int:
    assert isinstance(extent, Const)
    return int(extent.value)
