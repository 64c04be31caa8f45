"""Python looks for garbage less often while a model is compiled, and as often as before after it."""

import gc
import threading
from collections.abc import Iterator

import pytest

from tilewright.base.garbage import NEW_OBJECTS, seldom_collecting


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield
    gc.set_threshold(*before)


def test_less_often_inside_and_as_before_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), seldom_collecting():
        assert gc.get_threshold()[0] == NEW_OBJECTS
        print(1 // 0)
    assert gc.get_threshold() == (701, 11, 12)


@pytest.mark.parametrize("own", [0, NEW_OBJECTS + 1])
def test_a_process_that_looks_never_or_less_often_stays_so(own: int) -> None:
    gc.set_threshold(own, 11, 12)
    with seldom_collecting():
        assert gc.get_threshold() == (own, 11, 12)


def test_the_last_of_several_threads_restores() -> None:
    inside, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with seldom_collecting():
            inside.set()
            may_leave.wait(30)

    thread = threading.Thread(target=other)
    with seldom_collecting():
        thread.start()
        assert inside.wait(30)
    assert gc.get_threshold()[0] == NEW_OBJECTS
    may_leave.set()
    thread.join()
    assert gc.get_threshold() == (701, 11, 12)
