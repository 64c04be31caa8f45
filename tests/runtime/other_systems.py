"""Images for other systems that run on Linux, on x86-64: what they import is made of Linux's own calls.

Code for Windows keeps its conventions of calls; thunks lead to its entries from those of Linux. Code for macOS has the
conventions of Linux. Their kernels, pools, tickers and clocks are what those systems would run.
"""

import ctypes
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from tests.runtime.images import compile_text
from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base.processors import System
from tilewright.runtime import abi
from tilewright.runtime.interrupts import hooks
from tilewright.runtime.loader import load_image
from tilewright.runtime.pool import Pool
from tilewright.target.target import Target

WINDOWS = Target.parse("x86_64-windows")

_CALLS = """
declare i64 @syscall(i64, ...)

define internal void @futex_wait(ptr %word, i32 %value, i64 %nanoseconds) nounwind {
  %time = alloca [2 x i64]
  store i64 0, ptr %time
  %rest = getelementptr i64, ptr %time, i64 1
  store i64 %nanoseconds, ptr %rest
  %endless = icmp eq i64 %nanoseconds, 0
  %limit = select i1 %endless, ptr null, ptr %time
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 128, i32 %value, ptr %limit, ptr null, i32 0)
  ret void
}

define internal void @futex_wake(ptr %word, i1 %all) nounwind {
  %count = select i1 %all, i32 2147483647, i32 1
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

define internal i64 @monotonic() nounwind {
  %time = alloca [2 x i64]
  %r = call i64 (i64, ...) @syscall(i64 228, i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}
"""

# The clock counts thirds of a microsecond.
_OF_WINDOWS = """
define win64cc i32 @WaitOnAddress(ptr %word, ptr %same, i64 %size, i32 %milliseconds) nounwind {
  %whole = icmp eq i64 %size, 4
  %waits = icmp ne i32 %milliseconds, 0
  %right = and i1 %whole, %waits
  br i1 %right, label %wait, label %wrong
wait:
  %value = load i32, ptr %same
  %endless = icmp eq i32 %milliseconds, -1
  %wide = zext i32 %milliseconds to i64
  %scaled = mul i64 %wide, 1000000
  %nanoseconds = select i1 %endless, i64 0, i64 %scaled
  call void @futex_wait(ptr %word, i32 %value, i64 %nanoseconds)
  ret i32 1
wrong:
  call void @llvm.trap()
  unreachable
}
declare void @llvm.trap()

define win64cc void @WakeByAddressSingle(ptr %word) nounwind {
  call void @futex_wake(ptr %word, i1 0)
  ret void
}

define win64cc void @WakeByAddressAll(ptr %word) nounwind {
  call void @futex_wake(ptr %word, i1 1)
  ret void
}

define win64cc i32 @QueryPerformanceCounter(ptr %count) nounwind {
  %now = call i64 @monotonic()
  %three = mul i64 %now, 3
  %thirds = udiv i64 %three, 1000
  store i64 %thirds, ptr %count
  ret i32 1
}

define win64cc i32 @QueryPerformanceFrequency(ptr %rate) nounwind {
  store i64 3000000, ptr %rate
  ret i32 1
}

; Touches the pages of a large frame; Linux needs none of it.
define void @__chkstk() nounwind {
  ret void
}
"""

_OF_MACOS = """
define i32 @__ulock_wait(i32 %operation, ptr %word, i64 %value, i32 %microseconds) nounwind {
  %right = icmp eq i32 %operation, 16777217
  br i1 %right, label %wait, label %wrong
wait:
  %narrow = trunc i64 %value to i32
  %wide = zext i32 %microseconds to i64
  %nanoseconds = mul i64 %wide, 1000
  call void @futex_wait(ptr %word, i32 %narrow, i64 %nanoseconds)
  ret i32 0
wrong:
  call void @llvm.trap()
  unreachable
}
declare void @llvm.trap()

define i32 @__ulock_wake(i32 %operation, ptr %word, i64 %unused) nounwind {
  %kind = and i32 %operation, -257
  %right = icmp eq i32 %kind, 16777217
  br i1 %right, label %wake, label %wrong
wake:
  %all = icmp ne i32 %operation, %kind
  call void @futex_wake(ptr %word, i1 %all)
  ret i32 0
wrong:
  call void @llvm.trap()
  unreachable
}

define i32 @clock_gettime(i32 %clock, ptr %time) nounwind {
  %right = icmp eq i32 %clock, 8
  br i1 %right, label %tell, label %wrong
tell:
  %now = call i64 @monotonic()
  %seconds = udiv i64 %now, 1000000000
  %rest = urem i64 %now, 1000000000
  store i64 %seconds, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  store i64 %rest, ptr %rest.at
  ret i32 0
wrong:
  call void @llvm.trap()
  unreachable
}

define i32 @pthread_main_np() nounwind {
  %process = call i64 (i64, ...) @syscall(i64 39)
  %thread = call i64 (i64, ...) @syscall(i64 186)
  %main = icmp eq i64 %process, %thread
  %found = zext i1 %main to i32
  ret i32 %found
}
"""

_ENTRIES = {"tw_enter": ("i32", 1), "tw_worker": ("ptr", 1), "tw_ticker": ("ptr", 1), "tw_stop": ("void", 1)}
TORTURED = {"torture": ("i64", 4)}
"""Entries of ``images.TORTURE``: type of the result, number of arguments of 64 bits."""


def objects_for(system: System, text: str, entries: dict[str, tuple[str, int]] | None = None) -> list[bytes]:
    """An image of ``text`` for a system, and what it needs to run on Linux; ``entries``: functions of it to be called
    from outside."""
    support = support_text("x86_64", system)
    if system is System.MACOS:
        return [compile_text(DECLARATIONS + text), compile_text(support), compile_text(_CALLS + _OF_MACOS)]
    own = [compile_object(_renamed(DECLARATIONS + text, entries or {}), WINDOWS)]
    return [*own, *windows_support(), compile_text(_thunks(entries or {}))]


@cache
def windows_support() -> tuple[bytes, ...]:
    """The support functions for Windows, thunks to them, and what they import."""
    support = compile_object(_renamed(support_text("x86_64", System.WINDOWS), _ENTRIES), WINDOWS)
    return support, compile_text(_thunks(_ENTRIES)), compile_text(_CALLS + _OF_WINDOWS)


def _renamed(text: str, entries: dict[str, tuple[str, int]]) -> str:
    return re.sub(rf"@({'|'.join(entries)})\(", r"@windows_\1(", text) if entries else text


def _thunks(entries: dict[str, tuple[str, int]]) -> str:
    """Functions of Linux that call those of Windows."""
    found: list[str] = []
    for name, (result, count) in entries.items():
        given = ", ".join(f"i64 %{i}" for i in range(count))
        kept, back = ("", "ret void") if result == "void" else ("%r = ", f"ret {result} %r")
        found.append(f"declare win64cc {result} @windows_{name}({', '.join(['i64'] * count)})")
        found.append(f"define {result} @{name}({given}) nounwind {{")
        found.append(f"entry:\n  {kept}call win64cc {result} @windows_{name}({given})\n  {back}\n}}")
    return "\n".join(found)


@contextmanager
def pool_for(system: System) -> Generator[Pool]:
    """A pool whose functions of CPython have the convention of ``system``. That of the process may run Linux's code."""
    pool = Pool()
    image = load_image([compile_text(_hook_thunks())])
    if system is System.WINDOWS:
        words = (ctypes.c_uint64 * 4).from_address(pool.address + abi.POOL_HOOKS)
        words[:] = [image.symbol(name) for name in _HOOKS]
    try:
        yield pool
    finally:
        pool.stop()


_HOOKS = {"ensure": ("i32", 0), "release": ("void", 1), "check": ("i32", 0), "fetch": ("void", 3)}


def _hook_thunks() -> str:
    found: list[str] = []
    for (name, (result, count)), address in zip(_HOOKS.items(), hooks(), strict=True):
        given = ", ".join(f"i64 %{i}" for i in range(count))
        kept, back = ("", "ret void") if result == "void" else ("%r = ", f"ret {result} %r")
        function = f"inttoptr (i64 {address} to ptr)"
        found.append(f"define win64cc {result} @{name}({given}) nounwind {{")
        found.append(f"entry:\n  {kept}call {result} {function}({given})\n  {back}\n}}")
    return "\n".join(found)
