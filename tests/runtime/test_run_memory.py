"""Where memory ends in a run: an error of ours, and the next run is as any other."""

from collections.abc import Callable

import numpy as np
import pytest

import tilewright
from tests.faults.injection import Kind, injected
from tests.frontend.models import single_node
from tilewright.base import arrays
from tilewright.base.errors import OutOfMemory, ResourceLimit
from tilewright.base.settings import Settings
from tilewright.model import CompiledModel

X = np.arange(12, dtype=np.float32).reshape(2, 2, 3)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    proto = single_node("LpNormalization", {"x": X}, axis=1, p=1)
    return tilewright.compile(proto, settings=Settings(cache_dir=None), threads=2)


RUNS: dict[str, Callable[[CompiledModel], object]] = {
    "by name": lambda model: model.run(None, {"x": X}),
    "by position": lambda model: model(X),
    "of an input that is copied": lambda model: model(np.asfortranarray(X)),
    "of a list": lambda model: model(X.tolist()),
}


@pytest.mark.parametrize("way", RUNS)
def test_each_array_of_a_run(way: str, model: CompiledModel) -> None:
    expected = np.asarray(model(X))
    with injected(Kind.MEMORY, 0) as faults:
        RUNS[way](model)
    for nth in range(1, faults.count + 1):
        with injected(Kind.MEMORY, nth), pytest.raises(OutOfMemory, match="memory"):
            RUNS[way](model)
        np.testing.assert_array_equal(np.asarray(model(X)), expected)


def test_an_output_that_no_machine_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before the system has given addresses for it, and has to end the process when they are used."""
    monkeypatch.setattr(arrays, "available", lambda: 1 << 30)
    proto = single_node("Expand", {"x": np.ones(1, np.float32)}, {"shape": np.array([1 << 30])})
    huge = tilewright.compile(proto, settings=Settings(cache_dir=None), threads=1)
    with pytest.raises(ResourceLimit, match=r"takes 4294967[0-9]* bytes of memory, and 1073741824 are available"):
        huge(np.ones(1, np.float32))
