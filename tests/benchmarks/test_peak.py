"""A kernel's share of the peak."""

from benchmarks.peak import share_of_peak


def test_share_of_peak() -> None:
    share = share_of_peak(lambda: None, 1e-3, lambda: 50.0, samples=5)
    assert share.peak == 50.0
    assert 0 < share.share <= share.kernel / share.peak
