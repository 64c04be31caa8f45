"""Callables for the worker process to time."""

import threading
from collections.abc import Callable

import numpy as np

Function = Callable[[], list[np.ndarray]]


def constant(value: str, threads: int) -> Function:
    """Return the value and the number of threads; prints, as libraries do."""

    def run() -> list[np.ndarray]:
        print("noise on standard output")
        return [np.array(float(value)), np.array(threads)]

    return run


def spinning(seconds: str, threads: int) -> Function:
    """Leave a thread spinning for a while after each run."""

    def spin() -> None:
        end = threading.Event()
        timer = threading.Timer(float(seconds), end.set)
        timer.start()
        while not end.is_set():
            pass

    def run() -> list[np.ndarray]:
        threading.Thread(target=spin, daemon=True).start()
        return []

    return run


def failing(threads: int) -> Function:
    """Fail to build."""
    raise RuntimeError("this peer can't be built")
