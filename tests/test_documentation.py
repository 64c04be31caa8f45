"""What the documentation says holds: its snippets and commands run, its links lead somewhere, it names all verbs.

Of each page, in order and in one folder: ``python`` blocks are executed (one that begins with a docstring is a module
of its own, whose names the page imports unless it has them already), commands of ``sh`` blocks are run, and the text of
a ``text`` block must have been printed by then (a line ``...`` stands for any text). Commands other than ``tilewright``
(``make``, ``pip``, ``python -m``) are not run; what they name must exist. A block after the comment
``<!-- not run: REASON -->`` is left out.
"""

import json
import re
import shlex
import shutil
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
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
README = ROOT / "README.md"
CLI = (ROOT / "docs" / "cli.md").read_text()
PAGES = [README, ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICK = {
    "bench": ["--rounds", "1", "--slot", "0"],
    "profile": ["--seconds", "0", "--no-roofs"],
    "tune": ["--minutes", "0.001"],
}
QUICK["doctor"] = ["--no-measure"]
IDS = np.ones((1, 128), np.int64)
_BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```([\w{}-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!`)\[[^\]`]*(?:`[^`]*`[^\]`]*)*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str

    def commands(self) -> Iterator[str]:
        """Of a shell, without comments; a backslash continues a line."""
        for line in self.code.replace("\\\n", " ").splitlines():
            if command := line.partition("  #")[0].strip():
                yield command


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are run or held against what was printed."""
    found = _BLOCK.findall(page.read_text())
    return [Block(language, code) for skipped, language, code in found if not skipped]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models that pages name: ``model.onnx`` reads ids and a mask, others have a dense layer."""
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
    for value in proto.graph.input:
        for dim, name in zip(value.type.tensor_type.shape.dim, ("batch", "sequence"), strict=True):
            dim.dim_param = name
    onnx.save(proto, tmp_path / "model.onnx")
    samples = random.integers(0, 50, (8, 16))
    np.savez(tmp_path / "calibration.npz", input_ids=samples, attention_mask=np.ones_like(samples))
    dense = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"), helper.make_node("Relu", ["h"], ["y"])]
    x = np.ones((2, 16), np.float32)
    for name in ("net", "a", "b"):
        onnx.save(model(dense, {"x": x}, ["y"], {"w": constants["w"]}), tmp_path / f"{name}.onnx")
    shutil.copy(ROOT / "tests" / "extending" / "factor_out.rules", tmp_path)
    monkeypatch.chdir(tmp_path)
    for variable in ("KEY_DIR", "CACHE_DIR", "RECORDS", "REPRO_DIR"):
        monkeypatch.setenv(f"TILEWRIGHT_{variable}", str(tmp_path / variable))
    return tmp_path


@pytest.mark.usefixtures("folder", "short_turns")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"ids": IDS, "mask": IDS}
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            own: dict[str, object] = {} if block.code.startswith('"""') else names
            exec(compile(block.code, name_of(page), "exec"), own)
            names = own | names
        elif block.language == "sh":
            for command in block.commands():
                run(command, monkeypatch)
        elif block.language == "text":
            pattern = ".*".join(re.escape(part.strip("\n")) for part in re.split(r"^\.\.\.$", block.code, flags=re.M))
            assert re.search(pattern, printed, re.DOTALL), f"{block.code}\nis not in\n{printed}"
        printed += "".join(capsys.readouterr())


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a verb of ``tilewright``, a short time; of other commands, see that what they name is there."""
    words = shlex.split(command)
    with monkeypatch.context() as patched:
        while re.match(r"[A-Z_]+=", words[0]):
            patched.setenv(*words.pop(0).split("=", 1))
        match words:
            case ["tilewright", verb, *arguments]:
                assert main([verb, *arguments, *QUICK.get(verb, [])]) == 0, command
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
            case ["python", "-m", module, *_]:
                path = ROOT / module.replace(".", "/")
                assert path.is_dir() or path.with_suffix(".py").exists(), command
            case ["pip", "install", *arguments]:
                extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
                asked = re.findall(r"\w+", "".join(re.findall(r"\[(.*)\]", arguments[-1])))
                assert set(asked) <= extras.keys(), command
            case _:
                pytest.fail(f"{command}: not known; put '<!-- not run: REASON -->' before the block")


def test_the_readme_shows_all_verbs() -> None:
    shown = [command.split() for block in blocks(README) if block.language == "sh" for command in block.commands()]
    assert {words[1] for words in shown if words[0] == "tilewright"} == set(VERBS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_that_a_text_names_exist(page: Path) -> None:
    for module in re.findall(r"`python\s+-m\s+((?:benchmarks|tests|fuzz|examples)[\w.]*)", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module


def links(page: Path) -> list[str]:
    """Where the links of a page lead; code has none."""
    return _LINK.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.slow
def test_external_links_lead_somewhere() -> None:
    for link in sorted({link for page in PAGES for link in links(page) if "://" in link}):
        try:
            urllib.request.urlopen(urllib.request.Request(link, method="HEAD"), timeout=30).close()
        except urllib.error.HTTPError as error:
            assert error.code not in (404, 410), link
        except urllib.error.URLError as error:
            pytest.skip(f"no network: {error}")


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
