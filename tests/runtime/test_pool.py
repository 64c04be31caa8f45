"""The pool runs each chunk once, never hangs, and comes through forks and exits."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import pool_stress
from tests.runtime.images import TORTURE, compile_text, image_of
from tests.runtime.stingy import Stingy
from tilewright.backend.cpu.support import support_text
from tilewright.base.errors import MeasureError
from tilewright.runtime import abi
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.memory import address_of, aligned
from tilewright.runtime.pool import Pool, shared_pool


@pytest.fixture(scope="module")
def image() -> LoadedImage:
    return load_image(image_of(TORTURE))


def stress(folder: Path, *arguments: float, objects: Sequence[bytes] = ()) -> int:
    """Run the stress program, of this system's code or ``objects``; the number of regions that it ran."""
    for i, data in enumerate(objects or image_of(TORTURE)):
        (folder / f"{i}.o").write_bytes(data)
    command = [sys.executable, pool_stress.__file__, str(folder), *(str(a) for a in arguments)]
    limit = 60 + 2 * arguments[-1]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    ("callers", "threads", "spins", "forks"),
    [
        pytest.param(1, 2, abi.DEFAULT_SPINS, 0, id="one caller, hot"),
        pytest.param(1, 3, 0, 0, id="workers sleep at once"),
        pytest.param(4, 2, 100, 20, id="four callers, forks"),
        pytest.param(4, 16, 50, 10, id="many threads on few processors"),
    ],
)
def test_stress(tmp_path: Path, callers: int, threads: int, spins: int, forks: int) -> None:
    assert stress(tmp_path, callers, threads, spins, forks, 1.0) > 300


@pytest.mark.slow
@pytest.mark.parametrize("spins", [0, 10, abi.DEFAULT_SPINS])
@pytest.mark.parametrize("threads", [2, 5, 33])
def test_stress_long(tmp_path: Path, threads: int, spins: int) -> None:
    assert stress(tmp_path, 4, threads, spins, 100, 15.0) > 1000


def test_pinned_threads_stay_on_one_processor_each(image: LoadedImage) -> None:
    def masks() -> dict[int, list[int]]:
        """The processors that each thread of this process may use."""
        return {task: sorted(os.sched_getaffinity(task)) for task in map(int, os.listdir("/proc/self/task"))}

    allowed = sorted(os.sched_getaffinity(0))
    wanted = (allowed * 3)[1:4]  # the caller and two workers, of three
    others = masks()
    pool = Pool()
    try:
        pool.ensure(4, image)
        before = masks()
        with pool.pinned(wanted):
            assert os.sched_getaffinity(0) == {wanted[0]}
            # Numbers of threads start again at the system's highest: their order is not that of the starts.
            workers = [mask for task, mask in masks().items() if task not in others]
            assert sorted(workers) == sorted([[wanted[1]], [wanted[2]], allowed])
        assert masks() == before
        with pytest.raises(MeasureError, match="can't be kept on one processor"), pool.pinned([8191]):
            pass
        assert masks() == before
    finally:
        pool.stop()


def test_workers_start_once_and_stop(image: LoadedImage) -> None:
    def running() -> int:
        return len(os.listdir("/proc/self/task"))

    before = running()
    pool = Pool()
    assert pool.ensure(1, image) == 1
    assert running() == before
    assert pool.ensure(4, image) == 4
    assert pool.ensure(2, image) == 2
    assert running() == before + 3
    assert pool_stress.torture(image, pool, 4, 1) == 0
    pool.stop()
    assert running() == before
    assert pool.ensure(4, image) == 1
    assert pool_stress.torture(image, pool, 4, 1) == 0
    pool.stop()


def test_system_refuses_threads(image: LoadedImage) -> None:
    """The pool stays as large as it could get, warns once, and does not ask again at each call."""
    system = Stingy(1)
    pool = Pool(system=system)
    with pytest.warns(UserWarning, match=r"only 2 threads: the system refused another \(Resource temporarily unavail"):
        assert pool.ensure(4, image) == 2
    assert pool.ensure(4, image) == 2
    assert system.asked == 2
    assert pool_stress.torture(image, pool, 2, 1) == 0
    pool.stop()


def test_fewer_threads_than_workers(image: LoadedImage) -> None:
    """Worker numbers stay below the call's number of threads, also in a larger pool."""
    pool = Pool()
    pool.ensure(6, image)
    record = load_image(image_of(_RECORD))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(record.symbol("record"))
    for threads in (1, 2, 3):
        seen = aligned(8 * 64).view(np.int64)
        seen.fill(0)
        context = aligned(abi.CONTEXT_BYTES).view(np.int64)
        context.fill(0)
        context[0], context[1] = pool.address, threads
        calls = 0
        while calls < 20 or not (threads == 1 or seen[1:].any()):  # until some worker has taken part
            call(address_of(context), address_of(seen), 1000)
            calls += 1
        assert seen.sum() == 1000 * calls
        assert not seen[threads:].any()
    pool.stop()


def test_sleeping_workers_are_woken() -> None:
    """Two chunks that wait for each other: they meet only if the worker takes one, and soon."""
    pool = Pool(spins=100)
    meeting = load_image(image_of(_MEET))
    context = aligned(abi.CONTEXT_BYTES).view(np.int64)
    context.fill(0)
    context[0], context[1] = pool.address, pool.ensure(2, meeting)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(meeting.symbol("meet"))
    for pause in (0.0, 0.002) * 100:
        time.sleep(pause)
        assert call(address_of(context)) == 2
    pool.stop()


# Each chunk counts itself in, and waits for the other, but not for ever. Returns how many have seen both.
_MEET = """
define internal void @arrive(ptr %state, i64 %chunk, i64 %worker) nounwind {
entry:
  %before = atomicrmw add ptr %state, i64 1 seq_cst
  br label %wait
wait:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %again ]
  %here = load atomic i64, ptr %state acquire, align 8
  %both = icmp eq i64 %here, 2
  br i1 %both, label %met, label %again
again:
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, 4000000000
  br i1 %patient, label %wait, label %end
met:
  %met.at = getelementptr i64, ptr %state, i64 1
  %count = atomicrmw add ptr %met.at, i64 1 seq_cst
  br label %end
end:
  ret void
}
define i64 @meet(ptr %context) nounwind {
  %state = alloca [2 x i64]
  store i64 0, ptr %state
  %met.at = getelementptr i64, ptr %state, i64 1
  store i64 0, ptr %met.at
  call void @tw_parallel_for(ptr %context, ptr @arrive, ptr %state, i64 2)
  %met = load i64, ptr %met.at
  ret i64 %met
}
"""

# Counts the chunks of each worker.
_RECORD = """
define internal void @note(ptr %seen, i64 %chunk, i64 %worker) nounwind {
entry:
  %at = getelementptr i64, ptr %seen, i64 %worker
  br label %work
work:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %work ]
  %old = load volatile i64, ptr %at
  %turn.next = add i64 %turn, 1
  %go = icmp ult i64 %turn.next, 100
  br i1 %go, label %work, label %end
end:
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  ret void
}
define void @record(ptr %context, ptr %seen, i64 %n) nounwind {
  call void @tw_parallel_for(ptr %context, ptr @note, ptr %seen, i64 %n)
  ret void
}
"""


def test_more_chunks_than_a_part_counts() -> None:
    pool = Pool()
    record = load_image(image_of(_RECORD))
    context = aligned(abi.CONTEXT_BYTES).view(np.int64)
    context.fill(0)
    context[0], context[1] = pool.address, pool.ensure(2, record)
    seen = np.zeros(8, np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(record.symbol("record"))
    chunks = (1 << abi.POSITION_BITS) * 2 + 5
    call(address_of(context), address_of(seen), chunks)
    assert seen.sum() == chunks
    call(address_of(context), address_of(seen), 0)
    call(address_of(context), address_of(seen), -3)
    call(0, address_of(seen), 10)
    assert seen.sum() == chunks + 10
    pool.stop()


# Chunk i of 8 notes its worker, and waits for chunk i + 4 or i - 4 to begin, but not for ever.
_BY_WHOM = """
define internal void @note(ptr %workers, i64 %chunk, i64 %worker) nounwind {
entry:
  %at = getelementptr i64, ptr %workers, i64 %chunk
  store atomic i64 %worker, ptr %at seq_cst, align 8
  %other = xor i64 %chunk, 4
  %other.at = getelementptr i64, ptr %workers, i64 %other
  br label %wait
wait:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %again ]
  %by = load atomic i64, ptr %other.at seq_cst, align 8
  %absent = icmp slt i64 %by, 0
  br i1 %absent, label %again, label %end
again:
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, 4000000000
  br i1 %patient, label %wait, label %end
end:
  ret void
}
define void @by_whom(ptr %context, ptr %workers) nounwind {
  call void @tw_parallel_for(ptr %context, ptr @note, ptr %workers, i64 8)
  ret void
}
"""


def test_neighbouring_chunks_go_to_one_thread() -> None:
    pool = Pool()
    image = load_image(image_of(_BY_WHOM))
    context = aligned(abi.CONTEXT_BYTES).view(np.int64)
    context.fill(0)
    context[0], context[1] = pool.address, pool.ensure(2, image)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(image.symbol("by_whom"))
    for _ in range(20):
        workers = np.full(8, -1, np.int64)
        call(address_of(context), address_of(workers))
        assert workers.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    pool.stop()


def test_image_without_a_pool() -> None:
    record = load_image([*image_of(_RECORD)[:1], compile_text(support_text("x86_64", threads=False))])
    pool = Pool()
    assert pool.ensure(4, record) == 1
    assert "tw_worker" not in record


def test_workers_leave_signals_to_python(image: LoadedImage) -> None:
    pool = Pool()
    before = set(os.listdir("/proc/self/task"))
    pool.ensure(2, image)
    (worker,) = set(os.listdir("/proc/self/task")) - before
    interrupt, fault = 1 << 1, 1 << 10
    end = time.monotonic() + 10
    while (blocked := _blocked_signals(worker)) & fault and time.monotonic() < end:
        pass  # a thread starts with all signals blocked
    assert blocked & interrupt
    assert not blocked & fault
    pool.stop()


def _blocked_signals(task: str) -> int:
    status = Path(f"/proc/self/task/{task}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")), 16)


@pytest.mark.parametrize("ending", ["pass", "os.kill(os.getpid(), 15)", "os._exit(0)", "daemon()"])
def test_exit_with_live_workers(tmp_path: Path, ending: str) -> None:
    """A process ends quickly whatever its workers do."""
    for i, data in enumerate(image_of(TORTURE)):
        (tmp_path / f"{i}.o").write_bytes(data)
    program = f"""
import os, sys, threading, time
from pathlib import Path
sys.path.insert(0, {str(Path(pool_stress.__file__).parent)!r})
import pool_stress
from tilewright.runtime.loader import load_image
from tilewright.runtime.pool import shared_pool
image = load_image([path.read_bytes() for path in sorted(Path({str(tmp_path)!r}).glob("*.o"))])
pool_stress.torture(image, shared_pool(), 3, 1)
def forever():
    while True:
        pool_stress.torture(image, shared_pool(), 3, 1)
def daemon():
    threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.05)
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == (-15 if "kill" in ending else 0), done.stderr


def test_one_shared_pool() -> None:
    found: list[Pool] = []
    threads = [threading.Thread(target=lambda: found.append(shared_pool())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(pool) for pool in found} == {id(shared_pool())}
