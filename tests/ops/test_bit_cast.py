"""BitCast: the same bytes as elements of another type, against NumPy's views."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import tilewright
from tests.frontend.models import model
from tests.test_computed_shapes import node
from tilewright.base.errors import InvalidModel
from tilewright.base.settings import Settings
from tilewright.runtime.stages import Kind
from tilewright.staged import StagedModel

Array = NDArray[np.generic]
SETTINGS = Settings(cache_dir=None, repro_dir=None)
OPSET = 26


def bit_cast(source: str, result: str, to: int) -> onnx.NodeProto:
    return node("BitCast", [source], [result], to=to)


def compiled(
    nodes: Sequence[onnx.NodeProto], x: Array, outputs: Sequence[str], **constants: Array
) -> tilewright.CompiledModel:
    return tilewright.compile(model(nodes, {"x": x}, outputs, constants, OPSET), threads=1, settings=SETTINGS)


SPECIAL = np.array([0x7FC00001, 0xFF800000, 0x80000000, 1, 0x3F800000], np.uint32)
"""A NaN with a payload, an infinity, a negative zero, a subnormal number and 1."""


def test_bits_of_floats_are_kept() -> None:
    """Both ways, between native parts; no bit of a NaN changes."""
    x = SPECIAL.view(np.float32)
    add = node("Add", ["i", "one"], ["j"])
    nodes = [bit_cast("x", "i", TensorProto.INT32), add, bit_cast("j", "y", TensorProto.FLOAT)]
    made = compiled(nodes, x, ["i", "y"], one=np.array(1, np.int32))
    assert isinstance(made, StagedModel)
    assert [plan.kind for plan in made.stages] == [Kind.VIEW, Kind.PART, Kind.VIEW, Kind.PART]
    i, y = made.run(None, {"x": x})
    np.testing.assert_array_equal(i, x.view(np.int32))
    np.testing.assert_array_equal(y.view(np.int32), x.view(np.int32) + 1)
    assert not np.may_share_memory(i, x)
    (finding, _) = (each for each in made.explain().findings if each.kind == "stage")
    assert "the same bytes are elements of another type" in finding.reason


def test_it_is_saved(tmp_path: Path) -> None:
    x = SPECIAL.view(np.float32)
    made = compiled([bit_cast("x", "y", TensorProto.UINT32)], x, ["y"])
    made.save(tmp_path / "m.tw", signed=False)
    (y,) = tilewright.load(tmp_path / "m.tw", trust=True).run(None, {"x": x})
    np.testing.assert_array_equal(y, SPECIAL)


@pytest.mark.parametrize(
    "dtype", [np.int8, *(pytest.param(other, marks=pytest.mark.slow) for other in (np.uint16, np.int64, np.bool_))]
)
def test_integers_wrap_around(dtype: type[np.generic]) -> None:
    """No stage is needed."""
    x = np.array([0, 1, 77, 200, 255], np.uint8).astype(dtype)
    to = {1: TensorProto.UINT8, 2: TensorProto.INT16, 8: TensorProto.UINT64}[x.itemsize]
    made = compiled([bit_cast("x", "y", to)], x, ["y"])
    assert not isinstance(made, StagedModel)
    (y,) = made.run(None, {"x": x})
    np.testing.assert_array_equal(y, x.view(helper.tensor_dtype_to_np_dtype(to)))


def test_constants_have_no_stage() -> None:
    nodes = [bit_cast("c", "i", TensorProto.INT32), node("Add", ["x", "i"], ["y"])]
    x = np.arange(5, dtype=np.int32)
    made = compiled(nodes, x, ["y"], c=SPECIAL.view(np.float32))
    assert not isinstance(made, StagedModel)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], x + SPECIAL.view(np.int32))


def test_sizes_must_be_equal() -> None:
    with pytest.raises(InvalidModel, match=r"node 0 \(BitCast\): .* can't be i64: both must have elements of the same"):
        compiled([bit_cast("x", "y", TensorProto.INT64)], np.zeros(3, np.float32), ["y"])
