"""Values that are handed over."""

import weakref

import numpy as np
import pytest

from tilewright.base.errors import InternalError
from tilewright.base.handed import Handed


def test_the_taker_has_the_only_reference() -> None:
    array = np.zeros(3)
    alive, box = weakref.ref(array), Handed(array)
    del array

    def use(taken: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        assert alive() is taken
        del taken
        assert alive() is None

    assert box.value is alive()
    use(box.take())


def test_it_is_taken_once() -> None:
    box = Handed(1)
    assert box.take() == 1
    for again in (box.take, lambda: box.value):
        with pytest.raises(InternalError, match="taken already"):
            again()
