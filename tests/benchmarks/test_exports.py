"""What the comparison of exported models counts as right; exporting itself needs torch."""

import numpy as np

from benchmarks.exports import TOLERANCE, Case, Exporter, Sizes, difference


def test_differences_are_relative_to_the_largest_number() -> None:
    exact = [np.array([100.0, 1.0], np.float32), np.array([3], np.int64)]
    near = [np.array([100.0, 1.005], np.float32), np.array([3], np.int64)]
    assert difference(exact, exact) == 0
    assert 0 < difference(near, exact) <= TOLERANCE
    assert difference([exact[0] + 1, exact[1]], exact) > TOLERANCE
    assert difference([exact[0][:1], exact[1]], exact) == float("inf")
    assert difference([exact[0], exact[1].astype(np.int32)], exact) == float("inf")


def test_each_export_has_a_file_of_its_own() -> None:
    names = {Case("bert", exporter, sizes).file for exporter in Exporter for sizes in Sizes}
    assert len(names) == 4
