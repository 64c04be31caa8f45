"""Python threads that run models for ``RunnableModel.run_async``."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Callers:
    """At most ``threads`` Python threads, started when first needed; a forked child starts its own."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._by_process: dict[int, ThreadPoolExecutor] = {}
        """By process: a child has its parent's object, and none of its threads."""

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        """Run ``task`` in one of the threads, after those submitted before."""
        process = os.getpid()
        pool = self._by_process.get(process)
        if pool is None:
            pool = self._by_process.setdefault(process, ThreadPoolExecutor(self._threads, "tilewright-run"))
        return pool.submit(task)
