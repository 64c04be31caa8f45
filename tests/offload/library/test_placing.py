"""What is given to a library: by measured times, which tests replace; and what can't be asked for."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.offload.library.models import needs_library, network
from tilewright.base.errors import BadInput
from tilewright.cli import main
from tilewright.offload.library import placing
from tilewright.offload.library.model import LibraryModel
from tilewright.offload.library.timing import Stopwatch, Times
from tilewright.offload.library.units import Unit
from tilewright.runtime.library.onednn import library
from tilewright.runtime.library.primitive import Layout


def timed(monkeypatch: pytest.MonkeyPatch, own: float, by_library: float, whole: tuple[float, float]) -> None:
    """Let measurements find these times."""

    def times(self: Stopwatch, unit: Unit) -> Times:
        del self, unit
        return Times(own, by_library, Layout.ROWS)

    monkeypatch.setattr(Stopwatch, "times", times)
    monkeypatch.setattr(placing, "_whole", lambda *_: whole)


@needs_library
def test_what_is_faster_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 20.0, 10.0, (50.0, 40.0))
    proto, feeds = network()
    made = tilewright.compile(proto, library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert len(made.calls) == 3
    found = made.explain()
    told = [finding for finding in found.findings if finding.kind == "library"]
    assert [finding.subject for finding in told] == [
        "node c0 (Conv)",
        "node c1 (Conv)",
        "node last (Gemm)",
        "the model",
    ]
    assert told[0].reason == f"onednn {library().version} computes it in 10.0 us, our own kernel in 20.0 us"
    assert told[-1].reason == f"with calls of onednn {library().version} it takes 40.0 us, and 50.0 us without"
    fates = {row.node: row.fate for row in found.nodes}
    called = {place for place, fate in fates.items() if fate == "library"}
    assert called == {"node c0 (Conv)", "node r0 (Relu)", "node c1 (Conv)", "node last (Gemm)"}
    assert fates["node add (Add)"] == "kernel"
    rows = made.profile(feeds["x"], seconds=0.05, roofs=False).kernels
    assert [row.kernel.split(".")[0] for row in rows][:3] == ["library0 (library)", "library1 (library)", "part2"]


@needs_library
def test_what_is_slower_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 10.0, 20.0, (0.0, 0.0))
    proto, feeds = network()
    made = tilewright.compile(proto, library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert not made.calls
    assert made.kept[0].reason == "it takes 10.0 us here, and 20.0 us by the library"
    assert np.array_equal(made.run(None, feeds)[0], tilewright.compile(proto, threads=1).run(None, feeds)[0])


@needs_library
def test_nothing_is_given_away_if_the_model_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 20.0, 10.0, (50.0, 60.0))
    made = tilewright.compile(network()[0], library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert not made.calls
    assert "but the model 50.0 us without such calls, and 60.0 us with them" in made.kept[0].reason
    assert [finding.kind for finding in made.explain().findings].count("not by library") == 3


@needs_library
def test_times_are_measured() -> None:
    made = tilewright.compile(network()[0], library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert len(made.calls) + len(made.kept) == 3
    for placed in made.calls.values():
        assert placed.times is not None
        assert 0 < placed.times.library < placed.times.own


@needs_library
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"library": "mkl"}, "library='mkl': give onednn"),
        ({"library": "onednn,often"}, "library='onednn,often': give onednn"),
        ({"library": "onednn", "math": "strict"}, "library= computes in float32"),
        ({"library": "onednn", "precision": "bf16"}, "library= computes in float32"),
        ({"library": "onednn", "accelerator": "vta"}, "both split the model"),
        ({"library": "onednn", "isolate": True}, "leave isolate= and backend= out"),
        ({"library": "onednn", "target": "aarch64"}, "library= is measured here"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: Mapping[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tilewright.compile(network()[0], **arguments)


def test_by_default_there_are_no_calls() -> None:
    assert not isinstance(tilewright.compile(network()[0], threads=1), LibraryModel)


@needs_library
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(network()[0], tmp_path / "net.onnx")
    path, artifact = str(tmp_path / "net.onnx"), str(tmp_path / "net.tw")
    assert main(["explain", path, "--library", "onednn,always", "--threads", "1"]) == 0
    assert f"library: node c0 (Conv): onednn {library().version} computes it" in capsys.readouterr().out
    assert main(["compile", path, "-o", artifact, "--library", "onednn,always", "--quiet"]) == 0
    assert main(["run", artifact]) == 0
    assert main(["run", artifact, "--library", "onednn"]) == 2
    assert "leave --library out" in capsys.readouterr().err
