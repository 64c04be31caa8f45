"""A process forks while its threads compile and run: the children compile and run."""

import threading

import numpy as np
import pytest

from tests.base.test_forks import in_child
from tests.frontend.models import single_node
from tilewright.api import compile as compiled
from tilewright.base.settings import Settings


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on: "is multi-threaded"
def test_children_compile_and_run() -> None:
    over = threading.Event()

    def use(rows: int) -> None:
        """Nothing comes from a cache on disk."""
        x = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16)
        model = compiled(single_node("Relu", {"x": x}), threads=2, settings=Settings())
        assert np.array_equal(model.run(None, {"x": x})[0], x)

    def use_on(rows: int) -> None:
        while not over.is_set():
            use(rows)

    threads = [threading.Thread(target=use_on, args=(rows,)) for rows in (2, 300)]
    for thread in threads:
        thread.start()
    try:
        assert [in_child(lambda rows=rows: use(rows)) for rows in range(3, 7)] == [0] * 4
    finally:
        over.set()
        for thread in threads:
            thread.join()
