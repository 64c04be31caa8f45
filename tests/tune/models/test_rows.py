"""Whatever belongs to a candidate moves with it; labels are relative to the best of the candidate's own task."""

import numpy as np

from tests.tune.models.populations import measured
from tilewright.tune.models.model import Measured, relative
from tilewright.tune.models.rows import Rows, rows_of, split


def numbered(rows: int, tasks: int = 1) -> Rows:
    """Each thing that belongs to row ``i`` is made from ``i``."""
    numbers = np.arange(float(rows))
    return Rows(numbers[:, None] * [1.0, 2.0], numbers / rows, np.arange(rows) * tasks // rows, numbers + 0.5)


def assert_aligned(part: Rows, whole: Rows) -> None:
    numbers = part.features[:, 0].astype(np.int64)
    np.testing.assert_array_equal(part.features, whole.features[numbers])
    np.testing.assert_array_equal(part.labels, whole.labels[numbers])
    np.testing.assert_array_equal(part.tasks, whole.tasks[numbers])
    np.testing.assert_array_equal(part.margins, whole.margins[numbers])


def test_features_labels_tasks_and_margins_are_selected_together() -> None:
    rows = numbered(50, tasks=3)
    taken = rows.take(np.array([7, 3, 49]))
    assert taken.features[:, 0].tolist() == [7.0, 3.0, 49.0]
    assert_aligned(taken, rows)


def test_a_split_shares_out_all_rows_and_keeps_tasks_together() -> None:
    rows = numbered(103, tasks=4)
    parts = split(rows, np.random.default_rng(1))
    assert parts is not None
    learned, held_out = parts
    assert (len(learned), len(held_out)) == (83, 20)
    for part in parts:
        assert_aligned(part, rows)
        assert (np.diff(part.tasks) >= 0).all()
        assert len(np.unique(part.tasks)) == 4
    assert set(learned.features[:, 0]) | set(held_out.features[:, 0]) == set(rows.features[:, 0])


def test_a_split_is_a_matter_of_the_seed() -> None:
    first, again, other = (split(numbered(100), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    np.testing.assert_array_equal(first[1].labels, again[1].labels)
    assert not np.array_equal(first[1].labels, other[1].labels)


def test_few_rows_are_not_split() -> None:
    assert split(numbered(19), np.random.default_rng(1)) is None
    assert split(numbered(20), np.random.default_rng(1)) is not None


def test_labels_are_parts_of_the_best_of_the_task() -> None:
    features = np.zeros((2, 3))
    rows = rows_of([Measured(features, np.array([2e9, 4e9])), Measured(features, np.array([3.0, 0.0]))])
    assert rows.labels.tolist() == [0.5, 1.0, 1.0, 0.0]
    assert rows.tasks.tolist() == [0, 0, 1, 1]
    assert rows.margins.tolist() == [0.0] * 4


def test_whatever_is_no_throughput_is_a_failure() -> None:
    assert relative(np.array([np.nan, np.inf, -1.0, 0.0, 5.0])).tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert relative(np.array([np.nan, 0.0])).tolist() == [0.0, 0.0]
    assert relative(np.zeros(0)).shape == (0,)


def test_only_candidates_of_one_task_are_told_apart() -> None:
    def rows(labels: list[float], tasks: list[int]) -> Rows:
        return Rows(np.zeros((len(labels), 1)), np.array(labels), np.array(tasks), np.zeros(len(labels)))

    assert rows([0.5, 0.5, 1.0], [0, 0, 0]).tell_apart
    assert not rows([0.5, 0.5, 1.0, 1.0], [0, 0, 1, 1]).tell_apart
    assert not rows([1.0], [0]).tell_apart
    assert not rows([], []).tell_apart
    assert rows_of([measured(10, 1)]).tell_apart
