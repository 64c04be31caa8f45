"""Front ends are asked in turn; what none of them accepts is refused in words."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontend.models import single_node
from tests.insight.models import classifier
from tilewright.base.errors import BadInput
from tilewright.frontend.opening import opened
from tilewright.insight.repro import Request, pack_model
from tilewright.insight.rerun import rerun


def test_what_no_front_end_accepts() -> None:
    for given in (None, 3, "", object()):
        with pytest.raises(BadInput, match=r"compile: model=.*: give a path, bytes, a file open .*, or a ModelProto"):
            opened(given)


def test_a_file_and_an_object_are_the_same_model(tmp_path: Path) -> None:
    proto = single_node("Relu", {"x": np.ones(3, np.float32)})
    onnx.save(proto, tmp_path / "m.onnx")
    file, held = opened(tmp_path / "m.onnx"), opened(proto)
    assert str(file.load({}, {})) == str(held.load({}, {}))
    assert [v.name for v in file.inputs({})] == ["x"]
    assert (file.files(), held.files()) == ((tmp_path / "m.onnx",), ())
    assert file.path_for_others(tmp_path) == tmp_path / "m.onnx"
    assert onnx.load(held.path_for_others(tmp_path)) == proto


def test_a_bundle_names_its_model_and_nothing_outside(tmp_path: Path) -> None:
    pack_model(tmp_path / "b", opened(classifier()), Request("host", 1))
    settings = tmp_path / "b" / "settings.json"
    shutil.copy(tmp_path / "b" / "model.onnx", tmp_path / "other.onnx")
    settings.write_text(settings.read_text().replace('"model.onnx"', '"../model.onnx"'))
    assert rerun(tmp_path / "b")
    settings.write_text(settings.read_text().replace('"../model.onnx"', '"../other.onnx"'))
    with pytest.raises(BadInput, match=r"no model file .*b/other\.onnx"):
        rerun(tmp_path / "b")
