"""Conditions on sizes in the metadata of a model: it runs for such sizes only."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.base.errors import BadFeed, InvalidModel
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read.importer import load
from tilewright.frontend.onnx.read.noted_sizes import KEY, Form, note

ALONE = Settings(cache_dir=None, repro_dir=None)


def doubled(*conditions: Form) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["height", "width"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    note(proto, conditions)
    return proto


def test_a_run_with_other_sizes_is_refused(tmp_path: Path) -> None:
    """Also of an artifact: the height is at most 8, and the width a multiple of 4."""
    proto = doubled(("-", 8, "height"), ("-", 0, ("%", "width", 4)), ("max", "height", ("-", "width", 1)))
    model = tilewright.compile(proto, threads=1, settings=ALONE)
    model.save(tmp_path / "m.tw", settings=Settings(key_dir=tmp_path / "keys"))
    for each in (model, tilewright.load(tmp_path / "m.tw", settings=Settings(key_dir=tmp_path / "keys"))):
        (y,) = each.run(None, {"x": np.ones((8, 12), np.float32)})
        np.testing.assert_array_equal(y, np.full((8, 12), 2, np.float32))
        for shape in ((9, 12), (8, 10)):
            with pytest.raises(BadFeed, match="but the model was compiled for 0 or more"):
                each.run(None, {"x": np.ones(shape, np.float32)})


def test_sizes_that_are_given_are_checked_at_once() -> None:
    proto = doubled(("-", 8, "height"))
    assert not load(proto, {"x": (8, 3)}).limits
    with pytest.raises(InvalidModel, match="the model is not for these sizes"):
        load(proto, {"x": (9, 3)})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[",
        "[" * 9999,
        '["depth"]',
        "[[]]",
        '[["^", 1, 2]]',
        '[["//", "height", "width"]]',
        '[["%", "height", 0]]',
        "[true]",
        "[1.5]",
        f"[{1 << 70}]",
        json.dumps([["+", 1, ["+", 1, 1]]] * 9999),
        "[" + '["+", 1, ' * 40 + "1" + "]" * 41,
    ],
)
def test_notes_that_cannot_be_read(text: str) -> None:
    proto = doubled()
    proto.metadata_props.add(key=KEY, value=text)
    with pytest.raises(InvalidModel, match="of the model's metadata can't be read"):
        load(proto)
