"""The cost model's benchmark: the four numbers mean what they say, splits leak nothing, and the steps fit together."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.cost_model import record as recording
from benchmarks.cost_model.__main__ import main
from benchmarks.cost_model.data import Data, collected, is_believed
from benchmarks.cost_model.networks import NETWORKS
from benchmarks.cost_model.quality import TOP, of_networks, quality, recall, split
from benchmarks.cost_model.tasks import Task
from tests.loops.workloads import matmul
from tilewright.loops.identity import identity
from tilewright.loops.lower import lower
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.tune.features.statements import NAMES, StatementRows
from tilewright.tune.models.pretrained import unpacked
from tilewright.tune.recorded import named

PROGRAMS = 100


def made_up(seed: int = 0) -> Data:
    """Two tasks of two networks; the time is a sum of what two features of the statements say."""
    random = np.random.default_rng(seed)
    rows = [random.integers(0, 9, (random.integers(1, 4), len(NAMES))).astype(np.float64) for _ in range(2 * PROGRAMS)]
    microseconds = np.array([10.0 + float(np.sum(one[:, 3] + 4.0 * (one[:, 100] > 4.0))) for one in rows])
    tasks = np.repeat([0, 1], PROGRAMS)
    return Data(("first", "second"), ("one", "other"), tasks, microseconds * (1 + tasks), StatementRows.of(rows))


def test_the_truth_is_perfect_and_its_opposite_is_not() -> None:
    data = made_up()
    right, wrong = quality(data.labels, data, data.labels), quality(-data.labels, data, data.labels)
    assert (right.rmse, right.r2, right.pairwise, right.recall) == (0.0, 1.0, 1.0, 1.0)
    assert wrong.pairwise == 0.0
    assert wrong.recall == 0.0
    assert wrong.r2 < 0.0
    assert right.chance == pytest.approx(TOP / PROGRAMS)


def test_the_numbers_are_those_of_their_definitions() -> None:
    """Pair by pair, in three programs of each of two tasks."""
    data = made_up().take(np.array([0, 1, 2, PROGRAMS, PROGRAMS + 1, PROGRAMS + 2]))
    labels, scores = np.array([1.0, 0.5, 0.25, 1.0, 1.0, 0.2]), np.array([0.9, 0.2, 0.2, 0.1, 0.7, 0.3])
    found = quality(scores, data, labels)
    # Of the first task 2 and a half of 3 pairs; of the second, one pair is a tie, and one of the other two is right.
    assert found.pairwise == pytest.approx((2.5 + 1.0) / 5)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((scores - labels) ** 2)))
    assert found.r2 == pytest.approx(1.0 - np.sum((scores - labels) ** 2) / np.sum((labels - labels.mean()) ** 2))
    assert np.isnan(found.recall)
    assert recall(np.array([3.0, 2.0, 1.0, 0.0]), np.array([0.1, 0.9, 1.0, 0.0]), top=2) == 0.5


def test_a_random_order_has_half_of_the_pairs_and_the_recall_of_chance() -> None:
    data = made_up()
    scores = np.random.default_rng(1).random(len(data))
    found = quality(scores, data, data.labels)
    assert found.pairwise == pytest.approx(0.5, abs=0.05)
    assert found.recall == pytest.approx(found.chance, abs=0.15)


def test_nothing_is_both_learned_and_held_out() -> None:
    once = made_up()
    data = once.take(np.repeat(np.arange(len(once)), 2))  # each program twice
    learned, held_out = split(data)
    assert not np.intersect1d(data.programs[learned], data.programs[held_out]).size
    np.testing.assert_array_equal(np.sort([*learned, *held_out]), np.arange(len(data)))
    assert [int(np.sum(data.tasks[held_out] == task)) for task in (0, 1)] == [2 * PROGRAMS // 5] * 2
    for network, others, own in of_networks(data):
        assert {data.networks[task] for task in data.tasks[own]} == {network}
        assert network not in {data.networks[task] for task in data.tasks[others]}


def test_data_are_read_back_and_the_steps_write_what_is_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, weights = tmp_path / "data.npz", tmp_path / "weights.xz"
    data = made_up()
    data.save(path)
    again = Data.load(path)
    np.testing.assert_array_equal(again.statements.rows, data.statements.rows)
    np.testing.assert_allclose(again.microseconds, data.microseconds, rtol=1e-6)
    assert (again.names, again.networks) == (data.names, data.networks)
    main(["train", str(path), "-o", str(weights)])
    assert unpacked(weights.read_bytes()).trees is not None
    main(["evaluate", str(path)])
    printed = capsys.readouterr().out
    assert "a fifth of the programs of each task | 40 |" in printed
    assert "all of other | 100 |" in printed


def test_what_was_interrupted_is_not_believed() -> None:
    checked = {"check": 0.001}
    assert is_believed(Outcome(Verdict.OK, times_us=(480.0, 600.0), seconds=checked))
    assert not is_believed(Outcome(Verdict.OK, times_us=(600.0,), seconds=checked))
    assert not is_believed(Outcome(Verdict.TIMEOUT, seconds=checked))


def task() -> Task:
    naive = named(lower(matmul(16, 16, 32)))
    return Task("one", "product", identity(naive), naive)


@pytest.mark.slow
def test_a_recording_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "tasks", lambda: (task(),))
    path = tmp_path / "records.db"
    first = recording.record(path, 10.0, most=8)
    second = recording.record(path, 10.0, most=8)
    assert second >= first + 8
    data = collected(path, [task()])
    assert 8 < len(data) <= second
    assert data.labels.max() == 1.0


@pytest.mark.slow
def test_the_networks_have_the_layers_of_their_papers() -> None:
    counts = {name: [node.op_type for node in make().graph.node].count("Conv") for name, make in NETWORKS.items()}
    assert counts == {"resnet50": 53, "mobilenet_v2": 52}
