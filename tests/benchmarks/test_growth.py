"""A process that runs models with random shapes does not grow."""

import pytest

from benchmarks.growth import chosen_rows, main, readings, texts


@pytest.mark.slow
def test_random_shapes_do_not_fill_memory() -> None:
    first, *_, last = readings((texts(64, 1), chosen_rows()), seconds=20)
    assert last.runs > 5 * first.runs
    assert last.own - first.own < 8 << 20


@pytest.mark.slow
def test_the_command_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--minutes", "0.05"])
    assert "growth after the first tenth: " in capsys.readouterr().out
