"""Weights: the safetensors library reads what is written; and they are where they can be used."""

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base import dtypes as dt
from tilewright.base.arrays import Array
from tilewright.base.errors import CorruptArtifact
from tilewright.runtime.artifact import tensors
from tilewright.runtime.manifest import TensorSpec
from tilewright.runtime.memory import address_of, aligned


def made(*shapes: tuple[int, ...], dtype: dt.DType = dt.f32) -> tuple[list[TensorSpec], list[Array]]:
    random = np.random.default_rng(0)
    specs = [TensorSpec(f"w{position}", dtype, shape) for position, shape in enumerate(shapes)]
    return specs, [random.integers(0, 2, shape).astype(dtype.numpy) for shape in shapes]


def encoded(specs: list[TensorSpec], arrays: list[Array]) -> memoryview:
    """The file, at an aligned address as in an artifact."""
    data = b"".join(tensors.encode(specs, arrays))
    memory = aligned(len(data))
    memory[:] = np.frombuffer(data, np.uint8)
    return memory.data


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_the_safetensors_library_reads_it(dtype: dt.DType) -> None:
    specs, arrays = made((3, 5), (), (0, 2), (16, 4), dtype=dtype)
    found = dict(safetensors.deserialize(bytes(encoded(specs, arrays))))
    assert len(found) == len(specs)
    for position, (spec, array) in enumerate(zip(specs, arrays, strict=True)):
        tensor = found[f"{position}:{spec.name}"]
        assert tensor["dtype"] == str(dtype).upper()
        assert tuple(tensor["shape"]) == array.shape
        assert bytes(tensor["data"]) == array.tobytes()


@given(st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=6), st.sampled_from(dt.ALL))
def test_there_and_back(shapes: list[tuple[int, ...]], dtype: dt.DType) -> None:
    specs, arrays = made(*shapes, dtype=dtype)
    data = encoded(specs, arrays)
    for spec, array, found in zip(specs, arrays, tensors.decode(data, specs), strict=True):
        assert (found.dtype, found.shape) == (spec.dtype.numpy, array.shape)
        np.testing.assert_array_equal(found, array)
        assert not array.size or np.shares_memory(found, np.asarray(data))


def test_whole_lines_come_first_and_are_aligned() -> None:
    specs, arrays = made((3,), (16,), (5, 7), (4, 32), (1,), (64,))
    found = tensors.decode(encoded(specs, arrays), specs)
    for array in found:
        if array.nbytes % tensors.ALIGNMENT == 0:
            assert address_of(array) % tensors.ALIGNMENT == 0


@pytest.mark.parametrize("name", ["__metadata__", "", 'a"b\n', "caf\u00e9", "../x"])
def test_any_name(name: str) -> None:
    spec, array = TensorSpec(name, dt.f32, (2,)), np.ones(2, np.float32)
    data = encoded([spec], [array])
    assert [name for name, _ in safetensors.deserialize(bytes(data))] == [f"0:{name}"]
    np.testing.assert_array_equal(tensors.decode(data, [spec])[0], array)


def test_other_tensors_are_refused() -> None:
    specs, arrays = made((4, 4), (3,))
    data = encoded(specs, arrays)
    for others in (specs[:1], [*specs, specs[0]], specs[::-1], made((4, 4), (4,))[0], made((2, 8), (3,))[0]):
        with pytest.raises(CorruptArtifact, match="not those that the manifest lists"):
            tensors.decode(data, others)
    for length in (0, 7, 8, 100, len(data) - 1):
        with pytest.raises(CorruptArtifact, match="not those that the manifest lists"):
            tensors.decode(data[:length], specs)
