"""The harness of the super-optimizer's benchmarks: its graphs, its statistics, and both of its verbs."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.superopt.__main__ import main
from benchmarks.superopt.builders import BUILT
from benchmarks.superopt.costs import Pair, by_kind, rank_correlation, summary
from benchmarks.superopt.variants import KNOWN, REDUNDANT, variants
from tests.frontend.models import run_onnxruntime


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BUILT))
def test_what_is_built_runs(name: str) -> None:
    """Its values keep their scale, so that errors mean something."""
    model, random = BUILT[name](), np.random.default_rng(0)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    feeds = {input_: random.standard_normal(shape).astype(np.float32) for input_, shape in shapes.items()}
    for found in run_onnxruntime(model, feeds):
        assert 0.01 < found.std() < 10


def test_ten_networks_have_something_to_find() -> None:
    assert len(REDUNDANT) == 10 and set(REDUNDANT) <= set(KNOWN)


def test_the_rank_correlation_is_that_of_others() -> None:
    random = np.random.default_rng(0)
    numbers = random.permutation(20) + random.standard_normal((2, 20))
    pairs = [Pair("", float(a), float(b)) for a, b in zip(*numbers, strict=True)]
    stats = pytest.importorskip("scipy.stats")  # loading it takes longer than all else here
    assert rank_correlation(pairs) == pytest.approx(stats.spearmanr(*numbers).statistic)


def test_errors_are_relative_to_what_was_measured() -> None:
    told = list(summary([Pair("a", 80.0, 100.0), Pair("b", 330.0, 300.0), Pair("c", 500.0, 1000.0)]))
    assert told == ["3 graphs; rank correlation 1.000", "error: median 20%, mean 27%, most 50%"]
    kernels = [Pair("Reshape+MatMul", 50.0, 100.0), Pair("MatMul+Add", 200.0, 100.0), Pair("Softmax", 30.0, 20.0)]
    rows = list(by_kind(kernels))[2:]
    assert rows == ["| MatMul | 2 | 90.9% | 1.00 | 0.50 | 2.00 |", "| Softmax | 1 | 9.1% | 1.50 | 1.50 | 1.50 |"]


def test_planted_graphs_are_more_than_forty_variants(tmp_path: Path) -> None:
    assert len(list(variants(["planted"], tmp_path))) >= 40


def test_costs_are_told_beside_times(capsys: pytest.CaptureFixture[str]) -> None:
    main(["costs", "recurrent-steps", "--seconds", "0.05"])
    told = capsys.readouterr().out
    assert "| four RNN steps, given | " in told and "| four RNN steps, rewritten | " in told
    assert "2 graphs; rank correlation" in told and "| MatMul | " in told


def gain(row: str, told: str) -> float:
    (found,) = (line for line in told.splitlines() if line.startswith(f"| {row}"))
    return float(found.split("|")[3])


def test_gains_are_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    main(["networks", "chain-of-products", "--estimate"])
    told = capsys.readouterr().out
    assert gain("chain-of-products", told) > 10 and "product-from-the-right" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BUILT))
def test_something_is_found_in_what_is_built(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["networks", name, "--estimate"])
    assert gain(name, capsys.readouterr().out) > 1.1


def test_what_was_found_is_not_searched_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["networks", "chain-of-products", "--estimate", "--models", str(tmp_path)]
    told = list[str]()
    for _ in range(2):
        main(arguments)
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]  # the seconds of the search, too
    assert gain("chain-of-products", told[1]) > 10
    (path,) = tmp_path.iterdir()
    assert [node.op_type for node in onnx.load_from_string(path.read_bytes()).graph.node].count("MatMul") == 1


@pytest.mark.slow
def test_gains_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    for ways in ([], ["--onnxruntime"]):
        main(["networks", "chain-of-products", *ways])
        assert gain("chain-of-products", capsys.readouterr().out) > 3
