"""What runs between native parts is told with its place, its reason and a remedy."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import single_node
from tilewright.base.errors import Unsupported
from tilewright.cli import main
from tilewright.frontend.onnx.read import importer
from tilewright.passes.between import Between
from tilewright.quantization.quantizer import quantize

FEW = np.ones(4, np.float32)


def cast(given: int, made: int) -> onnx.ModelProto:
    """Elements of one type as those of another."""
    inputs, outputs = [helper.make_tensor_value_info("x", given, [4])], [helper.make_tensor_value_info("y", made, [4])]
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], name="n", to=made)], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


def body(op: str) -> onnx.GraphProto:
    """A branch of one node."""
    made = helper.make_tensor_value_info(op, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [made])


NARROW = {
    "float8 input": (
        cast(TensorProto.FLOAT8E5M2, TensorProto.FLOAT),
        "input x: its elements are f8e5m2, .* f32 in the model",
    ),
    "signed input": (cast(TensorProto.INT4, TensorProto.FLOAT), "input x: its elements are i4, .* i8 in the model"),
    "unsigned input": (cast(TensorProto.UINT4, TensorProto.FLOAT), "input x: its elements are u4, .* u8 in the model"),
    "float4 output": (
        cast(TensorProto.FLOAT, TensorProto.FLOAT4E2M1),
        "output y: its elements are f4e2m1fn, .* f32 in the model, and convert the results after",
    ),
}
CASES = {
    **NARROW,
    "bits": (
        single_node("BitCast", {"x": FEW}, opset=26, to=TensorProto.INT32),
        r"node n \(BitCast\): the same bytes are elements of another type, .* by a Cast",
    ),
    "sizes": (
        single_node("NonZero", {"x": FEW}),
        r"node n \(NonZero\).*: sizes are known only when a part of the model has run; give constants",
    ),
    "branch": (
        single_node(
            "If", {"c": np.array(True), "x": FEW}, order=["c"], then_branch=body("Relu"), else_branch=body("Neg")
        ),
        r"node n \(If\): which branch is taken, .* make it a constant",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_node_between_parts(case: str) -> None:
    proto, told = CASES[case]
    assert re.search(told, str(Between.first(importer.load(proto))))


def test_one_part_has_none() -> None:
    assert Between.first(importer.load(single_node("Relu", {"x": FEW}))) is None


@pytest.mark.parametrize("case", NARROW)
def test_optimize_tells_of_narrow_types(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not said that shapes depend on data."""
    proto, told = NARROW[case]
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    assert main(["optimize", str(path), "--quiet"]) != 0
    assert re.search(told, " ".join(capsys.readouterr().err.split()))


def test_quantize_tells_the_place() -> None:
    with pytest.raises(Unsupported, match=r"can't be quantized. node n \(NonZero\)"):
        quantize(CASES["sizes"][0], {"x": FEW[None]})
