"""Calls of a library in artifacts: they name it, and nothing is read or called that does not fit."""

import json
import pickle
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.offload.library.models import always, manifest_of, needs_library, network, normal
from tilewright.base.errors import BadArtifact, BadInput, CorruptArtifact, Unsupported
from tilewright.runtime.artifact.artifact import Artifact
from tilewright.runtime.artifact.description import Build
from tilewright.runtime.devices import Openers
from tilewright.runtime.library import onednn, step
from tilewright.runtime.library.onednn import Library, library
from tilewright.runtime.library.primitive import Function, Layout, Window
from tilewright.runtime.runnable import RunnableModel


@needs_library
def test_artifacts_name_the_library_and_run(tmp_path: Path) -> None:
    proto, feeds = network()
    made = always(proto)
    path = tmp_path / "net.tw"
    made.save(path)
    (want,) = made.run(None, feeds)
    loaded = tilewright.load(path, threads=1)
    again: Sequence[RunnableModel] = (loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(made)))
    for each in again:
        assert np.array_equal(each.run(None, feeds)[0], want)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(whole.open("bodies/0000.tw")) as part:
        target = json.loads(part.read("manifest.json"))["target"]
    assert target == {"name": f"onednn {library().version}", "architecture": "onednn", "features": []}
    with pytest.raises(BadInput, match=r"accelerator=.*leave it out"):
        tilewright.load(path, accelerator="vta")


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without the wheel."""
    monkeypatch.setattr(onednn, "_WHEELS", ("no-such-wheel",))
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_an_artifact_is_not_loaded_without_the_library() -> None:
    arrays = (normal(6, 5),)
    build = Build("0", None, "onednn 3.2.0", "onednn", ())
    part = Artifact(build, manifest_of((4, 6), (4, 5), *arrays), (step.written(Function(None)),), arrays)
    message = r"computed by onednn 3\.2\.0: oneDNN is not installed: pip install 'tilewright\[onednn\]'"
    with pytest.raises(Unsupported, match=message):
        Openers().executable(part)


@pytest.mark.usefixtures("no_library")
def test_without_the_library_the_error_has_the_remedy() -> None:
    with pytest.raises(Unsupported, match=r"oneDNN is not installed: pip install 'tilewright\[onednn\]'"):
        tilewright.compile(network()[0], library="onednn")


def test_what_is_not_the_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libdnnl.so").write_bytes(b"")
    for path in (tmp_path / "missing.so", tmp_path / "libdnnl.so"):
        with pytest.raises(Unsupported, match=r"oneDNN of .* can't be used .* libgomp: pip install"):
            Library(path)


PLAIN = Function(Window((2, 1), (1, 1), (1, 0), (0, 1), 2), low=-1.0, high=2.0, layout=Layout.CHOSEN)


@pytest.mark.parametrize("function", [PLAIN, Function(None, transposed=True), Function(None, low=0.0)])
def test_functions_are_read_as_they_are_written(function: Function) -> None:
    assert step.read(step.written(function)) == function


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"[]",
        b"{}",
        step.written(PLAIN)[:-1],
        step.written(PLAIN).replace(b'"groups": 2', b'"groups": "2"'),
        step.written(PLAIN).replace(b"chosen", b"other"),
        step.written(PLAIN).replace(b'"low": -1.0', b'"low": NaN'),
        step.written(PLAIN) + b" ",
    ],
)
def test_other_code_is_refused(code: bytes) -> None:
    with pytest.raises(CorruptArtifact, match="a step of a library"):
        step.read(code)


@pytest.mark.parametrize(
    ("source", "result", "weights", "bias"),
    [
        ((1, 4, 6, 6), (1, 4, 4, 5), (4, 4, 3, 3), (4,)),
        ((1, 4, 6, 6), (1, 4, 4, 4), (4, 3, 3, 3), (4,)),
        ((1, 4, 6, 6), (1, 4, 4, 4), (4, 4, 3, 3), (5,)),
        ((4, 6, 6), (4, 4, 4), (4, 4, 3, 3), (4,)),
        ((1, 4, 2, 2), (1, 4, 0, 0), (4, 4, 3, 3), (4,)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    source: tuple[int, ...], result: tuple[int, ...], weights: tuple[int, ...], bias: tuple[int, ...]
) -> None:
    """The library reads and writes as much as shapes say: these are checked before it is called."""
    arrays = (normal(*weights), normal(*bias))
    function = Function(Window((1, 1), (1, 1), (0, 0), (0, 0)))
    with pytest.raises(BadArtifact, match="a step of a library makes no"):
        step.StepExecutable(function, manifest_of(source, result, *arrays), arrays, 1)


def test_windows_that_make_nothing_are_refused() -> None:
    window = PLAIN.window
    assert window is not None
    assert window.result((1, 4, 9, 9), (6, 2, 3, 3)) == (1, 6, 4, 8)
    for wrong in (replace(window, groups=0), replace(window, strides=(0, 1)), replace(window, before=(-1, 0))):
        assert wrong.result((1, 4, 9, 9), (6, 2, 3, 3)) is None
