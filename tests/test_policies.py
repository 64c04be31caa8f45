"""What a user may choose about numbers and memory: what it changes, and where it is said."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model as make_model
from tilewright import api
from tilewright.base.errors import BadInput, ResourceLimit, UnsupportedModel
from tilewright.base.numerics import Math
from tilewright.cli.command import main
from tilewright.compilation import Compiled
from tilewright.insight.rerun import rerun
from tilewright.passes.alternatives import OTHER_TERMS
from tilewright.passes.alternatives.minimal_filtering import F2, F4, MinimalFiltering

Array = NDArray[np.generic]
CHANNELS = (32, 48, 64)
SIZE = 28
TRANSFORMED = 36


def convolutions(batch: str = "") -> onnx.ModelProto:
    """Two 3x3 convolutions of different sizes, for both of which Winograd's algorithm pays (with ``PAYS``)."""
    random = np.random.default_rng(0)
    sizes = list(pairwise(CHANNELS))
    weights = {
        f"w{i}": (random.standard_normal((n, c, 3, 3)) / 17).astype(np.float32) for i, (c, n) in enumerate(sizes)
    }
    nodes = [
        helper.make_node("Conv", [f"x{i}" if i else "x", f"w{i}"], ["y" if i else "x1"], pads=[1, 1, 1, 1])
        for i in range(len(sizes))
    ]
    proto = make_model(nodes, {"x": image()}, ["y"], dict(weights))
    if batch:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = batch
    return proto


def image() -> Array:
    return np.random.default_rng(1).standard_normal((1, CHANNELS[0], SIZE, SIZE)).astype(np.float32)


def transformed(compiled: Compiled) -> int:
    """How many convolutions are computed by Winograd's algorithm."""
    return sum(node.op.name == "WinogradOutput" for node in compiled.graph.nodes)


def memory(model: api.CompiledModel) -> tuple[int, int]:
    """Bytes of weights, and of workspace."""
    workspace = model.executable.manifest.workspace
    assert isinstance(workspace, int)
    return sum(array.nbytes for array in model.executable.constants), workspace


def weighed(filtering: MinimalFiltering, **factors: float) -> MinimalFiltering:
    """It, as if its errors asked for something else."""
    return replace(filtering, errors=replace(OTHER_TERMS, **factors))


PAYS = (weighed(F2, estimated=1e9), weighed(F4, estimated=0.0))
"""Whatever is estimated, Winograd's algorithm pays."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(convolutions(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.parametrize(("advantage", "fast"), [(1e9, 2), (0.0, 2)])
def test_each_policy_permits_more(advantage: float, fast: int) -> None:
    """``fast`` has what ``default`` has, and what that refuses as not clearly faster."""
    given = [weighed(filtering, estimated=advantage, fast=0.0) for filtering in (F2, F4)]
    models = {m: api.compile(convolutions(), math=m, threads=1, alternatives=given) for m in Math}
    counts = {math: transformed(model.compiled) for math, model in models.items()}
    assert counts == {Math.STRICT: 0, Math.CAREFUL: 0, Math.DEFAULT: 0 if advantage else 2, Math.FAST: fast}


def test_errors_of_each_policy() -> None:
    proto, feeds = convolutions(), {"x": image()}
    errors = dict[Math, float]()
    for math in Math:
        found = api.compile(proto, math=math, threads=1, alternatives=PAYS).compare(
            feeds, against="reference", per_layer=False
        )
        errors[math] = max(max(value.euclidean, value.largest) for value in found.values)
    assert errors[Math.STRICT] < 2e-6
    assert errors[Math.STRICT] < errors[Math.DEFAULT] < 1e-4
    assert errors[Math.FAST] < 1e-4


def test_the_policy_is_in_the_model_the_artifact_and_the_explanation(path: str, tmp_path: Path) -> None:
    for math in Math:
        model = api.compile(path, math=math.value, threads=1)
        model.save(tmp_path / "m.tw")
        assert tilewright.load(tmp_path / "m.tw").math is model.math is math
        assert f'"math": "{math.value}"'.encode() in (tmp_path / "m.tw").read_bytes()
        explanation = model.explain()
        assert explanation.math == math.value
        assert (explanation.memory.weight_bytes, explanation.memory.workspace_bytes) == memory(model)


def test_a_model_for_each_size_has_its_policies() -> None:
    model = api.compile(convolutions("n"), dynamic="specialize", math="strict")
    assert model.math is Math.STRICT
    assert model.explain().math == "strict"
    limited = api.compile(convolutions("n"), dynamic="specialize", memory_limit=9)
    assert limited.explain().memory.limit == 9
    with pytest.raises(ResourceLimit, match="memory_limit=9"):
        limited(image())


def test_a_bundle_has_the_policies(path: str, tmp_path: Path) -> None:
    bundle = tmp_path / "b"
    bundle.mkdir()
    assert main(["repro", path, "-o", str(bundle), "--threads", "1", "--math", "strict", "--memory-limit", "1G"]) == 0
    settings = json.loads((bundle / "settings.json").read_text())
    assert (settings["math"], settings["memory_limit"]) == ("strict", 1 << 30)
    assert rerun(bundle)


def test_the_limit_keeps_what_saves_most_for_a_byte() -> None:
    """Both, one, or none of the convolutions are transformed; each of these fits, and a byte less takes the next."""
    proto = convolutions()
    full = api.compile(proto, threads=1, alternatives=PAYS)
    strict = api.compile(proto, math="strict", threads=1)
    expected, _ = full(image()), strict(image())
    seen: list[int] = []
    limit = sum(memory(full))
    while limit > sum(memory(strict)):
        model = api.compile(proto, threads=1, memory_limit=limit, alternatives=PAYS)
        assert sum(memory(model)) <= limit
        assert model.explain().memory.limit == limit
        seen.append(transformed(model.compiled))
        result = model(image())
        assert isinstance(result, np.ndarray) and isinstance(expected, np.ndarray)
        assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()
        limit = sum(memory(model)) - 1 if seen[-1] else 0
    assert seen[0] == 2
    assert 1 in seen
    assert seen == sorted(seen, reverse=True)


def test_the_leanest_has_a_limit() -> None:
    weights, workspace = memory(api.compile(convolutions(), math="strict", threads=1))
    needed = weights + workspace
    leanest = api.compile(convolutions(), threads=1, memory_limit=needed, alternatives=PAYS)
    assert sum(memory(leanest)) == needed
    said = rf"needs {needed} bytes \({weights} of weights, {workspace} of workspace\), and memory_limit={needed - 1};"
    with pytest.raises(ResourceLimit, match=said):
        api.compile(convolutions(), threads=1, memory_limit=needed - 1, alternatives=PAYS)


def test_a_limit_needs_bounds() -> None:
    """Without any, the workspace can be as large as an input makes it; then there is a version for each size."""
    proto = convolutions("n")
    with pytest.raises(
        UnsupportedModel, match=r"memory_limit=1048576 can't be kept: the workspace depends on n, .*bounds="
    ):
        api.compile(proto, dynamic="symbolic", memory_limit="1MiB")
    bounded = api.compile(proto, dynamic="symbolic", bounds={"n": 2}, memory_limit="4MiB", threads=1)
    assert sum(memory(bounded)) <= 4 << 20
    assert isinstance(api.compile(proto, memory_limit="4MiB"), tilewright.SpecializingModel)


@pytest.mark.parametrize("limit", ["much", "", -1, "1.5G"])
def test_a_limit_that_is_none(limit: int | str) -> None:
    with pytest.raises(BadInput, match=r"memory_limit=.*: give a number of bytes, such as 536870912 or 512MiB"):
        api.compile(convolutions(), memory_limit=limit)


def test_the_command_line(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = str(tmp_path / "m.tw")
    assert main(["compile", path, "-o", artifact, "--threads", "1", "--json", "--math", "strict"]) == 0
    assert json.loads(capsys.readouterr().out)["math"] == "strict"
    for verb in ("compile", "run", "bench", "explain", "profile"):
        assert main([verb, path, "--memory-limit", "1K"]) == 2
        assert "memory_limit=1024" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            main([verb, path, "--math", "exact"])
        with pytest.raises(SystemExit):
            main([verb, path, "--memory-limit", "much"])
    capsys.readouterr()
    assert main(["run", artifact, "--math", "strict", "--memory-limit", "1G"]) == 2
    assert "is compiled already: leave --math, --memory-limit out" in capsys.readouterr().err
