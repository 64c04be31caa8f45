"""A target outside of the package: ``my_board.py``, given by its user or found as an entry point."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.extending.my_board import MY_BOARD
from tests.extending.packages import HERE, install
from tests.insight.models import FEEDS, classifier
from tilewright.base.errors import ParseError, UnsupportedTarget
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.target import target
from tilewright.target.target import Target

ALONE = Settings(cache_dir=None, repro_dir=None)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, target.GROUP, "my_board", "boards_of_mine:MY_BOARD", HERE / "my_board.py")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_model_is_made_for_it(tmp_path: Path) -> None:
    made = tilewright.compile(classifier(), target=MY_BOARD, settings=ALONE)
    assert made.options.target == MY_BOARD
    made.save(tmp_path / "m.tw")
    with pytest.raises(UnsupportedTarget, match="aarch64"):
        made.run(None, FEEDS)


def test_its_text_has_its_facts(installed: Path) -> None:
    """Records and caches go by it."""
    del installed
    assert Target.parse("my_board") == MY_BOARD
    assert "memory_registers=0.08" in str(MY_BOARD)
    assert Target.parse(str(MY_BOARD)) == MY_BOARD
    changed = Target.parse("my_board, cores=2, fma_latency=5")
    assert changed == replace(MY_BOARD, cores=2, machine=replace(MY_BOARD.machine, fma_latency=5.0))
    with pytest.raises(ParseError, match="fly"):
        Target.parse("my_board,fly=2")


def test_an_installed_one_has_a_name_everywhere(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = installed / "m.onnx"
    onnx.save(classifier(), path)
    assert main(["compile", str(path), "--target", "my_board", "-o", str(installed / "m.tw"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == str(MY_BOARD)
    assert main(["doctor", "--no-measure", "--json"]) == 0
    where = "my_board = boards_of_mine:MY_BOARD of the package boards-of-mine-my-board 1.0"
    assert f"{where} (entry points {target.GROUP})" in json.loads(capsys.readouterr().out)["added"]
    known = "x86_64, aarch64, riscv64, wasm32, wasm64, aarch64-macos, x86_64-windows, my_board, and host alone"
    with pytest.raises(ParseError, match=f"known: {known}"):
        Target.parse("your_board")


RUN = """
import sys
import tilewright
print(tilewright.compile(sys.argv[1], target="small", threads=1).is_cached)
"""


def test_what_is_compiled_for_it_goes_by_its_facts(tmp_path: Path) -> None:
    """Not by its name: whoever changes it compiles anew."""
    path = tmp_path / "m.onnx"
    onnx.save(classifier(), path)
    text = "from tilewright.target.target import Target\n\nSMALL = Target.parse('x86_64,x86-64-v3,l2=256K')\n"
    install(tmp_path, target.GROUP, "small", "small_boards:SMALL")
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(tilewright.__file__).parents[1]}", "HOME": str(tmp_path)}

    def told(source: str) -> str:
        (tmp_path / "small_boards.py").write_text(source)
        command = [sys.executable, "-B", "-c", RUN, str(path)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.strip()

    assert [told(text), told(f"# a remark\n{text}"), told(text.replace("256K", "512K"))] == ["False", "True", "False"]


def test_it_computes_the_same() -> None:
    small = replace(Target.parse("x86_64,x86-64-v3"), l2_bytes=1 << 18)
    results = [tilewright.compile(classifier(), target=t, settings=ALONE).run(None, FEEDS)[0] for t in ("host", small)]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_the_documentation_shows_the_file() -> None:
    assert (HERE / "my_board.py").read_text() in (HERE.parents[1] / "docs" / "extending.md").read_text()
