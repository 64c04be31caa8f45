"""A file of rules outside of the package: ``factor_out.rules``, given by its user or found as an entry point."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.extending.packages import HERE, install
from tilewright.api import CompiledModel
from tilewright.base.errors import BadInput
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.graph import Graph
from tilewright.passes.rules import Rule
from tilewright.superopt.costs.provider import CostProvider
from tilewright.superopt.prove import trust, verification
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import Optimized

FILE = HERE / "factor_out.rules"
TEXT = FILE.read_text()
ALONE = Settings(cache_dir=None, repro_dir=None)
FEEDS = {name: np.random.default_rng(ord(name)).standard_normal((4, 8)).astype(np.float32) for name in "xyz"}
EXPECTED = FEEDS["x"] * FEEDS["z"] + FEEDS["y"] * FEEDS["z"]
PLAIN = ["Mul", "Mul", "Add"]


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "z"], ["a"]),
        helper.make_node("Mul", ["y", "z"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["r"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xyzr"]
    graph = helper.make_graph(nodes, "g", ends[:3], ends[3:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def compiled(*files: Path, **options: object) -> CompiledModel:
    return tilewright.compile(model(), rules=files, **{"threads": 1, "settings": ALONE, **options})  # pyright: ignore


def operators(made: CompiledModel) -> list[str]:
    return [node.op.name for node in made.compiled.graph.nodes]


def written(folder: Path, text: str) -> Path:
    path = folder / "own.rules"
    path.write_text(text)
    return path


def test_it_is_applied() -> None:
    made = compiled(FILE)
    assert operators(made) == ["Add", "Mul"]
    np.testing.assert_allclose(made.run(None, FEEDS)[0], EXPECTED, rtol=1e-5, atol=1e-6)
    assert [(fact.rule, fact.times, fact.evidence) for fact in made.explain().rules] == [("factor-out", 1, "proved")]


def test_a_search_goes_by_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """And applies it where it pays, which is nowhere here: the kernel waits for memory."""
    asked: list[str] = []
    real = Search.optimize

    def optimize(self: Search, graph: Graph, costs: CostProvider) -> list[Optimized]:
        asked.extend(rule.name for rule in self.rules)
        return real(self, graph, costs)

    monkeypatch.setattr(Search, "optimize", optimize)
    made = compiled(FILE, superopt="fast")
    np.testing.assert_allclose(made.run(None, FEEDS)[0], EXPECTED, rtol=1e-5, atol=1e-6)
    assert asked[-1] == "factor-out"
    compiled(superopt="fast")
    assert asked.count("factor-out") == 1


def test_nothing_is_left_behind() -> None:
    compiled(FILE)
    assert operators(compiled()) == PLAIN


def test_a_rule_that_nobody_answers_for_is_refused(tmp_path: Path) -> None:
    unproved = TEXT[: TEXT.index("  proof")]
    path = written(tmp_path, unproved)
    with pytest.raises(
        BadInput,
        match=r"own\.rules: the rule factor-out can't be applied: it has no proof: `tilewright rules verify --write",
    ):
        compiled(path)
    assert main(["rules", "verify", "--write", str(path)]) == 0
    assert operators(compiled(path)) == ["Add", "Mul"]
    tested = written(tmp_path, f"{unproved}  proof tested; 0 shapes\n")
    assert operators(compiled(tested)) == ["Add", "Mul"]


def test_a_false_rule_makes_no_model(tmp_path: Path) -> None:
    """Somebody answers for it; what it makes is held against what was there."""
    text = TEXT.replace("to Mul(Add(x, y), z)", "to Mul(Sub(x, y), z)")
    path = written(tmp_path, text[: text.index("proof")] + "proof tested; 0 shapes\n")
    with pytest.raises(BadInput, match=r"output r is not what it was.*tilewright rules verify .*own\.rules"):
        compiled(path)


TAMPERED = [
    ("to Mul(Add(x, y), z)", "to Mul(Sub(x, y), z)", "the axioms that its proof names do not prove it"),
    ("Mul-distributes", "Add-associates", "the axioms that its proof names do not prove it"),
    ("Mul-distributes", "Mul-is-fine", "there is no axiom Mul-is-fine"),
    (" by Mul-commutes, Mul-distributes", "", ""),
    ("Add(Mul(x, z), Mul(y, z))", "Add(Mul(x, z), Mul(y, y))", "the axioms that its proof names do not prove it"),
]


@pytest.mark.parametrize(("old", "new", "reason"), TAMPERED)
def test_a_stored_proof_is_replayed(old: str, new: str, reason: str, tmp_path: Path) -> None:
    """One that names no axioms is found anew."""
    assert TEXT.count(old) == 1
    path = written(tmp_path, TEXT.replace(old, new))
    if not reason:
        assert operators(compiled(path)) == ["Add", "Mul"]
        return
    with pytest.raises(
        BadInput, match=f"factor-out can't be applied: its proof is refused: {reason}; `tilewright rules"
    ):
        compiled(path)


def test_a_proof_is_replayed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = verification.unproved

    def unproved(rule: Rule) -> str:
        asked.append(rule.name)
        return real(rule)

    monkeypatch.setattr(verification, "unproved", unproved)
    settings = Settings(cache_dir=tmp_path / "cache", repro_dir=None)
    for _ in range(3):
        assert operators(compiled(FILE, settings=settings)) == ["Add", "Mul"]
    assert asked == ["factor-out"]
    wrong = written(tmp_path, TEXT.replace("Mul-distributes", "Add-associates"))
    for _ in range(2):
        with pytest.raises(BadInput, match="its proof is refused"):
            compiled(wrong, settings=settings)
    assert asked == ["factor-out"] * 3, "what is refused is not remembered"


def test_without_egglog_no_stored_proof_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it was replayed before; who answers for a rule needs none."""
    settings = Settings(cache_dir=tmp_path / "cache", repro_dir=None)
    compiled(FILE, settings=settings)
    monkeypatch.setitem(sys.modules, "egglog.bindings", None)
    assert operators(compiled(FILE, settings=settings)) == ["Add", "Mul"]
    with pytest.raises(
        BadInput, match=r"factor_out\.rules: its proofs can't be replayed: .*pip install .*superopt.* or"
    ):
        compiled(FILE)
    tested = written(tmp_path, TEXT[: TEXT.index("proof")] + "proof tested; 0 shapes\n")
    assert operators(compiled(tested)) == ["Add", "Mul"]


def test_one_file_needs_no_list() -> None:
    for path in (FILE, str(FILE)):
        made = tilewright.compile(model(), rules=path, threads=1, settings=ALONE)
        assert operators(made) == ["Add", "Mul"]


def test_what_else_can_be_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.rules can't be read"):
        compiled(tmp_path / "none.rules")
    with pytest.raises(BadInput, match=r"own\.rules: line 1"):
        compiled(written(tmp_path, "fly\n"))
    with pytest.raises(BadInput, match=r"under math=strict.*: may overflow"):
        compiled(FILE, math="strict")
    with pytest.raises(BadInput, match="only what is installed"):
        compiled(FILE, isolate=True)
    circle = "rule a\n  for x[*s], y[*s]\n  from Add(x, y)\n  to Add(y, x)\n  proof tested; 0 shapes\n"
    with pytest.raises(BadInput, match="matches them again; leave one of them out, or exchange its from and to"):
        compiled(written(tmp_path, circle))
    growing = circle.replace("to Add(y, x)", "to Add(x, Add(y, y))")
    with pytest.raises(BadInput, match=r"a made a graph of \d+ nodes .* matches them again; a is false"):
        compiled(written(tmp_path, growing))
    false = circle.replace("to Add", "to Sub") + circle.replace("rule a", "rule b").replace("from Add", "from Sub")
    with pytest.raises(BadInput, match=r"matches them again; a is false: .*x = .*, y = .*: left .*; b is false: "):
        compiled(written(tmp_path, false))


def test_an_installed_one_needs_no_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rules_of_mine.py").write_text(
        "from pathlib import Path\n\nRULES = Path(__file__).with_name('own.rules')\n"
    )
    path = written(tmp_path, TEXT)
    install(tmp_path, trust.GROUP, "factor_out", "rules_of_mine:RULES")
    monkeypatch.syspath_prepend(tmp_path)
    assert operators(compiled()) == ["Add", "Mul"]
    assert operators(compiled(math="strict")) == PLAIN
    path.write_text(TEXT.replace("proof proved by Mul-commutes, Mul-distributes; 4", "proof tested; 4"))
    assert operators(compiled()) == PLAIN
    assert "the rules factor_out of a package are left out" in caplog.text


def test_the_command_line_takes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    assert main(["explain", str(path), "--json", "--rules", str(FILE)]) == 0
    assert "factor-out" in capsys.readouterr().out
    assert main(["repro", str(path), "--rules", str(FILE)]) != 0


RUN = """
import sys
import tilewright
print(tilewright.compile(sys.argv[1], rules=sys.argv[2:], threads=1).is_cached)
"""


def test_a_changed_file_gets_no_stale_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    environment = {"PYTHONPATH": str(Path(tilewright.__file__).parents[1]), "HOME": str(tmp_path)}

    def told(*files: Path) -> str:
        command = [sys.executable, "-c", RUN, str(path), *map(str, files)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.strip()

    own = written(tmp_path, TEXT)
    found = [told(), told(own), told(own)]
    written(tmp_path, TEXT.replace("to Mul(Add(x, y), z)", "to Mul(z, Add(x, y))"))
    assert [*found, told(own)] == ["False", "False", "True", "False"]


def test_the_documentation_shows_the_file() -> None:
    assert TEXT in (HERE.parents[1] / "docs" / "extending.md").read_text()
