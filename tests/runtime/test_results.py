"""Memory of large results is used again after the user has dropped them, never before."""

import gc
import threading
import weakref

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model
from tilewright.runtime.abi import ALIGNMENT
from tilewright.runtime.memory import address_of
from tilewright.runtime.results import LARGE, Results

SIZE = LARGE // 4


@pytest.fixture(scope="module")
def doubling() -> tilewright.CompiledModel:
    """Twice its input: results of 32 MiB."""
    proto = model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": np.zeros(SIZE, np.float32)}, ["y"])
    return tilewright.compile(proto, threads=1)


def doubled(ours: tilewright.CompiledModel, value: float) -> NDArray[np.float32]:
    (result,) = ours.run(None, {"x": np.full(SIZE, value, np.float32)})
    return np.asarray(result, np.float32)


def test_memory_is_used_again(doubling: tilewright.CompiledModel) -> None:
    addresses = set[int]()
    for value in range(6):
        result = doubled(doubling, value)
        assert (result == 2 * value).all()
        addresses.add(address_of(result))
        del result
    assert len(addresses) <= 2
    assert all(address % ALIGNMENT == 0 for address in addresses)
    assert doubling.executable.kept_bytes >= LARGE


def parts_of(array: NDArray[np.float32]) -> list[object]:
    """What refers to the elements of ``array`` in all ways that need no copy."""
    parts: list[object] = [array[5:], array.reshape(2, -1)[1], array.view(np.int32)[::3]]
    return [*parts, array.data, np.from_dlpack(array)]


@pytest.mark.parametrize("way", range(5))
def test_views_keep_their_memory(doubling: tilewright.CompiledModel, way: int) -> None:
    for value in (1, 2):
        doubled(doubling, value)
    kept = np.asarray(parts_of(doubled(doubling, 3))[way])
    before = kept.copy()
    later = [doubled(doubling, value) for value in (4, 5)]
    assert (later[0] == 8).all()
    assert (kept == before).all()


def test_memory_of_a_single_result_is_freed() -> None:
    results = Results(1)
    array, _ = results.new((SIZE,), np.dtype(np.float32))
    del array
    assert results.kept_bytes == 0


def test_memory_of_sizes_that_are_not_asked_for_is_freed() -> None:
    results = Results(1)
    for _ in range(2):
        results.new((SIZE,), np.dtype(np.float32))
    assert results.kept_bytes == LARGE
    for more in range(1, 65):
        results.new((SIZE + more,), np.dtype(np.float32))
    assert results.kept_bytes == 0


def test_small_results_are_not_kept() -> None:
    results = Results(1)
    for _ in range(3):
        results.new((SIZE - 1,), np.dtype(np.float32))
    assert results.kept_bytes == 0


def test_memory_of_other_sizes_is_not_used() -> None:
    results = Results(1)
    for _ in range(2):
        results.new((SIZE,), np.dtype(np.float32))
    larger, _ = results.new((2 * SIZE,), np.dtype(np.float32))
    larger[:] = 1
    assert results.kept_bytes == LARGE


def test_memory_is_freed_with_the_model() -> None:
    results = Results(1)
    results.new((SIZE,), np.dtype(np.float32))
    array, _ = results.new((SIZE,), np.dtype(np.float32))
    gone = weakref.ref(results)
    del results
    array[:] = 1
    del array
    gc.collect()
    assert gone() is None


def test_threads_have_results_of_their_own(doubling: tilewright.CompiledModel) -> None:
    wrong: list[float] = []

    def runs(value: float) -> None:
        for _ in range(6):
            result = doubled(doubling, value)
            if not (result == 2 * value).all():
                wrong.append(value)

    threads = [threading.Thread(target=runs, args=(value,)) for value in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
