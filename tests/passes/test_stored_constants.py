"""Constants as kernels read them: what they are, and that what they are made of is let go of."""

import weakref

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import f16, f32
from tilewright.graph import Value
from tilewright.passes.stored_constants import Stored, bytes_of, stored_arrays
from tilewright.runtime.memory import aligned_array
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import const

PANELS = IndexMap.parse("k, j -> j // 4, k, j % 4")


def value(name: str, *shape: int) -> Value:
    return Value(name, f32, tuple(map(const, shape)))


def test_arrays_are_packed_and_converted_in_the_order_of_the_program() -> None:
    a, b = value("a", 3, 8), value("b", 5)
    arrays: dict[Value, Array] = {a: np.arange(24, dtype=np.float32).reshape(3, 8), b: np.arange(5, dtype=np.float32)}
    half = Value("b.half", f16, b.shape)
    stored = {b: Stored(b), value("a.panels", 2, 3, 4): Stored(a, (PANELS,)), half: Stored(b)}
    plain, panels, halves = stored_arrays(stored, dict(arrays), aligned_array)
    assert plain is arrays[b]
    np.testing.assert_array_equal(panels, arrays[a].reshape(3, 2, 4).transpose(1, 0, 2))
    np.testing.assert_array_equal(halves, arrays[b].astype(np.float16))
    assert halves.dtype == np.float16


def test_each_source_goes_after_its_last_use_and_large_ones_go_first() -> None:
    """At no time is there more than all constants once, and one of the largest twice."""
    values = {value(f"w{columns}", 16, columns): columns for columns in (64, 4, 128, 32)}
    arrays: dict[Value, Array] = {v: np.ones((16, columns), np.float32) for v, columns in values.items()}
    twice = next(iter(values))
    stored = {value(f"{v.name}.panels", columns // 4, 16, 4): Stored(v, (PANELS,)) for v, columns in values.items()}
    stored[value("again", 16, 16, 4)] = Stored(twice, (PANELS,))
    sources = [weakref.ref(array) for array in arrays.values()]
    total, made, most = sum(map(bytes_of, values)), 0, 0

    def empty(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        nonlocal made, most
        array = np.empty(shape, dtype)
        made += array.nbytes
        most = max(most, made + sum(source.nbytes for ref in sources if (source := ref()) is not None))
        return array

    stored_arrays(stored, arrays, empty)
    assert not arrays
    assert [ref() for ref in sources] == [None] * 4
    assert most <= total + bytes_of(twice) + 16 * 128 * 4
