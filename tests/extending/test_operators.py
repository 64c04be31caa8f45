"""Operators outside of the package: ``swish2.py`` and ``peak_norm.py``, given or found as entry points."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.extending.packages import HERE, install
from tests.extending.peak_norm import PEAK_NORM
from tests.extending.swish2 import SWISH2, swish2
from tilewright.api import CompiledModel
from tilewright.base.dtypes import DType, f64
from tilewright.base.errors import BadInput, InvalidModel, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.frontend.onnx.read import foreign, importer
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.rules import Request, Rule
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Value
from tilewright.loops.interpreter import interpret
from tilewright.ops import FusionKind, Operator
from tilewright.tensor.ir import Tensor

Array = NDArray[np.floating]

ALONE = Settings(cache_dir=None, repro_dir=None)
GENERATOR = np.random.default_rng(7)
X, W = (GENERATOR.standard_normal(shape).astype(np.float32) for shape in ((5, 32), (32, 48)))
S = GENERATOR.standard_normal(48).astype(np.float32)
BETA = 1.5


def by_numpy(x: Array) -> Array:
    h = x.astype(np.float64) @ W
    a = 2 * h / (1 + np.exp(-BETA * h))
    return a / (np.abs(a).max(-1, keepdims=True) + 1e-6) * S


def model(version: int = 1, rows: int | str = "n", **attributes: object) -> onnx.ModelProto:
    given = attributes or {"beta": BETA}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Swish2", ["h"], ["a"], name="act", domain="my.domain", **given),
        helper.make_node("PeakNorm", ["a", "s"], ["y"], name="norm", domain="my.domain"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, n]) for name, n in (("x", 32), ("y", 48))]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(S, "s")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializer=weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def compiled(operators: Sequence[OnnxOperator] = (SWISH2, PEAK_NORM), **options: object) -> CompiledModel:
    chosen = {"model": model(), "threads": 1, "settings": ALONE, **options}
    return tilewright.compile(**chosen, operators=operators)  # pyright: ignore


def result(made: CompiledModel) -> Array:
    return made.run(None, {"x": X})[0]


def test_attributes_come_as_the_function_declares_them() -> None:
    """ONNX has numbers for bools and element types."""
    given: list[object] = []

    def noting(x: Tensor, *, beta: float, exact: bool = False, wide: DType | None = None, k: int = 0) -> Tensor:
        given.extend((exact, wide, k))
        return swish2(x, beta=beta)

    own = Operator("my.domain.Noting", noting, FusionKind.INJECTIVE)
    rule = Rule(own, {name: name for name in ("beta", "exact", "wide", "k")})
    operators = [OnnxOperator("my.domain", "Swish2", rule), PEAK_NORM]
    importer.load(model(beta=BETA, exact=1, wide=TensorProto.DOUBLE, k=1), operators=operators)
    assert given[:3] == [True, f64, 1]
    assert given[0] is True


@pytest.mark.parametrize("options", [{}, {"shapes": {"x": (5, 32)}}, {"superopt": "fast"}, {"dynamic": "specialize"}])
def test_they_compute_what_their_te_says(options: dict[str, object]) -> None:
    made = compiled(**options)
    np.testing.assert_allclose(result(made), by_numpy(X), rtol=1e-5, atol=1e-6)
    assert made.compare({"x": X}, against="reference").agrees


def test_the_elementwise_one_joins_the_product() -> None:
    made = compiled()
    groups = [[node.op.name for node in kernel.groups[0].nodes] for kernel in made.compiled.kernels]
    assert groups == [["MatMul", "my.domain.Swish2"], ["my.domain.PeakNorm"]]
    told = {node.node: node.kernels for node in made.explain().nodes}
    assert told["node act (Swish2)"] == told["node product (MatMul)"] == ("k0_matmul_my_domain_swish2",)


def test_it_joins_convolutions_in_blocks() -> None:
    filters = [GENERATOR.standard_normal((32, 32, 3, 3)).astype(np.float32) * 0.1 for _ in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "f0"], ["h"], pads=[1] * 4),
        helper.make_node("Swish2", ["h"], ["a"], domain="my.domain"),
        helper.make_node("Conv", ["a", "f1"], ["y"], pads=[1] * 4),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 14, 14]) for name in "xy"]
    weights = [numpy_helper.from_array(array, f"f{i}") for i, array in enumerate(filters)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializer=weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]
    made = compiled(model=helper.make_model(graph, opset_imports=opsets, ir_version=10), math="strict")
    x = GENERATOR.standard_normal((1, 32, 14, 14)).astype(np.float32)
    assert made.compare({"x": x}, against="reference").agrees
    anchors = [
        [n.op.name for n in k.groups[0].nodes if n.op.kind is not FusionKind.VIEW] for k in made.compiled.kernels
    ]
    assert ["Conv", "my.domain.Swish2"] in anchors


def test_the_normalization_is_scheduled_as_ours() -> None:
    kernel = compiled(shapes={"x": (5, 32)}).compiled.kernels[1]
    text = str(kernel.program)
    assert text.count("in vectorized(") >= 2, text
    assert "rfactor" in str(kernel.schedule.trace)
    p0 = GENERATOR.standard_normal((5, 48)).astype(np.float32)
    fed = dict(zip((parameter.name for parameter in kernel.program.inputs), (p0, S), strict=True))
    expected = p0 / (np.abs(p0).max(-1, keepdims=True) + 1e-6) * S
    for program in (kernel.naive, kernel.program):
        np.testing.assert_allclose(interpret(program, fed)["B"], expected, rtol=1e-5)


def test_nothing_is_left_behind() -> None:
    compiled()
    with pytest.raises(UnsupportedModel, match=r"node act \(Swish2\).*my\.domain.*operators="):
        compiled(())
    with pytest.raises(UnsupportedModel, match=r"node norm \(PeakNorm\).*my\.domain"):
        compiled([SWISH2])


def other(x: tilewright.te.Tensor, *, beta: float = 1.0) -> tilewright.te.Tensor:
    return swish2(x, beta=3 * beta)


def named(name: str) -> OnnxOperator:
    return replace(SWISH2, rule=Rule(Operator(name, other, FusionKind.INJECTIVE), {"beta": "beta"}))


def test_another_function_of_that_name_is_another_operator() -> None:
    first, second = compiled(), compiled([named("my.domain.Swish2"), PEAK_NORM])
    assert not np.allclose(result(first), result(second))
    np.testing.assert_allclose(result(compiled()), result(first))


def fails(request: Request) -> Sequence[Value]:
    raise ZeroDivisionError(request.op_type)


def nothing(request: Request) -> Sequence[Value]:
    del request
    return ()


@pytest.mark.parametrize(
    ("operator", "error", "text"),
    [
        (replace(SWISH2, rule=fails), UnsupportedModel, "my.domain::Swish2 raised ZeroDivisionError: Swish2"),
        (replace(SWISH2, rule=nothing), UnsupportedModel, "makes 0 values, not 1"),
        (named("Relu"), UnsupportedModel, "Relu needs a name with a dot, as my_package.Relu"),
        (replace(SWISH2, since=2), UnsupportedModel, "no definition of the operator my.domain::Swish2"),
        (replace(SWISH2, rule=Rule("Relu")), UnsupportedModel, "attribute beta is not supported"),
    ],
)
def test_what_is_wrong_is_said_of_the_node(operator: OnnxOperator, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=rf"node act \(Swish2\).*{text}"):
        compiled([operator, PEAK_NORM])


def test_wrong_attributes_are_said_of_the_node() -> None:
    with pytest.raises(InvalidModel, match=r"node act \(Swish2\): 'large' is no scalar"):
        compiled(model=model(beta="large"))
    with pytest.raises(UnsupportedModel, match=r"node act \(Swish2\): attribute gamma is not supported"):
        compiled(model=model(gamma=1.0))
    with pytest.raises(BadInput, match="operators="):
        compiled([swish2])  # pyright: ignore
    with pytest.raises(BadInput, match="only what is installed"):
        compiled(isolate=True)


def test_the_latest_version_counts_that_the_model_has_reached() -> None:
    """Version 2 means three times the beta."""
    versions = [SWISH2, replace(named("my.domain.Swish2.2"), since=2), PEAK_NORM]
    with_3 = compiled([replace(SWISH2), PEAK_NORM], model=model(beta=3 * BETA))
    for version, expected in ((1, by_numpy(X)), (2, result(with_3)), (9, result(with_3))):
        made = compiled(versions, model=model(version))
        np.testing.assert_allclose(result(made), expected, rtol=1e-5, atol=1e-6)


def test_it_goes_before_the_models_function() -> None:
    """Which says something else."""
    proto = model()
    body = [helper.make_node("Relu", ["x"], ["y"])]
    proto.functions.append(
        helper.make_function("my.domain", "Swish2", ["x"], ["y"], body, [helper.make_opsetid("", 18)])
    )
    np.testing.assert_allclose(result(compiled(model=proto)), by_numpy(X), rtol=1e-5, atol=1e-6)


def test_it_is_written_as_its_user_wrote_it() -> None:
    graph = importer.load(model(), operators=(SWISH2, PEAK_NORM))
    written = exporter.export(graph, (SWISH2, PEAK_NORM))
    node = next(node for node in written.graph.node if node.op_type == "Swish2")
    assert node.domain == "my.domain"
    assert [(a.name, a.f) for a in node.attribute] == [("beta", BETA)]
    assert {entry.domain: entry.version for entry in written.opset_import} == {"": 18, "my.domain": 1}
    np.testing.assert_allclose(result(compiled(model=written)), by_numpy(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(UnsupportedModel, match=r"node act \(Swish2\): operator my.domain.Swish2 can't be written"):
        exporter.export(graph)


def test_an_artifact_needs_it_no_more(tmp_path: Path) -> None:
    compiled().save(tmp_path / "m.tw")
    np.testing.assert_allclose(
        tilewright.load(tmp_path / "m.tw").run(None, {"x": X})[0], by_numpy(X), rtol=1e-5, atol=1e-6
    )


def test_installed_ones_need_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, foreign.GROUP, "swish2", "my_swish2:SWISH2", HERE / "swish2.py")
    install(tmp_path, foreign.GROUP, "peak_norm", "my_peak_norm:PEAK_NORM", HERE / "peak_norm.py")
    monkeypatch.syspath_prepend(tmp_path)
    np.testing.assert_allclose(result(compiled(())), by_numpy(X), rtol=1e-5, atol=1e-6)
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    assert main(["explain", str(path), "--coverage"]) == 0
    assert main(["optimize", str(path), "--superopt", "off", "--quiet", "-o", str(tmp_path / "o.onnx")]) == 0
    assert {node.domain for node in onnx.load(tmp_path / "o.onnx").graph.node} == {"", "my.domain"}


def test_the_command_line_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    (tmp_path / "given_operators.py").write_text(
        "from tests.extending.peak_norm import PEAK_NORM\nfrom tests.extending.swish2 import SWISH2\n"
        "ALL = [SWISH2, PEAK_NORM]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["explain", str(path), "--coverage", "--operators", "given_operators:ALL"]) == 0
    names = ["given_operators:SWISH2", "given_operators:PEAK_NORM"]
    assert main(["run", str(path), "--shape", "x=5x32", "--operators", *names]) == 0
    command = ["optimize", str(path), "--superopt", "off", "--quiet", "-o", str(tmp_path / "o.onnx")]
    assert main([*command, "--operators", *names]) == 0
    assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == ["MatMul", "Swish2", "PeakNorm"]
    capsys.readouterr()
    for name, told in (
        ("given_operators", "write module:NAME"),
        ("given_operators:NONE", "AttributeError"),
        ("no_such_module:ALL", "ModuleNotFoundError"),
        ("given_operators:SWISH2.name", "it is a str, not an OnnxOperator"),
    ):
        assert main(["run", str(path), "--operators", name]) == 2
        assert told in capsys.readouterr().err


def around_unknown() -> onnx.ModelProto:
    """``Fly`` of a domain that nobody knows, between products; it reads a constant, and makes an output itself."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Identity", ["h"], ["i"]),
        helper.make_node("Fly", ["i", "s", "x"], ["f", "", "end"], name="fly", domain="my.air", speed=3),
        helper.make_node("Relu", ["f"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", n]) for name, n in (("x", 32), ("y", 48))]
    end = helper.make_tensor_value_info("end", TensorProto.FLOAT, ["n"])
    inner = helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", 48])
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(S, "s")]
    graph = helper.make_graph(nodes, "g", ends[:1], [end, ends[1]], initializer=weights, value_info=[inner])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.air", 7)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_what_nobody_defined_is_kept_by_optimize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, written = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(around_unknown(), path)
    assert main(["optimize", str(path), "--superopt", "off", "--quiet", "-o", str(written)]) == 0
    assert "kept as they are: nodes of my.air::Fly" in capsys.readouterr().out
    found = onnx.load(written)
    fly = next(node for node in found.graph.node if node.op_type == "Fly")
    assert (fly.domain, [(a.name, a.i) for a in fly.attribute]) == ("my.air", [("speed", 3)])
    assert [info.name for info in found.graph.input] == ["x"]
    assert [info.name for info in found.graph.output] == ["end", "y"]
    assert {entry.domain: entry.version for entry in found.opset_import} == {"": 18, "my.air": 7}
    body = [
        helper.make_node("Add", ["i", "s"], ["f"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["end"], keepdims=0),
    ]
    axes = helper.make_node("Constant", [], ["axes"], value_ints=[1])
    opsets = [helper.make_opsetid("", 18)]
    names = (["i", "s", "x"], ["f", "none", "end"])
    none = helper.make_node("Identity", ["x"], ["none"])
    for proto in (around_unknown(), found):
        proto.functions.append(helper.make_function("my.air", "Fly", *names, [axes, none, *body], opsets))
        end, y = compiled((), model=proto).run(None, {"x": X})
        np.testing.assert_allclose(end, X.sum(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(y, np.maximum(X @ W + S, 0), rtol=1e-4, atol=1e-5)


def test_what_is_kept_may_not_follow_from_itself() -> None:
    """A search that merges what is before it with what is after it finds a graph that can't be written."""
    graph, kept = importer.load_around(around_unknown(), {}, {})
    assert kept is not None
    rest = exporter.export(graph)
    kept.restored(rest)
    rest.graph.node[0].input[0] = "y"
    with pytest.raises(UnsupportedModel, match=r"before and after my\.air::Fly at once"):
        kept.restored(rest)


def test_what_is_kept_needs_types(tmp_path: Path) -> None:
    proto = around_unknown()
    del proto.graph.value_info[:]
    with pytest.raises(UnsupportedModel, match=r"node fly \(Fly\): .* result `f` .* value_info"):
        importer.load_around(proto, {}, {})
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    assert main(["optimize", str(path), "--superopt", "off", "--quiet"]) == 3


RUN = """
import sys
import numpy as np
import tilewright
from my_swish2 import SWISH2
from my_peak_norm import PEAK_NORM
made = tilewright.compile(sys.argv[1], operators=[SWISH2, PEAK_NORM], threads=1)
print(made.is_cached, made.run(None, {"x": np.ones((1, 32), np.float32)})[0][0, 0])
"""


def test_a_changed_operator_gets_no_stale_model(tmp_path: Path) -> None:
    path, text = tmp_path / "m.onnx", (HERE / "swish2.py").read_text()
    onnx.save(model(), path)
    (tmp_path / "my_peak_norm.py").write_text((HERE / "peak_norm.py").read_text())
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(tilewright.__file__).parents[1]}", "HOME": str(tmp_path)}

    def told(source: str) -> list[str]:
        (tmp_path / "my_swish2.py").write_text(source)
        command = [sys.executable, "-B", "-c", RUN, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return done.stdout.split()

    first, again = told(text), told(text)
    assert (first[0], again) == ("False", ["True", first[1]])
    changed = told(text.replace("v * const(beta", "v * const(-beta"))
    assert changed[0] == "False"
    assert changed[1] != first[1]


def test_the_documentation_shows_the_files() -> None:
    page = (HERE.parents[1] / "docs" / "extending.md").read_text()
    for name in ("swish2.py", "peak_norm.py"):
        assert (HERE / name).read_text() in page
