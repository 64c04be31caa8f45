"""Models that are long, and names that are odd: rows 51 and 52 of the table of bad inputs."""

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import model
from tilewright.base.errors import InvalidModel, UnsupportedModel

X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


HALVES = X / 2


def chain(op: str, length: int) -> onnx.ModelProto:
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    return model(nodes, {"v0": HALVES}, [f"v{length}"])


@pytest.mark.parametrize("length", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_long_chain(length: int) -> None:
    """Nothing on the way is recursive, and equal kernels are made once."""
    compiled = tilewright.compile(chain("Ceil", length))
    np.testing.assert_array_equal(compiled.run(None, {"v0": HALVES})[0], np.ceil(HALVES))
    assert len(compiled.compiled.kernels) <= 2
    assert str(compiled.compiled.main).count("v") > length / 64


@pytest.mark.parametrize("length", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_long_chain_that_is_one_operator(length: int) -> None:
    """Rules are applied all along, not one after the other from the start."""
    compiled = tilewright.compile(chain("Relu", length))
    np.testing.assert_array_equal(compiled.run(None, {"v0": HALVES})[0], np.maximum(HALVES, 0))
    assert len(compiled.compiled.kernels) == 1


NAMES = ["a\0b", "a\nb", "\x1b[31m", "x" * 1_000_000, "../../etc/passwd", "ünïcode", "%s{}", "node\u202eedon"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_may_be_anything(name: str) -> None:
    nodes = [
        helper.make_node("Relu", [name], [f"{name}1"], name=name),
        helper.make_node("Softmax", [f"{name}1"], [f"{name}2"], name=name),
    ]
    compiled = tilewright.compile(model(nodes, {name: X}, [f"{name}2"]))
    raised = np.exp(np.maximum(X, 0))
    expected = raised / raised.sum(1, keepdims=True)
    np.testing.assert_allclose(compiled.run(None, {name: X})[0], expected, rtol=1e-6)
    printed = [str(compiled.compiled.graph), str(compiled.compiled.main), *map(str, compiled.compiled.kernels)]
    assert all(line.isprintable() and len(line) < 2000 for text in printed for line in text.split("\n"))


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_errors_with_odd_names_can_be_printed(name: str) -> None:
    for op, error in ((f"Foo{name}", UnsupportedModel), ("MatMul", InvalidModel), ("Reshape", InvalidModel)):
        proto = model([helper.make_node(op, [name, name], ["y"], name=name)], {name: X.astype(np.int64)}, ["y"])
        with pytest.raises(error) as raised:
            tilewright.compile(proto)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 2000
