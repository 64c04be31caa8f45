"""A run ends soon after its deadline or a signal, wherever it is, and leaves the model and the pool as they were."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

import numpy as np
import pytest

from tests.runtime.images import ENDLESS, SCALE, compile_text, image_of, support_object
from tests.runtime.stingy import Stingy
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base import dtypes as dt
from tilewright.base.errors import BadInput, Timeout
from tilewright.runtime import abi
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import LoadedImage, load_image
from tilewright.runtime.manifest import Manifest, Symbol, TensorSpec
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.objectfile import host_machine
from tilewright.runtime.pool import Pool, shared_pool

SOON = 5.0
"""Seconds that nothing here should take, on a machine that does other things as well."""

# As many chunks as dims[0] says, each of which counts to dims[1].
_SPIN = """
define internal void @chunk(ptr %arg, i64 %i, i64 %worker) nounwind {
entry:
  %turns.at = getelementptr i64, ptr %arg, i64 1
  %turns = load i64, ptr %turns.at
  br label %spin
spin:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %spin ]
  %seen = load volatile i64, ptr %arg
  %turn.next = add i64 %turn, 1
  %more = icmp slt i64 %turn.next, %turns
  br i1 %more, label %spin, label %done
done:
  ret void
}

define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %arg = alloca [2 x i64]
  store ptr %context, ptr %arg
  %n = load i64, ptr %dims
  %turns.in = getelementptr i64, ptr %dims, i64 1
  %turns = load i64, ptr %turns.in
  %turns.at = getelementptr i64, ptr %arg, i64 1
  store i64 %turns, ptr %turns.at
  call void @tw_parallel_for(ptr %context, ptr @chunk, ptr %arg, i64 %n)
  %code.at = getelementptr i8, ptr %context, i64 40
  %code = load i64, ptr %code.at
  %r = trunc i64 %code to i32
  ret i32 %r
}
"""


def spinner(threads: int) -> Executable:
    """Runs as many chunks as its first input is long, each of as many turns as the second one is."""
    inputs = tuple(TensorSpec(name, dt.u8, (extent,)) for name, extent in (("x", "n"), ("y", "turns")))
    return NativeExecutable(
        Manifest(inputs, (), symbols=(Symbol("n"), Symbol("turns"))), image_of(_SPIN), threads=threads
    )


def sizes(chunks: int, turns: int) -> dict[str, object]:
    return {name: np.broadcast_to(np.zeros(1, np.uint8), (size,)) for name, size in (("x", chunks), ("y", turns))}


def endless() -> Executable:
    return NativeExecutable(Manifest((), ()), image_of(ENDLESS), threads=1)


@contextmanager
def alarm(seconds: float, handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Send SIGALRM after a while."""
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


class Rung(Exception):
    pass


def ring(number: int, frame: FrameType | None) -> None:
    raise Rung(number)


@pytest.mark.parametrize("threads", [1, 3])
def test_between_chunks(threads: int) -> None:
    """2,000,000 chunks of some 100 us each; afterwards the pool has nothing of it left."""
    model = spinner(threads)
    for _ in range(3):
        begin = time.monotonic()
        with pytest.raises(Timeout, match="longer than its timeout"):
            model.run(sizes(2_000_000, 100_000), timeout=0.03)
        assert time.monotonic() - begin < SOON
        assert model.run(sizes(100, 10)) == []


# Chunks of the caller return at once; one of a worker looks for a stop, as kernels do, and writes 1 if there was one.
_ASK = """
define internal void @chunk(ptr %arg, i64 %i, i64 %worker) nounwind {
entry:
  %context = load ptr, ptr %arg
  %found.at = getelementptr ptr, ptr %arg, i64 1
  %found = load ptr, ptr %found.at
  %seen.at = getelementptr i8, ptr %context, i64 32
  %ticks.at = getelementptr i8, ptr %context, i64 112
  %ticks = load ptr, ptr %ticks.at
  %is.caller = icmp eq i64 %worker, 0
  br i1 %is.caller, label %done, label %loop
loop:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %look ], [ %turn.next, %check ]
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn, 3000000000
  br i1 %patient, label %look, label %done
look:
  %tick = load atomic i64, ptr %ticks monotonic, align 8
  %seen = load atomic i64, ptr %seen.at monotonic, align 8
  %same = icmp eq i64 %tick, %seen
  br i1 %same, label %loop, label %check
check:
  %stop = call i1 @tw_check(ptr %context, i64 %worker)
  br i1 %stop, label %stopped, label %loop
stopped:
  store i64 1, ptr %found
  br label %done
done:
  ret void
}

define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %arg = alloca [2 x i64]
  store ptr %context, ptr %arg
  %found = load ptr, ptr %buffers
  %found.at = getelementptr i64, ptr %arg, i64 1
  store ptr %found, ptr %found.at
  call void @tw_parallel_for(ptr %context, ptr @chunk, ptr %arg, i64 2)
  ret i32 0
}
"""


def test_while_the_caller_waits_for_others() -> None:
    """Only the caller looks at the clock, and the others learn from it."""
    model = NativeExecutable(Manifest((), (TensorSpec("found", dt.i64, ()),)), image_of(_ASK), threads=2)
    found = np.zeros((), np.int64)
    end = time.monotonic() + SOON
    while not found and time.monotonic() < end:  # until the worker has had a chunk: else a run is over at once
        with suppress(Timeout):
            model.run({}, {"found": found}, timeout=0.03)
    assert found == 1


@pytest.mark.parametrize("timeout", [0, 0.0, 1e-9, np.float32(0.001), 0.02])
def test_short_timeouts(timeout: float) -> None:
    with pytest.raises(Timeout):
        endless().run({}, timeout=timeout)


@pytest.mark.parametrize("timeout", [10, float("inf"), 1e300, np.int64(100)])
def test_timeouts_that_are_long_enough(timeout: float) -> None:
    assert spinner(1).run(sizes(3, 10), timeout=timeout) == []


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), float("-inf"), True, "1", (), 1j])
def test_what_is_no_timeout(timeout: object) -> None:
    with pytest.raises(BadInput, match=r"timeout=.*: give seconds"):
        spinner(1).run(sizes(1, 1), timeout=timeout)  # pyright: ignore[reportArgumentType]


def test_a_deadline_is_for_one_call() -> None:
    model = spinner(1)
    model.run(sizes(1, 1), timeout=0.05)
    time.sleep(0.06)
    model.run(sizes(100, 100_000))


def test_a_run_that_ends_late_is_late() -> None:
    """Nobody looks at the clock within this chunk; its result comes after the deadline, and is not given."""
    with pytest.raises(Timeout):
        spinner(1).run(sizes(1, 30_000_000), timeout=0.001)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_handler_that_raises_stops_the_run(threads: int) -> None:
    model = spinner(threads)
    for _ in range(2):
        with alarm(0.02, ring), pytest.raises(Rung) as caught:
            model.run(sizes(200_000, 100_000))
        assert "ring" in [entry.name for entry in caught.traceback]
        assert model.run(sizes(100, 10)) == []


def test_a_handler_that_returns_lets_it_go_on() -> None:
    """And it may run models itself."""
    heard: list[float] = []
    model = spinner(2)

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(time.monotonic())
        model.run(sizes(10, 10))

    begin = time.monotonic()
    with alarm(0.02, note), pytest.raises(Timeout):
        model.run(sizes(200_000, 100_000), timeout=0.6)
    assert len(heard) == 1
    assert heard[0] - begin < 0.6


def test_handlers_run_on_the_main_thread_only() -> None:
    """The run in another thread goes on, although the main thread's handler raised."""
    model, ended = spinner(1), list[BaseException]()

    def call() -> None:
        try:
            model.run(sizes(200_000, 100_000), timeout=0.3)
        except BaseException as error:  # noqa: BLE001
            ended.append(error)

    with alarm(0.05, ring), pytest.raises(Rung):
        threading.Thread(target=call).start()
        time.sleep(SOON)
    until(lambda: ended)
    assert isinstance(ended[0], Timeout)


def test_timeouts_of_several_threads_that_call_one_model() -> None:
    """Each has its own deadline, whoever has the pool."""
    model, wrong = spinner(2), list[object]()

    def call(number: int) -> None:
        for turn in range(6):
            begin = time.monotonic()
            try:
                if (number + turn) % 2:
                    model.run(sizes(2_000_000, 100_000), timeout=0.03)
                    wrong.append("no timeout")
                else:
                    model.run(sizes(50, 1000), timeout=30.0)
            except Timeout as error:
                if not (number + turn) % 2:
                    wrong.append(error)
            if time.monotonic() - begin > SOON:
                wrong.append("late")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on: "is multi-threaded"
def test_in_a_forked_child() -> None:
    model = endless()
    with pytest.raises(Timeout):
        model.run({}, timeout=0)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            model.run({}, timeout=0.03)
        except Timeout:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# --- the ticker -----------------------------------------------------------------------------------------------------


def ticks(pool: Pool) -> int:
    return ctypes.c_int64.from_address(pool.address + abi.POOL_TICK).value


def awake(pool: Pool) -> int:
    return ctypes.c_int32.from_address(pool.address + abi.POOL_AWAKE).value


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> LoadedImage:
    """Support functions whose ticker sleeps after a few milliseconds."""
    monkeypatch.setattr(abi, "TICK_MILLISECONDS", 1)
    monkeypatch.setattr(abi, "QUIET_TICKS", 5)
    return load_image([compile_text(DECLARATIONS + SCALE), compile_text(support_text(host_machine().value))])


def test_the_ticker_sleeps_and_is_woken(hasty: LoadedImage) -> None:
    pool = Pool()
    pool.watch(hasty)
    until(lambda: ticks(pool) > 0)
    until(lambda: awake(pool) == 0)
    time.sleep(0.01)
    before = ticks(pool)
    time.sleep(0.05)
    assert ticks(pool) == before
    context = np.zeros(abi.CONTEXT_BYTES // 8, np.int64)
    context[abi.CONTEXT_POOL // 8] = pool.address
    check = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int64)(hasty.symbol("tw_check"))
    assert not check(context.ctypes.data, 0), "a call that goes on wakes it, too"
    until(lambda: ticks(pool) > before + 2)
    pool.stop()


@pytest.mark.parametrize("asleep", [False, True])
def test_the_ticker_ends_with_its_pool(hasty: LoadedImage, asleep: bool) -> None:
    pool = Pool()
    pool.watch(hasty)
    if asleep:
        until(lambda: awake(pool) == 0)
    pool.stop()
    last = ticks(pool)
    pool.watch(hasty)
    time.sleep(0.02)
    assert ticks(pool) == last


def test_the_shared_ticker_has_a_pulse() -> None:
    spinner(1).run(sizes(1, 1))
    before = ticks(shared_pool())
    until(lambda: ticks(shared_pool()) > before)


def test_the_system_refuses_the_ticker() -> None:
    pool = Pool(system=Stingy(0))
    image = load_image([compile_text(DECLARATIONS + SCALE), support_object()])
    with pytest.warns(UserWarning, match="notice timeouts and signals at their end only"):
        pool.watch(image)
    pool.watch(image)
    pool.stop()
