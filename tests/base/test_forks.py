"""Who forks while other threads hold locks gets a child that can go on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager as Held
from contextlib import contextmanager

import pytest

from tilewright.backend.cpu import llvm
from tilewright.base.forks import ForkLock, ProcessLock
from tilewright.measure.database import SQLITE
from tilewright.runtime.pool import Pool
from tilewright.specialize import Versions
from tilewright.target.target import Target

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on: "is multi-threaded"

OVER_FORKS = ForkLock()


def in_child(job: Callable[[], object]) -> int:
    """The status of a forked child that does ``job``; it is killed by SIGALRM if that takes long."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            job()
        except Exception:  # noqa: BLE001
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


@contextmanager
def held_by_a_thread(lock: Callable[[], Held[object]]) -> Generator[Callable[[], None]]:
    """Another thread holds the lock; gives what makes it let go."""
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock():
            inside.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(30)
    try:
        yield over.set
    finally:
        over.set()
        thread.join()


def test_a_lock_of_a_process_is_free_in_a_child() -> None:
    lock = ProcessLock()

    def take() -> None:
        with lock.held():
            pass
        assert in_child(lambda: lock.held().__enter__()) == 0

    with held_by_a_thread(lock.held):
        assert in_child(take) == 0


def test_a_lock_of_a_process_is_one() -> None:
    lock, order = ProcessLock(), list[str]()

    def take() -> None:
        with lock.held():
            order.append("second")

    with held_by_a_thread(lock.held) as let_go:
        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(0.02)
        order.append("first")
        let_go()
        thread.join()
    assert order == ["first", "second"]


def test_who_forks_while_holding_goes_on_in_both() -> None:
    lock = ProcessLock()
    with lock.held(), OVER_FORKS.lock:
        assert in_child(lambda: None) == 0
    with lock.held(), OVER_FORKS.lock:
        pass


@pytest.mark.parametrize("lock", [OVER_FORKS, llvm.LLVM, SQLITE], ids=["a new one", "LLVM", "SQLite"])
def test_a_fork_waits_for_a_library(lock: ForkLock) -> None:
    let_go_at: list[float] = []

    def take() -> None:
        lock.give_way()
        with lock.lock:
            pass

    with held_by_a_thread(lambda: lock.lock) as let_go:
        threading.Timer(0.05, lambda: (let_go_at.append(time.monotonic()), let_go())).start()
        assert in_child(take) == 0
    assert let_go_at, "the fork came after"


def test_llvm_compiles_in_a_child_while_the_parent_does() -> None:
    """LLVM is at work nearly always, and the forks do not wait for long."""
    text = "\n".join(f"define i64 @f{i}(i64 %x) {{\n  %y = mul i64 %x, {i}\n  ret i64 %y\n}}" for i in range(50))
    over = threading.Event()

    def compile_on() -> None:
        while not over.is_set():
            llvm.compile_object(text, Target.host())

    threads = [threading.Thread(target=compile_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [in_child(lambda: llvm.compile_object(text, Target.host())) for _ in range(4)] == [0] * 4
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("name", ["_access", "_making"])
def test_versions_of_a_model(name: str) -> None:
    versions = Versions[int, str](str, 2)
    with held_by_a_thread(getattr(versions, name).held):
        assert in_child(lambda: versions.get(3)) == 0


def test_the_worker_pool() -> None:
    pool = Pool()

    def use() -> None:
        pool.after_fork()
        pool.stop()

    with held_by_a_thread(lambda: pool._lock):  # pyright: ignore[reportPrivateUsage]
        assert in_child(use) == 0
