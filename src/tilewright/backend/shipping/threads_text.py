"""LLVM IR of the threads of a program: Linux's, without the C library. They run the worker pool's code.

It uses ``@system`` of ``system_text``, ``tw_worker`` of ``pool_text``, and ``tw_spawn`` of ``machine_code``.
"""

from tilewright.backend.cpu.pool_text import field, pool_text
from tilewright.backend.cpu.processors import Processor
from tilewright.runtime import abi

_STACK_BYTES, _GUARD_BYTES = 8 << 20, 1 << 16
_MASK_BYTES = abi.MAX_THREADS // 8


def pool_without_clock(processor: Processor) -> str:
    """The worker pool where nobody lists chunks with their times."""
    return f"""\
{pool_text(processor)}
define internal i64 @tw_now() nounwind {{
  ret i64 0
}}
"""


def threads_text() -> str:
    """The definitions of ``@processors`` and ``@staff``."""
    return f"""\
@mask = internal global [{_MASK_BYTES // 8} x i64] zeroinitializer

; The processors that this process may use; 1 if the system does not say.
define internal i64 @processors() nounwind {{
entry:
  %filled = call i64 @affinity(ptr @mask, i64 {_MASK_BYTES})
  br label %word
word:
  %i = phi i64 [ 0, %entry ], [ %i.next, %counted ]
  %found = phi i64 [ 0, %entry ], [ %so.far, %counted ]
  %more = icmp ult i64 %i, {_MASK_BYTES // 8}
  br i1 %more, label %load, label %end
load:
  %at = getelementptr i64, ptr @mask, i64 %i
  %bits = load i64, ptr %at
  br label %bit
bit:
  %left = phi i64 [ %bits, %load ], [ %rest, %one ]
  %so.far = phi i64 [ %found, %load ], [ %one.more, %one ]
  %any = icmp ne i64 %left, 0
  br i1 %any, label %one, label %counted
one:
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %one.more = add i64 %so.far, 1
  br label %bit
counted:
  %i.next = add i64 %i, 1
  br label %word
end:
  %none = icmp eq i64 %found, 0
  %count = select i1 %none, i64 1, i64 %found
  ret i64 %count
}}

; A pool with ``threads`` - 1 threads, or as many as the system grants; null for a single one.
define internal ptr @staff(i64 %threads) nounwind {{
entry:
  %several = icmp ugt i64 %threads, 1
  br i1 %several, label %make, label %nobody
make:
  %pool = call ptr @reserve(i64 {abi.POOL_BYTES})
  %missing = icmp eq ptr %pool, null
  br i1 %missing, label %nobody, label %ready
ready:
  {field("spins.at", "pool", abi.POOL_SPINS)}
  store i32 {abi.DEFAULT_SPINS}, ptr %spins.at
  {field("workers.at", "pool", abi.POOL_WORKERS)}
  br label %look
look:
  %id = phi i64 [ 1, %ready ], [ %id.next, %started ]
  %more = icmp ult i64 %id, %threads
  br i1 %more, label %stack, label %done
stack:
  %bottom = call ptr @reserve(i64 {_STACK_BYTES})
  %refused = icmp eq ptr %bottom, null
  br i1 %refused, label %done, label %start
start:
  call void @guard(ptr %bottom, i64 {_GUARD_BYTES})
  %offset = mul i64 %id, {abi.SLOT_BYTES}
  {field("slots", "pool", abi.POOL_SLOTS)}
  %slot = getelementptr i8, ptr %slots, i64 %offset
  store ptr %pool, ptr %slot
  %id.at = getelementptr i8, ptr %slot, i64 8
  store i64 %id, ptr %id.at
  %top = getelementptr i8, ptr %bottom, i64 {_STACK_BYTES}
  %thread = call i64 @tw_spawn(ptr %top, ptr @tw_worker, ptr %slot)
  %failed = icmp slt i64 %thread, 0
  br i1 %failed, label %done, label %started
started:
  %id.next = add i64 %id, 1
  %count = trunc i64 %id to i32
  store atomic i32 %count, ptr %workers.at seq_cst, align 4
  br label %look
done:
  ret ptr %pool
nobody:
  ret ptr null
}}

declare hidden ptr @tw_worker(ptr)
declare hidden i64 @tw_spawn(ptr, ptr, ptr)
"""
