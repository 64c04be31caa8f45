"""``tilewright optimize``: what it finds, writes and says."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.cli.schema import report
from tests.test_superoptimizer import feeds, twins
from tilewright.cli import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "twins.onnx"
    onnx.save(twins(), path)
    return path


def in_onnxruntime(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds(twins()))[0])


@pytest.mark.parametrize("cost", ["compiler", "onnxruntime"])
def test_a_graph_is_written_that_computes_the_same(
    cost: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out.onnx", tmp_path / "page.html"
    command = ["optimize", str(model), "--superopt", "fast", "--cost", cost, "--threads", "1"]
    assert main([*command, "-o", str(out), "--report", str(page), "--json", "--quiet"]) == 0
    found = report("optimize", capsys.readouterr().out)
    assert found["cost"] == cost
    np.testing.assert_allclose(in_onnxruntime(out), in_onnxruntime(model), rtol=1e-4, atol=1e-5)
    assert page.read_text().startswith("<!")
    if cost == "compiler":  # what ONNX Runtime gains depends on the machine
        assert found["rules"]["sum-of-weights"] > 0
        assert "sum-of-weights" in page.read_text()


def test_what_was_done_is_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), "--superopt", "fast", "--threads", "1", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "sum-of-weights" in shown
    assert "equal modulo a prime" in shown
    assert main(["optimize", str(model), "--superopt", "off", "--threads", "1", "--quiet"]) == 0
    assert "no graph was found" in capsys.readouterr().out


def test_rules_are_added_to_the_usual_ones(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a rule that does not match, the search finds what it finds without; by that rule alone it finds nothing."""
    own = tmp_path / "own.rules"
    own.write_text("rule own\n  for x[*s]\n  from Relu(Relu(x))\n  to Relu(x)\n  proof tested; 0 shapes\n")
    command = ["optimize", str(model), "--superopt", "fast", "--threads", "1", "--quiet", "--json"]

    def applied(*options: str) -> object:
        assert main([*command, *options]) == 0
        return report("optimize", capsys.readouterr().out)["rules"]

    assert applied("--rules", f"+{own}") == applied()
    assert applied("--rules", str(own)) != applied()
    assert main([*command, "--rules", str(own), f"+{own}"]) == 2
    assert "before all files" in capsys.readouterr().err


def test_for_another_runtime_a_model_stays_as_it_was(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If nothing is found: the same file, byte by byte."""
    own, out = tmp_path / "own.rules", tmp_path / "out.onnx"
    own.write_text("rule own\n  for x[*s]\n  from Relu(Relu(x))\n  to Relu(x)\n  proof tested; 0 shapes\n")
    command = ["optimize", str(model), "--cost", "onnxruntime", "--threads", "1", "--quiet", "--rules", str(own)]
    assert main([*command, "-o", str(out)]) == 0
    assert "no graph was found" in capsys.readouterr().out
    assert out.read_bytes() == model.read_bytes()


def test_for_another_runtime_weights_stay_bytes(tmp_path: Path) -> None:
    """Of a quantized model that is written anew."""
    path, out = tmp_path / "bytes.onnx", tmp_path / "out.onnx"
    weight = np.random.default_rng(0).integers(-127, 128, (512, 512)).astype(np.int8)
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[64, 512] x) => (float[64, 512] y)'
        "{ w = DequantizeLinear(q, s) y = MatMul(x, w) }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "q"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.01), "s"))
    onnx.save(proto, path)
    command = ["optimize", str(path), "--cost", "onnxruntime", "--superopt", "off", "--threads", "1", "--quiet"]
    assert main([*command, "-o", str(out)]) == 0
    kinds = {tensor.data_type for tensor in onnx.load(out).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds


def test_other_rules_and_another_strategy(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "own.rules"
    rules.write_text(
        "rule own\n  for x[*s, k], a: weight[k, n], b: weight[k, n]\n"
        "  from Add(MatMul(x, a), MatMul(x, b))\n  to MatMul(x, Add(a, b))\n"
        "  proof tested; 0 shapes\n"
    )
    command = ["optimize", str(model), "--superopt", "fast", "--threads", "1", "--quiet", "--json"]
    for strategy in ("backtracking", "saturation"):
        assert main([*command, "--rules", str(rules), "--strategy", strategy]) == 0
        assert set(report("optimize", capsys.readouterr().out)["rules"]) == {"own"}
    assert main([*command, "--rules", str(rules), "--budget", "1", "--alpha", "1"]) == 0
    assert sum(report("optimize", capsys.readouterr().out)["rules"].values()) >= 1


def test_files_of_rules_that_are_none(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule wrong\n  for x[m]\n  from Relu(x)\n")
    for path, reason in ((wrong, f"{wrong}: line"), (tmp_path / "none.rules", "can't be read: ")):
        assert main(["optimize", str(model), "--rules", str(path), "--quiet"]) == 2
        assert reason in capsys.readouterr().err


def test_a_false_rule_is_found_out(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "false.rules"
    rules.write_text(
        "rule false\n  for x[m, k], w: weight[k, k]\n  from MatMul(x, w)\n  to x\n  proof tested; 0 shapes\n"
    )
    assert main(["optimize", str(model), "--superopt", "fast", "--rules", str(rules), "--quiet"]) == 2
    assert "output y is not what it was: " in (said := capsys.readouterr().err)
    assert f"find the false rule with `tilewright rules verify {rules}`" in said


SUMS = """
<ir_version: 10, opset_import: ["": 18]>
sums (float[1048576] a, float[1048576] b, float[1048576] c) => (float[1048576] y)
{
  ac = Mul(a, c)
  bc = Mul(b, c)
  y = Add(ac, bc)
}
"""


def rule(name: str, source: str, target: str, proof: str = "proof tested; 0 shapes") -> str:
    return f"rule {name}\n  for x[*s], y[*s], z[*s]\n  from {source}\n  to {target}\n  {proof}\n\n"


def test_each_rule_of_the_user_is_accounted_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three operations over equal arrays become two: by the model, a third of the time is saved."""
    path, own = tmp_path / "sums.onnx", tmp_path / "own.rules"
    onnx.save(onnx.parser.parse_model(SUMS), path)
    factored = "Mul(Add(x, y), z)"
    own.write_text(
        rule("factored", "Add(Mul(x, z), Mul(y, z))", factored)
        + rule("nowhere", "Relu(Relu(x))", "Relu(x)")
        + rule("unproved", "Add(x, y)", "Add(y, x)", "")
        + rule("tampered", "Add(Mul(x, z), Mul(y, z))", factored, "proof proved by Add-commutes; 4 shapes")
        + rule("slower", "Mul(x, z)", "Mul(Exp(Log(x)), z)")
    )

    def told(cost: str) -> dict[str, dict[str, object]]:
        command = ["optimize", str(path), "--superopt", "fast", "--threads", "1", "--quiet", "--rules", str(own)]
        assert main([*command, "--cost", cost, "--json"]) == 0
        given = report("optimize", capsys.readouterr().out)["given"]
        assert isinstance(given, list)
        return {one["rule"]: one for one in given}

    found = told("onnxruntime")
    assert {name: one["fate"] for name, one in found.items()} == {
        "factored": "applied",
        "nowhere": "not matched",
        "unproved": "not proved",
        "tampered": "not proved",
        "slower": "not faster",
    }
    assert {name: one["matches"] for name, one in found.items()} == {
        "factored": 1,
        "nowhere": 0,
        "unproved": 1,
        "tampered": 1,
        "slower": 2,
    }
    assert (found["factored"]["times"], found["nowhere"]["gain"]) == (1, None)
    assert "rules verify --write" in str(found["unproved"]["reason"])
    assert "Add-commutes" in own.read_text()
    assert "the axioms that its proof names do not prove it" in str(found["tampered"]["reason"])
    assert float(str(found["slower"]["gain"])) < 0 < float(str(found["factored"]["gain"]))
    modelled = told("compiler")["factored"]
    assert (modelled["fate"], modelled["reason"]) == (
        "not faster",
        "no graph with it was found that is faster as a whole",
    )
    assert float(str(modelled["gain"])) == pytest.approx(1 / 3)

    command = ["optimize", str(path), "--superopt", "fast", "--quiet", "--cost", "onnxruntime", "--rules", str(own)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Rules given" in shown
    assert "not matched" in shown


def test_two_rules_of_one_name(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.rules").write_text(rule("same", "Add(x, y)", "Add(y, x)"))
    assert (
        main(["optimize", str(model), "--quiet", "--rules", str(tmp_path / "a.rules"), str(tmp_path / "b.rules")]) == 2
    )
    assert "2 rules are called same" in capsys.readouterr().err
