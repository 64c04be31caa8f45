"""Attention block by block, kernel alone: weights that would be subnormal numbers."""

import numpy as np

from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.ops.operator import require
from tilewright.tensor.build import placeholder


def test_weights_that_would_be_subnormal_are_zero() -> None:
    """Two keys and one number each: the second one's weight is a power of e, and its value shows that."""
    heads = np.array([-80, -86.5, -87.5, -95, -103], np.float32)
    q = np.ones((len(heads), 1, 1), np.float32)
    keys, v = np.zeros((len(heads), 2, 1), np.float32), np.zeros((len(heads), 2, 16), np.float32)
    keys[:, 1, 0], v[:, 1] = heads, 2.0**126
    feeds = {"q": q, "keys": keys, "v": v}
    tensors = [placeholder(array.shape, f32, name) for name, array in feeds.items()]
    attributes = {"are_rows": True, "width": 16, "columns": 16}
    program = lower(require("BlockAttention").apply(tensors, attributes), inputs=tensors)
    powers = np.exp(heads.astype(np.float64))
    expected = np.where(powers < np.finfo(np.float32).tiny, 0, powers * 2.0**126)
    assert np.count_nonzero(expected) == 2
    expected = np.broadcast_to(expected.reshape(-1, 1, 1), (len(heads), 1, 16))
    native = te.build(program, threads=1)(*feeds.values())
    assert not isinstance(native, tuple)
    for found in (*interpret(program, feeds).values(), native):
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-5)
