"""Which places are compared, for weights that lanes read across rows, and along them."""

import pytest

from benchmarks.stored_constants import PLACES, dense, drawn
from tilewright.sketch.packing import NOT, STORED


@pytest.mark.parametrize("is_row_for_output", [True, False])
def test_the_same_tile_is_timed_with_each_place(*, is_row_for_output: bool) -> None:
    found = [*drawn(*dense(4, 32, 64, is_row_for_output=is_row_for_output), 1)]
    assert [place for place, _ in found] == ([*PLACES] if is_row_for_output else [NOT, STORED])
    assert [bool(schedule.program.layout("W")) for place, schedule in found if place != STORED] == [False] * (
        len(found) - 1
    )
    splits = {tuple(str(step) for step in schedule.trace.steps if "split" in str(step))[:3] for _, schedule in found}
    assert len(splits) == 1
