"""The page about fleets: its commands and its program run, with devices on this machine and certificates."""

import re
import shlex
from pathlib import Path

import onnx
import pytest

from tests.cli.schema import report
from tests.fleet.fleets import Local, free_port, started, until
from tests.insight.models import classifier
from tilewright.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
WHERE = "fleet.example:8790"
_BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.usefixtures("short_turns")
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "own"))
    onnx.save(classifier(), "model.onnx")
    there = f"127.0.0.1:{free_port()}"
    fleet = Local(tmp_path, started(), f"tls://{there}")
    ran: list[str] = []
    try:
        for left_out, language, text in _BLOCK.findall(PAGE):
            if left_out and "test_page.py" not in left_out:
                continue
            code = text.replace(WHERE, there)
            if language == "python":
                exec(compile(code, "fleet.md", "exec"), {})
                continue
            for command in code.splitlines():
                ran.append(_run(fleet, shlex.split(command), capsys))
    finally:
        fleet.zygote.communicate()
    assert ran == ["certs", "serve", "join", "join", "join", "status", "doctor", "run", "profile", "bench", "tune"]


def _run(fleet: Local, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; those that go on are left running. Returns its verb."""
    match words:
        case ["tilewright", "fleet", "serve", *arguments]:
            fleet.start("scheduler", "serve", *arguments)
            until(fleet.listens)
            return "serve"
        case ["tilewright", "fleet", "join", *arguments]:
            name = arguments[arguments.index("--name") + 1]
            fleet.start(name, "join", *arguments, "--folder", str(fleet.folder / name))
            until(lambda: "joined" in fleet.log(name))
            return "join"
        case ["tilewright", verb, *arguments]:
            capsys.readouterr()
            given = [word for word in arguments if word != "input_ids=1x128" and word != "--shape"]
            assert main([verb, *given, "--json"]) == 0, words
            found = report(verb, capsys.readouterr().out)
            _check(verb, found)
            return arguments[0] if verb == "fleet" else verb
        case _:
            pytest.fail(f"what is {words}?")


def _check(verb: str, found: dict[str, object]) -> None:
    match verb:
        case "run" | "profile" | "bench":
            device = found["device"]
            assert isinstance(device, dict) and device["name"] in ("red", "green", "blue")  # pyright: ignore[reportUnknownVariableType]
            assert found.get("agree", True) is True
        case "tune":
            assert found["measured"]
        case _:
            pass
