"""The page about PyTorch holds: its blocks run, where PyTorch is installed."""

import re
from pathlib import Path

import pytest

from tilewright.cli import main

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

backend = pytest.importorskip("tilewright.dynamo.backend").backend

PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "tilewright" not in torch.compiler.list_backends():  # installed before it was one
        torch._dynamo.register_backend(backend, name="tilewright")
    names: dict[str, object] = {}
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(code, "pytorch.md", "exec"), names)
        elif code.startswith("tilewright "):
            assert main(code.split()[1:]) == 0
