"""Operators that Python functions compute, between native parts of a model: ``ranks.py``, and others."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.cli.schema import report
from tests.extending.packages import HERE
from tests.extending.ranks import RANKS, ranks
from tilewright.base.dtypes import f32
from tilewright.base.errors import BadInput, Timeout, Unsupported, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.python_functions import TensorType, python_operator
from tilewright.passes.parts import parts
from tilewright.specialize import SpecializingModel
from tilewright.staged import StagedModel

Array = NDArray[np.generic]

ALONE = Settings(cache_dir=None, repro_dir=None)
X, W = (np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in ((4, 6), (6, 8)))
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]


def two(x: Array, y: Array | None, z: Array, *, by: float) -> tuple[Array, Array]:
    assert y is None
    return np.asarray(x + by), np.asarray(z.sum(0))


def of_two(x: TensorType, y: TensorType | None, z: TensorType, *, by: float) -> tuple[TensorType, TensorType]:
    assert y is None
    assert by
    return x, TensorType(z.dtype, z.shape[1:])


TWO = python_operator("my.domain", "Two", two, of_two)


def model(rows: int | str = 4) -> onnx.ModelProto:
    """Two calls after one another, and one beside them; one result is an output, one is read twice."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Ranks", ["h"], ["r"], name="ranks", domain="my.domain", axis=0),
        helper.make_node("Mul", ["r", "h"], ["m"], name="times"),
        helper.make_node("Two", ["m", "", "w"], ["t", "sums"], name="two", domain="my.domain", by=2.0),
        helper.make_node("Add", ["t", "sums"], ["a"], name="plus"),
        helper.make_node("Relu", ["a"], ["y"], name="last"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 6])
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "r")]
    graph = helper.make_graph(nodes, "g", [x], outputs, [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


def by_numpy(x: Array) -> list[Array]:
    h = x @ W
    r = ranks(h, axis=0)
    return [np.maximum(r * h + 2 + W.sum(0), 0), r]


def compiled(proto: onnx.ModelProto, operators: Sequence[OnnxOperator] = (RANKS, TWO)) -> tilewright.CompiledModel:
    return tilewright.compile(proto, operators=operators, threads=1, settings=ALONE)


@pytest.fixture(scope="module")
def made() -> StagedModel:
    found = compiled(model())
    assert isinstance(found, StagedModel)
    return found


def test_the_functions_run_between_native_parts(made: StagedModel) -> None:
    for found, expected in zip(made.run(None, {"x": X}), by_numpy(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(made.run(["r"], {"x": X})[0], by_numpy(X)[1])
    assert [spec.name for spec in made.outputs] == ["y", "r"]
    steps = parts(importer.load(model(), operators=(RANKS, TWO)))
    assert [getattr(step, "name", str(getattr(step, "op", ""))) for step in steps] == [
        "g.part0",
        "my.domain.Ranks",
        "g.part1",
        "my.domain.Two",
        "g.part2",
    ]


def test_it_is_explained_and_profiled(made: StagedModel) -> None:
    made.run(None, {"x": X})
    explained = made.explain()
    fates = {row.node: row.fate for row in explained.nodes}
    assert fates["node ranks (Ranks)"] == fates["node two (Two)"] == "python"
    assert fates["node product (MatMul)"] == fates["node last (Relu)"] == "kernel"
    told = [f.reason for f in explained.findings if f.kind == "fallback"]
    assert len(told) == 2
    assert all("% of the time of its runs" in reason for reason in told)
    profile = made.profile({"x": X}, seconds=0.0, roofs=False)
    names = [row.kernel for row in profile.kernels]
    assert [name for name in names if "python" in name] == ["my.domain.Ranks (python)", "my.domain.Two (python)"]
    assert sum(row.share for row in profile.kernels) == pytest.approx(1.0)
    assert next(row.nodes for row in profile.kernels if row.kernel.startswith("my.domain.Two")) == ("node two (Two)",)


def test_what_it_can_not_do_is_refused(made: StagedModel, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"calls Python functions \(my.domain.Ranks, my.domain.Two\)"):
        made.save(tmp_path / "m.tw")
    with pytest.raises(Unsupported, match="nothing can be compared"):
        made.compare({"x": X})
    with pytest.raises(Timeout, match="was not begun"):
        made.run(None, {"x": X}, timeout=0.0)
    with pytest.raises(Unsupported, match="Python function"):
        tilewright.quantize(model(), {"x": X}, operators=[RANKS, TWO])
    with pytest.raises(UnsupportedModel, match=r"node ranks \(Ranks\): there is no definition"):
        compiled(model(), [TWO])


def test_sizes_known_at_run_time_have_a_version_each() -> None:
    found = compiled(model("n"))
    assert isinstance(found, SpecializingModel)
    for rows in (4, 2):
        np.testing.assert_allclose(found.run(None, {"x": X[:rows]})[0], by_numpy(X[:rows])[0], rtol=1e-5, atol=1e-5)


def fails(x: Array) -> Array:
    raise ZeroDivisionError(str(x.shape))


def wrong(x: Array) -> Array:
    return x.astype(np.float64)


def test_the_types_of_results_are_declared() -> None:
    for result in (lambda x, **_: (x, 3), lambda x, **_: None):  # pyright: ignore
        own = python_operator("my.domain", "Ranks", ranks, result)  # pyright: ignore
        with pytest.raises(UnsupportedModel, match=r"node ranks \(Ranks\): the types of its results .* TensorType"):
            compiled(model(), [own, TWO])


def writes(x: Array) -> Array:
    x[...] = 0
    return x


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [(fails, ZeroDivisionError, "4"), (wrong, BadInput, "float64"), (writes, ValueError, "read-only")],
)
def test_what_a_function_does_wrong_is_said_of_the_node(function: object, error: type[Exception], text: str) -> None:
    own = python_operator("my.domain", "Ranks", function, lambda x: x)  # pyright: ignore
    nodes = [helper.make_node("Ranks", ["x"], ["y"], name="ranks", domain="my.domain")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    made = compiled(helper.make_model(graph, opset_imports=OPSETS, ir_version=10), [own])
    with pytest.raises(error, match=text) as caught:
        made.run(None, {"x": X})
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("node ranks (Ranks)" in line for line in told)


def test_of_constants_it_is_called_once() -> None:
    nodes = [
        helper.make_node("Ranks", ["w"], ["r"], domain="my.domain"),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(W, "w")])
    made = compiled(helper.make_model(graph, opset_imports=OPSETS, ir_version=10), [RANKS])
    assert not isinstance(made, StagedModel)
    np.testing.assert_allclose(made.run(None, {"x": W})[0], W + ranks(W), rtol=1e-6)


def test_the_command_line_and_optimize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = model()
    types = (("r", [4, 8]), ("t", [4, 8]), ("sums", [8]))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in types]
    proto.graph.value_info.extend(infos)
    path, written = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(proto, path)
    names = ["--operators", "tests.extending.ranks:RANKS", "tests.extending.test_python_functions:TWO"]
    assert main(["profile", str(path), "--seconds", "0", "--no-roofs", "--json", *names]) == 0
    assert "my.domain.Ranks (python)" in [
        row["kernel"] for row in report("profile", capsys.readouterr().out)["kernels"]
    ]
    assert main(["explain", str(path), "--json", *names]) == 0
    assert report("explain", capsys.readouterr().out)["explanation"]["nodes"][-1]["fate"] == "python"
    assert main(["explain", str(path), *names]) == 0
    assert "fallback" in capsys.readouterr().out
    assert main(["optimize", str(path), "--superopt", "off", "--quiet", "-o", str(written), *names]) == 0
    assert "my.domain::Ranks, my.domain::Two" in capsys.readouterr().out
    again = compiled(onnx.load(written)).run(None, {"x": X})
    np.testing.assert_allclose(again[0], by_numpy(X)[0], rtol=1e-5, atol=1e-5)


def test_types_of_elements() -> None:
    assert str(TensorType(f32, (2, 3))) == "f32[2, 3]"


def test_the_documentation_shows_the_file() -> None:
    assert (HERE / "ranks.py").read_text() in (HERE.parents[1] / "docs" / "own-operators.md").read_text()
