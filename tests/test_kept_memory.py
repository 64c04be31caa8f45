"""What a process keeps of a model after it has compiled it: little more than the weights, as after loading it."""

from pathlib import Path

import pytest

from benchmarks.memory import all_cases, encoder


@pytest.mark.slow
def test_a_compiled_model_keeps_its_weights_once(tmp_path: Path) -> None:
    model, size = encoder(width=512, layers=4, words=30_000)
    found = all_cases(tmp_path, model, encoder(64, 1, 100)[0])
    kept = {how: one.made / size for how, one in found.items()}
    assert kept["compile"] <= 1.3, kept
    assert kept["loaded"] <= 1.1, kept
    assert kept["cached"] <= 1.1, kept  # mapped, if the system keeps files in huge pages
    assert kept["mapped"] <= 0.3, kept
    assert max(found["forked"].children) <= 0.5 * size
