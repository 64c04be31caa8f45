"""Faults of the compiler: what is raised is the fault; a bundle is kept, privately and within bounds."""

import json
import zipfile
from pathlib import Path

import onnx
import pytest

from tests.insight.models import classifier
from tilewright import api
from tilewright.base.errors import BadInput, InternalError, NotEquivalent, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.frontend.opening import opened
from tilewright.insight import faults
from tilewright.insight.faults import MOST_BUNDLES, note_of
from tilewright.insight.repro import Request

HOST = Request("host")
ERROR = InternalError("broken")


def compile_with(error: Exception, folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> InternalError:
    """What compiling raises where a step raises ``error``."""

    def fail(*_: object) -> object:
        raise error

    monkeypatch.setattr(api, "compile_taken", fail)
    with pytest.raises(InternalError) as caught:
        api.compile(classifier(), shapes={"x": (4, 8)}, threads=1, settings=Settings(repro_dir=folder))
    return caught.value


@pytest.mark.parametrize("error", [InternalError("broken"), NotEquivalent("y", "broken"), KeyError("broken")])
def test_the_fault_itself_is_raised_and_a_note_names_the_bundle(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = compile_with(error, tmp_path / "repro", monkeypatch)
    assert raised is error or (str(raised), raised.__cause__) == ("KeyError: 'broken'", error)
    (bundle,) = (tmp_path / "repro").iterdir()
    assert raised.__notes__ == [f"a bundle to reproduce it is in {bundle}; it holds the model"]
    assert bundle.stat().st_mode & 0o777 == 0o600
    assert bundle.parent.stat().st_mode & 0o777 == 0o700
    with zipfile.ZipFile(bundle) as archive:
        settings = json.loads(archive.read("settings.json"))
    assert settings["shapes"] == {"x": [4, 8]}
    assert "broken" in settings["error"]


@pytest.mark.parametrize(
    "trouble",
    [OSError(28, "No space left on device"), BadInput("odd"), ValueError("odd"), MemoryError()],
)
def test_the_fault_is_raised_where_no_bundle_can_be(
    trouble: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise trouble

    monkeypatch.setattr(faults, "pack_model", fail)
    raised = compile_with(ERROR, tmp_path / "repro", monkeypatch)
    assert raised is ERROR
    assert raised.__notes__[-1].startswith("no bundle to reproduce it could be written: ")


def test_the_command_shows_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    assert isinstance(capsys, pytest.CaptureFixture)
    onnx.save(classifier(), tmp_path / "m.onnx")
    compile_with(InternalError("broken"), None, monkeypatch)
    assert main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.tw")]) == 4
    told = capsys.readouterr().err
    assert "InternalError: broken" in told
    assert "no bundle to reproduce it was written, as TILEWRIGHT_REPRO_DIR is off" in told


def test_bundles_are_bounded_in_number(tmp_path: Path) -> None:
    settings = Settings(repro_dir=tmp_path / "repro")
    (tmp_path / "repro").mkdir(mode=0o700)
    (tmp_path / "repro" / "mine.zip").touch()
    for number in range(MOST_BUNDLES + 3):
        old = tmp_path / "repro" / f"20200101-0000{number:02}-01234567.zip"
        old.touch()
    note = note_of(ERROR, opened(classifier()), HOST, settings)
    left = sorted(path.name for path in (tmp_path / "repro").iterdir())
    assert len(left) == MOST_BUNDLES + 1
    assert "mine.zip" in left
    assert left[0] == "20200101-000004-01234567.zip"
    assert Path(note.split(" is in ")[1].split(";")[0]).name in left


def test_bundles_are_bounded_in_bytes(tmp_path: Path) -> None:
    note_of(ERROR, opened(classifier()), HOST, Settings(repro_dir=tmp_path / "one"))
    (one,) = (tmp_path / "one").iterdir()
    bound = one.stat().st_size * 4
    folder = tmp_path / "repro"
    for _ in range(6):
        note = note_of(ERROR, opened(classifier()), HOST, Settings(repro_dir=folder, repro_bytes=bound))
        assert "is in" in note
        assert sum(path.stat().st_size for path in folder.iterdir()) <= bound
    assert len(list(folder.iterdir())) >= 2


def test_a_model_that_is_larger_than_the_bound_leaves_none(tmp_path: Path) -> None:
    note = note_of(ERROR, opened(classifier()), HOST, Settings(repro_dir=tmp_path / "repro", repro_bytes=100))
    assert "more than 100; raise TILEWRIGHT_REPRO_BYTES" in note
    assert list((tmp_path / "repro").iterdir()) == []


def test_a_folder_that_others_can_write_to_gets_none(tmp_path: Path) -> None:
    folder = tmp_path / "repro"
    folder.mkdir()
    folder.chmod(0o777)
    assert "other users can write to it" in note_of(ERROR, opened(classifier()), HOST, Settings(repro_dir=folder))
    assert list(folder.iterdir()) == []


def test_what_is_no_fault_leaves_no_bundle(tmp_path: Path) -> None:
    proto = classifier()
    proto.graph.node[4].op_type = "Fly"
    with pytest.raises(UnsupportedModel) as caught:
        api.compile(proto, settings=Settings(repro_dir=tmp_path / "repro"))
    assert not hasattr(caught.value, "__notes__")
    assert not (tmp_path / "repro").exists()
