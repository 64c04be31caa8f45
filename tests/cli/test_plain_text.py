"""What looks like rich's markup, or like the name of an emoji, is printed as it is."""

import re
from pathlib import Path

import onnx
import pytest

import tilewright
from tests.insight.models import classifier
from tilewright.cli import main
from tilewright.measure.records import Records

NAME = "[bold]m[/bold]:x:"
DONE = {
    "compile": f"compile {NAME}.onnx -o {NAME}.tw --threads 1",
    "explain": f"explain {NAME}.onnx --threads 1",
    "optimize": f"optimize {NAME}.onnx --superopt off -o out.onnx",
    "repro": f"repro m.onnx -o {NAME}.zip",
    "report": f"report m.db -o {NAME}.html",
}
REFUSED = {
    "run": f"run {NAME}.onnx.none",
    "bench": f"bench {NAME}.none",
    "profile": f"profile {NAME}.none",
    "tune": f"tune {NAME}.none --records m.db",
    "rerun": f"rerun {NAME}.none",
    "sign": f"sign m.onnx --key {NAME}.none",
    "rules prune": f"rules prune {NAME}.none",
    "rules generate": f"rules generate --family {NAME}.none",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model, also under a name with a slash, and records."""
    monkeypatch.chdir(tmp_path)
    Path("[bold]m[").mkdir()
    onnx.save(classifier(), "m.onnx")
    onnx.save(classifier(), f"{NAME}.onnx")
    Records.open(Path("m.db")).close()


@pytest.mark.parametrize("verb", [*DONE, *REFUSED])
def test_paths_are_printed_as_they_are(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main((DONE | REFUSED)[verb].split()) == (0 if verb in DONE else 2)
    shown = capsys.readouterr()
    assert NAME in shown.out + shown.err


def test_cells_of_tables_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"{NAME}.rules").write_text("rule :x:\n  for x[*s], y[*s]\n  from Sub(x, y)\n  to Sub(y, x)\n")
    assert main(["rules", "verify", f"{NAME}.rules"]) == 1
    shown = capsys.readouterr().out
    assert f"{NAME}.rules" in shown and " :x: " in shown


def test_all_consoles_are_plain() -> None:
    source = Path(tilewright.__path__[0])
    made = [path.relative_to(source) for path in source.rglob("*.py") if re.search(r"\bConsole\(", path.read_text())]
    assert made == [Path("insight/console.py")]
