"""System-specific parts of the support functions: waiting, the clock, and which thread is the main one.

A new system needs an entry in ``_SYSTEMS``; ``runtime.system`` has what Python asks of it, and the list of functions
that images may import. The clock is that of Python's ``time.perf_counter_ns``. Sources: Linux, ``futex(2)``; Apple,
``xnu/bsd/sys/ulock.h`` (what libc++ waits by; the documented ``os_sync_wait_on_address`` is of macOS 14.4) and
``clock_gettime(3)``; Microsoft, "WaitOnAddress" and "QueryPerformanceCounter".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.backend.cpu.processors import Processor
from tilewright.base.processors import System
from tilewright.runtime import abi

_SECOND = 1_000_000_000
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_ULOCK_WAIT, _ULOCK_WAKE_ONE, _ULOCK_WAKE_ALL = 0x01000001, 0x01000001, 0x01000101
"""Of 32 bits (``UL_COMPARE_AND_WAIT``), without touching ``errno``."""


@dataclass(frozen=True, slots=True)
class SystemText:
    """Pieces of LLVM IR.

    ``waiting``: definitions of ``tw_wait``, ``tw_nap`` and ``tw_wake``; ``clock``: of ``tw_now``. ``main_thread`` sets
    ``%main`` to whether this is the process's main thread.
    """

    waiting: str
    clock: str
    main_thread: str


def system_text(system: System, processor: Processor) -> SystemText:
    """The pieces for a system, on a processor."""
    return _SYSTEMS[system](processor)


def _linux(processor: Processor) -> SystemText:
    main_thread = f"""\
  %process = call i64 (i64, ...) @syscall(i64 {processor.getpid})
  %thread = call i64 (i64, ...) @syscall(i64 {processor.gettid})
  %main = icmp eq i64 %process, %thread"""
    return SystemText(_futex(processor), _posix_clock(1), main_thread)


def _futex(processor: Processor) -> str:
    """Sleep while a 32-bit word has a value, and wake the sleepers: the Linux futex."""
    unused = "ptr null, ptr null, i32 0"
    wait = f"i64 {processor.futex}, ptr %word, i32 {_FUTEX_WAIT_PRIVATE}, i32 %value, {unused}"
    nap = f"i64 {processor.futex}, ptr %word, i32 {_FUTEX_WAIT_PRIVATE}, i32 %value, ptr @tw_nap_time, ptr null, i32 0"
    wake = f"i64 {processor.futex}, ptr %word, i32 {_FUTEX_WAKE_PRIVATE}, i32 %count, {unused}"
    return f"""\
declare i64 @syscall(i64, ...)

; Returns at once if the word has another value, and may return for no reason.
define internal void @tw_wait(ptr %word, i32 %value) nounwind {{
  %r = call i64 (i64, ...) @syscall({wait})
  ret void
}}

@tw_nap_time = internal constant [2 x i64] [i64 0, i64 {abi.TICK_MILLISECONDS * 1_000_000}]

; The same, for a tick at most.
define internal void @tw_nap(ptr %word, i32 %value) nounwind {{
  %r = call i64 (i64, ...) @syscall({nap})
  ret void
}}

define internal void @tw_wake(ptr %word, i32 %count) nounwind {{
  %r = call i64 (i64, ...) @syscall({wake})
  ret void
}}
"""


def _posix_clock(number: int) -> str:
    return f"""\
declare i32 @clock_gettime(i32, ptr) nounwind

; Nanoseconds of clock number {number}: {"CLOCK_MONOTONIC" if number == 1 else "CLOCK_UPTIME_RAW"}.
define internal i64 @tw_now() nounwind {{
  %time = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 {number}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, {_SECOND}
  %now = add i64 %whole, %rest
  ret i64 %now
}}
"""


def _macos(processor: Processor) -> SystemText:
    del processor
    main_thread = """\
  %found.main = call i32 @pthread_main_np()
  %main = icmp eq i32 %found.main, 1"""
    return SystemText(_ULOCK, f"declare i32 @pthread_main_np() nounwind\n{_posix_clock(8)}", main_thread)


_ULOCK = f"""\
declare i32 @__ulock_wait(i32, ptr, i64, i32) nounwind
declare i32 @__ulock_wake(i32, ptr, i64) nounwind

; Returns at once if the word has another value, and may return for no reason. No time-out is 0.
define internal void @tw_wait(ptr %word, i32 %value) nounwind {{
  %wide = zext i32 %value to i64
  %r = call i32 @__ulock_wait(i32 {_ULOCK_WAIT}, ptr %word, i64 %wide, i32 0)
  ret void
}}

; The same, for a tick at most, in microseconds.
define internal void @tw_nap(ptr %word, i32 %value) nounwind {{
  %wide = zext i32 %value to i64
  %r = call i32 @__ulock_wait(i32 {_ULOCK_WAIT}, ptr %word, i64 %wide, i32 {abi.TICK_MILLISECONDS * 1000})
  ret void
}}

; One, or all of them: who wakes for nothing sleeps again.
define internal void @tw_wake(ptr %word, i32 %count) nounwind {{
  %one = icmp eq i32 %count, 1
  %how = select i1 %one, i32 {_ULOCK_WAKE_ONE}, i32 {_ULOCK_WAKE_ALL}
  %r = call i32 @__ulock_wake(i32 %how, ptr %word, i64 0)
  ret void
}}
"""


def _windows(processor: Processor) -> SystemText:
    """Windows knows no main thread; the interpreter, which is asked then, knows its own."""
    del processor
    return SystemText(_ON_ADDRESS, _PERFORMANCE_COUNTER, "  %main = icmp eq i32 0, 0")


_ON_ADDRESS = f"""\
declare i32 @WaitOnAddress(ptr, ptr, i64, i32) nounwind
declare void @WakeByAddressSingle(ptr) nounwind
declare void @WakeByAddressAll(ptr) nounwind

; Returns at once if the word has another value, and may return for no reason. -1: without a time-out.
define internal void @tw_wait(ptr %word, i32 %value) nounwind {{
  %same = alloca i32
  store i32 %value, ptr %same
  %r = call i32 @WaitOnAddress(ptr %word, ptr %same, i64 4, i32 -1)
  ret void
}}

; The same, for a tick at most, in milliseconds.
define internal void @tw_nap(ptr %word, i32 %value) nounwind {{
  %same = alloca i32
  store i32 %value, ptr %same
  %r = call i32 @WaitOnAddress(ptr %word, ptr %same, i64 4, i32 {abi.TICK_MILLISECONDS})
  ret void
}}

; One, or all of them: who wakes for nothing sleeps again.
define internal void @tw_wake(ptr %word, i32 %count) nounwind {{
  %one = icmp eq i32 %count, 1
  br i1 %one, label %single, label %all
single:
  call void @WakeByAddressSingle(ptr %word)
  ret void
all:
  call void @WakeByAddressAll(ptr %word)
  ret void
}}
"""

_PERFORMANCE_COUNTER = f"""\
declare i32 @QueryPerformanceCounter(ptr) nounwind
declare i32 @QueryPerformanceFrequency(ptr) nounwind

; Nanoseconds: whole seconds, and the rest, so that no product overflows.
define internal i64 @tw_now() nounwind {{
  %count.at = alloca i64
  %rate.at = alloca i64
  %r.count = call i32 @QueryPerformanceCounter(ptr %count.at)
  %r.rate = call i32 @QueryPerformanceFrequency(ptr %rate.at)
  %count = load i64, ptr %count.at
  %rate = load i64, ptr %rate.at
  %seconds = udiv i64 %count, %rate
  %left = urem i64 %count, %rate
  %scaled = mul i64 %left, {_SECOND}
  %rest = udiv i64 %scaled, %rate
  %whole = mul i64 %seconds, {_SECOND}
  %now = add i64 %whole, %rest
  ret i64 %now
}}
"""

_SYSTEMS: Mapping[System, Callable[[Processor], SystemText]] = {
    System.LINUX: _linux,
    System.MACOS: _macos,
    System.WINDOWS: _windows,
}
