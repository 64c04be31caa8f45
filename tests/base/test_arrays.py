"""Random arrays: what they promise."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.arrays import random_array
from tilewright.base.dtypes import ALL, DType, f16, f32, f64, i8, i64

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(st.sampled_from(ALL), SHAPES, st.integers(0, 1 << 32))
def test_type_shape_and_repetition(dtype: DType, shape: tuple[int, ...], seed: int) -> None:
    first, again = (random_array(dtype, shape, np.random.default_rng(seed)) for _ in range(2))
    assert isinstance(first, np.ndarray)
    assert (first.dtype, first.shape) == (dtype.numpy, shape)
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype.is_float], ids=str)
def test_floats_are_normal(dtype: DType) -> None:
    drawn = random_array(dtype, (100, 100), np.random.default_rng(0)).astype(np.float64)
    assert abs(drawn.mean()) < 0.03
    assert abs(drawn.std() - 1.0) < 0.03
    assert abs((np.abs(drawn) < 1.0).mean() - 0.6827) < 0.03, "the part within a standard deviation"


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if not dtype.is_float], ids=str)
def test_all_others_are_zeros_and_ones(dtype: DType) -> None:
    drawn = random_array(dtype, (1000,), np.random.default_rng(0)).astype(np.int64)
    assert set(drawn.tolist()) == {0, 1}
    assert abs(drawn.mean() - 0.5) < 0.1


@pytest.mark.parametrize(("wide", "narrow"), [(f64, f16), (f64, f32), (i64, i8)])
def test_the_same_is_drawn_for_each_width(wide: DType, narrow: DType) -> None:
    a, b = (random_array(dtype, (3, 5), np.random.default_rng(1)) for dtype in (wide, narrow))
    assert prod(a.shape) == 15
    np.testing.assert_array_equal(a.astype(narrow.numpy), b)


def test_one_generator_never_draws_the_same_again() -> None:
    generator = np.random.default_rng(0)
    a, b = (random_array(f32, (8,), generator) for _ in range(2))
    assert not (a == b).any()
