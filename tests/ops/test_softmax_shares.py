"""Softmax of spread numbers: no share is a subnormal number, which takes many processors a hundred times as long."""

import numpy as np

import tilewright
from tests.frontend.models import single_node


def test_no_share_is_subnormal() -> None:
    """Within 1e-34 of the exact shares; those that are normal numbers by far have all their digits."""
    x = np.random.default_rng(0).normal(0, 30, (40, 128)).astype(np.float32)
    found = tilewright.compile(single_node("Softmax", {"x": x}, axis=-1), threads=1)(x)
    assert isinstance(found, np.ndarray)
    powers = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float64))
    exact = powers / powers.sum(axis=1, keepdims=True)
    tiny = np.finfo(np.float32).tiny
    assert np.count_nonzero((exact < tiny) & (exact > np.finfo(np.float32).smallest_subnormal)) > 20
    assert not np.any((found > 0) & (found < tiny))
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6)
    near = powers > np.exp(-79.0)
    np.testing.assert_allclose(found[near], exact[near], rtol=1e-6)
    assert np.all(found[powers < np.exp(-81.0)] == 0)
