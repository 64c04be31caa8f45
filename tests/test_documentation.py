"""What the documentation says holds: its commands run, its verbs and fields are all there are."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import model
from tilewright.cli import main
from tilewright.cli.command import VERBS
from tilewright.cli.status import Status

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()


def blocks(text: str, wanted: str) -> list[str]:
    """The blocks of code in a language; those for a shell have none."""
    found: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for language, code in found if language == wanted]


def commands(text: str) -> list[str]:
    """The commands for a shell, without comments."""
    return [
        line.partition("  #")[0].strip() for block in blocks(text, "") for line in block.splitlines() if line.strip()
    ]


COMMANDS = [command for command in commands(README) if command.startswith("tilewright ")]

IDS = np.ones((1, 128), np.int64)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model as README.md has it, which reads ids and a mask."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"], name="embed"),
        helper.make_node("MatMul", ["words", "w"], ["h"], name="project"),
        helper.make_node("Cast", ["attention_mask"], ["m"], name="cast", to=onnx.TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m", "axis"], ["column"], name="column"),
        helper.make_node("Mul", ["h", "column"], ["y"], name="masked"),
    ]
    random = np.random.default_rng(0)
    weights = {"table": random.normal(size=(50, 16)), "w": random.normal(size=(16, 16))}
    constants = {**{k: v.astype(np.float32) for k, v in weights.items()}, "axis": np.array([2])}
    proto = model(nodes, {"input_ids": IDS, "attention_mask": IDS}, ["y"], constants)
    onnx.save(proto, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "key"))
    return tmp_path


def test_the_commands_of_the_readme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In order, as they build on each other; all verbs are shown."""
    assert {shlex.split(command)[1] for command in COMMANDS} == set(VERBS)
    for command in COMMANDS:
        quick = {"bench": ["--rounds", "1", "--slot", "0"], "profile": ["--seconds", "0"]}
        quick["tune"] = ["--minutes", "0.001"]
        _, verb, *arguments = shlex.split(command)
        assert main([verb, *arguments, *quick.get(verb, [])]) == 0, f"{command}: {capsys.readouterr().err}"
    assert (folder / "model.tw").exists()


def test_other_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    others = [command.split() for command in commands(README) if command not in COMMANDS]
    assert others
    assert all(program == "make" and target in targets for program, target, *_ in others)


def test_python_in_the_readme(folder: Path) -> None:
    names: dict[str, object] = {"ids": IDS, "mask": IDS}
    for block in blocks(README, "python"):
        exec(compile(block, "README.md", "exec"), names)
    assert (folder / "model.tw").exists()


def test_all_verbs_and_statuses_are_documented() -> None:
    rows = dict(re.findall(r"^\| `?(\w+)`? \| (.*) \|$", CLI, re.MULTILINE))
    assert set(VERBS) <= rows.keys()
    assert {str(int(status)) for status in Status} <= rows.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_all_fields_are_documented(verb: str) -> None:
    definitions = json.loads((ROOT / "docs" / "cli.schema.json").read_text())["$defs"]
    paragraphs = CLI.split("\n\n")
    position = next(i for i, text in enumerate(paragraphs) if text.startswith(f"**{verb}**"))
    told = set(re.findall(r"`(\w+)`", paragraphs[position]))
    assert _fields(definitions[verb]) <= told


def _fields(schema: object) -> set[str]:
    match schema:
        case {"properties": dict(properties), **_others}:
            return set(properties).union(*map(_fields, properties.values()))
        case {"anyOf": list(choices)}:
            return set[str]().union(*map(_fields, choices))
        case {"items": items}:
            return _fields(items)
        case {"additionalProperties": other}:
            return _fields(other)
        case _:
            return set()
