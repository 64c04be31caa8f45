"""LLVM IR of the worker pool in WebAssembly: waiting is an instruction there (threads proposal)."""

from dataclasses import replace

from tilewright.backend.cpu.processors import UNKNOWN
from tilewright.backend.shipping.threads_text import pool_without_clock
from tilewright.runtime import abi

_WAITING = f"""\
declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)
declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)

; Returns at once if the word has another value.
define internal void @tw_wait(ptr %word, i32 %value) nounwind {{
  %r = call i32 @llvm.wasm.memory.atomic.wait32(ptr %word, i32 %value, i64 -1)
  ret void
}}

; The same, for a tick at most.
define internal void @tw_nap(ptr %word, i32 %value) nounwind {{
  %r = call i32 @llvm.wasm.memory.atomic.wait32(ptr %word, i32 %value, i64 {abi.TICK_MILLISECONDS * 1_000_000})
  ret void
}}

define internal void @tw_wake(ptr %word, i32 %count) nounwind {{
  %r = call i32 @llvm.wasm.memory.atomic.notify(ptr %word, i32 %count)
  ret void
}}
"""


def pool_for_wasm() -> str:
    """The worker pool."""
    return pool_without_clock(replace(UNKNOWN, waiting=_WAITING))
