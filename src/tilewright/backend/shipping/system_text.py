"""LLVM IR of what a program asks of Linux: reading, writing, opening, memory, processors.

It knows the system by one function, ``tw_system`` (``machine_code``), which makes a system call and returns its result,
or an error below 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.processors import Architecture


@dataclass(frozen=True, slots=True)
class _Calls:
    """The numbers of system calls."""

    read: int
    write: int
    openat: int
    mmap: int
    mprotect: int
    sched_getaffinity: int


_GENERIC = _Calls(63, 64, 56, 222, 226, 123)
_NUMBERS: Mapping[Architecture, _Calls] = {
    Architecture.X86_64: _Calls(0, 1, 257, 9, 10, 204),
    Architecture.AARCH64: _GENERIC,
    Architecture.RISCV64: _GENERIC,
}
_HERE, _INTERRUPTED = -100, -4
_READ_WRITE, _PRIVATE_ANONYMOUS_LAZY = 3, 0x4022
"""Of mmap; lazy (NORESERVE): most of a thread's stack is never used."""


def _call(number: int, *arguments: str) -> str:
    given = ", ".join((f"i64 {number}", *(f"i64 {one}" for one in arguments), *["i64 0"] * (6 - len(arguments))))
    return f"call i64 @tw_system({given})"


def system_text(arch: Architecture) -> str:
    """The definitions of ``@open``, ``@read``, ``@write``, ``@reserve``, ``@guard`` and ``@affinity``."""
    calls = _NUMBERS[arch]
    return f"""\
declare hidden i64 @tw_system(i64, i64, i64, i64, i64, i64, i64)

define internal i64 @open(ptr %path) nounwind {{
  %name = ptrtoint ptr %path to i64
  %file = {_call(calls.openat, str(_HERE), "%name")}
  ret i64 %file
}}

; How many bytes of ``size`` were read or written: fewer at the end of the file, and after an error.
define internal i64 @transfer(i64 %call, i64 %file, ptr %data, i64 %size) nounwind {{
entry:
  br label %look
look:
  %done = phi i64 [ 0, %entry ], [ %done, %again ], [ %done.next, %some ]
  %left = sub i64 %size, %done
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %move, label %end
move:
  %at = getelementptr i8, ptr %data, i64 %done
  %address = ptrtoint ptr %at to i64
  %moved = call i64 @tw_system(i64 %call, i64 %file, i64 %address, i64 %left, i64 0, i64 0, i64 0)
  %good = icmp sgt i64 %moved, 0
  br i1 %good, label %some, label %again
some:
  %done.next = add i64 %done, %moved
  br label %look
again:
  %interrupted = icmp eq i64 %moved, {_INTERRUPTED}
  br i1 %interrupted, label %look, label %end
end:
  ret i64 %done
}}

define internal i64 @read(i64 %file, ptr %data, i64 %size) nounwind {{
  %done = call i64 @transfer(i64 {calls.read}, i64 %file, ptr %data, i64 %size)
  ret i64 %done
}}

define internal i64 @write(i64 %file, ptr %data, i64 %size) nounwind {{
  %done = call i64 @transfer(i64 {calls.write}, i64 %file, ptr %data, i64 %size)
  ret i64 %done
}}

; Zeroed pages; null if there are none.
define internal ptr @reserve(i64 %size) nounwind {{
  %none = icmp eq i64 %size, 0
  %some = select i1 %none, i64 1, i64 %size
  %at = {_call(calls.mmap, "0", "%some", str(_READ_WRITE), str(_PRIVATE_ANONYMOUS_LAZY), "-1")}
  %failed = icmp ugt i64 %at, -4096
  %address = select i1 %failed, i64 0, i64 %at
  %pages = inttoptr i64 %address to ptr
  ret ptr %pages
}}

; Nobody may touch these pages.
define internal void @guard(ptr %pages, i64 %size) nounwind {{
  %at = ptrtoint ptr %pages to i64
  %done = {_call(calls.mprotect, "%at", "%size")}
  ret void
}}

; Fills a mask with a bit for each processor that this process may use.
define internal i64 @affinity(ptr %mask, i64 %size) nounwind {{
  %at = ptrtoint ptr %mask to i64
  %filled = {_call(calls.sched_getaffinity, "0", "%size", "%at")}
  ret i64 %filled
}}
"""
