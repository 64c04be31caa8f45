"""LLVM IR text of the support functions that every image carries: parallel regions, scratch, errors, time, stopping.

Their semantics, and the layout of the blocks that they share with Python, are in ``runtime.abi``. The text is generated
without llvmlite. ``support_text`` gives the definitions (once per image); ``DECLARATIONS`` is for other modules of the
same image. The functions are hidden: calls inside an image are direct, and images do not interfere.

The pool itself is in ``pool_text``, how calls are stopped in ``stop_text``, what differs between processors in
``processors``, and between operating systems in ``systems``.
"""

from tilewright.backend.cpu.pool_text import field, pool_text
from tilewright.backend.cpu.processors import PROCESSORS, UNKNOWN, Processor
from tilewright.backend.cpu.stop_text import NO_STOP, stop_text
from tilewright.backend.cpu.systems import system_text
from tilewright.base.errors import UnsupportedTarget
from tilewright.base.processors import System
from tilewright.runtime import abi

DECLARATIONS = """\
declare hidden void @tw_parallel_for(ptr, ptr, ptr, i64)
declare hidden ptr @tw_scratch(ptr, i64)
declare hidden void @tw_fail(ptr, i64, i64, i64, i64)
declare hidden void @tw_mark(ptr, i64)
declare hidden i1 @tw_check(ptr, i64) cold
"""

RUN = f"""\
declare hidden i32 @{abi.MAIN}(ptr, ptr, ptr, ptr)
declare hidden i32 @{abi.ENTER}(ptr)

define hidden i32 @tw_run(ptr %context) nounwind {{
  {field("main.at", "context", abi.CONTEXT_MAIN)}
  store ptr @{abi.MAIN}, ptr %main.at
  %code = call i32 @{abi.ENTER}(ptr %context)
  ret i32 %code
}}
"""
"""``tw_run``: ``tw_enter`` with the image's own main, for who knows no address of it."""


def support_text(arch: str, system: System = System.LINUX, threads: bool = True, regions: str = "") -> str:
    """Definitions of all support functions for a target, as LLVM IR text without triple or data layout.

    ``arch`` is ``x86_64``, ``aarch64`` or ``riscv64``; with ``threads=False``, any architecture: regions are then plain
    loops, or what the text ``regions`` makes of them: a definition of ``tw_parallel_for``, which may use ``tw_serial``.
    Raises ``UnsupportedTarget`` for a target on which the pool can't wait.
    """
    if threads and arch not in PROCESSORS:
        raise UnsupportedTarget(
            f"no worker pool for {arch} (there is one for {', '.join(PROCESSORS)}); use threads=False"
        )
    processor = PROCESSORS.get(arch, UNKNOWN)
    regions = pool_text(processor, system) if threads else regions or _PLAIN_PARALLEL_FOR
    stops, mark = (stop_text(system_text(system, processor)), _mark()) if threads else (NO_STOP, _NO_MARK)
    return "\n".join((processor.declarations, _common(), _enter(processor), mark, _SERIAL, stops, regions))


def _common() -> str:
    """Version, scratch and errors: equal for all targets."""
    return f"""\
@tw_abi_version = hidden constant i32 {abi.VERSION}

define hidden ptr @tw_scratch(ptr %context, i64 %worker) nounwind {{
  {field("base.at", "context", abi.CONTEXT_SCRATCH)}
  %base = load ptr, ptr %base.at
  {field("stride.at", "context", abi.CONTEXT_SCRATCH_STRIDE)}
  %stride = load i64, ptr %stride.at
  %offset = mul i64 %stride, %worker
  %slice = getelementptr i8, ptr %base, i64 %offset
  ret ptr %slice
}}

; The first error wins the cmpxchg; main reads the rest only after the region's join.
define hidden void @tw_fail(ptr %context, i64 %code, i64 %site, i64 %value, i64 %bound) nounwind cold noinline {{
  %none = icmp eq ptr %context, null
  br i1 %none, label %done, label %try
try:
  {field("code.at", "context", abi.CONTEXT_CODE)}
  %pair = cmpxchg ptr %code.at, i64 0, i64 %code monotonic monotonic
  %first = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %first, label %record, label %done
record:
  {field("site.at", "context", abi.CONTEXT_SITE)}
  {field("first.at", "context", abi.CONTEXT_FIRST_SITE)}
  %first.site = load i64, ptr %first.at
  %whole.site = add i64 %first.site, %site
  store i64 %whole.site, ptr %site.at
  {field("value.at", "context", abi.CONTEXT_VALUE)}
  store i64 %value, ptr %value.at
  {field("bound.at", "context", abi.CONTEXT_BOUND)}
  store i64 %bound, ptr %bound.at
  br label %done
done:
  ret void
}}
"""


def _enter(processor: Processor) -> str:
    return f"""\
define hidden i32 @tw_enter(ptr %context) nounwind {{
{processor.save}
  {field("main.at", "context", abi.CONTEXT_MAIN)}
  %main = load ptr, ptr %main.at
  {field("buffers.at", "context", abi.CONTEXT_BUFFERS)}
  %buffers = load ptr, ptr %buffers.at
  {field("dims.at", "context", abi.CONTEXT_DIMS)}
  %dims = load ptr, ptr %dims.at
  {field("workspace.at", "context", abi.CONTEXT_WORKSPACE)}
  %workspace = load ptr, ptr %workspace.at
  %over = call i1 @tw_begin(ptr %context)
  br i1 %over, label %late, label %run
late:
  br label %end
run:
  %ran = call i32 %main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context)
  br label %end
end:
  %code = phi i32 [ {abi.ErrorCode.CANCELLED.value}, %late ], [ %ran, %run ]
  %result = call i32 @tw_end(ptr %context, i32 %code)
{processor.restore}
  ret i32 %result
}}
"""


def _mark() -> str:
    return f"""\
define hidden void @tw_mark(ptr %context, i64 %slot) nounwind {{
  {field("times.at", "context", abi.CONTEXT_TIMES)}
  %times = load ptr, ptr %times.at
  %off = icmp eq ptr %times, null
  br i1 %off, label %done, label %read
read:
  %now = call i64 @tw_now()
  %last = load i64, ptr %times
  %passed = sub i64 %now, %last
  %slot.at = getelementptr i64, ptr %times, i64 %slot
  %before = load i64, ptr %slot.at
  %after = add i64 %before, %passed
  store i64 %after, ptr %slot.at
  store i64 %now, ptr %times
  br label %done
done:
  ret void
}}
"""


_NO_MARK = """\
define hidden void @tw_mark(ptr %context, i64 %slot) nounwind {
  ret void
}
"""

_SERIAL = """\
; All chunks on the calling thread, as worker 0.
define internal void @tw_serial(ptr %context, ptr %fn, ptr %arg, i64 %n) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %chunk = phi i64 [ 0, %0 ], [ %next, %run ]
  %stop = call i1 @tw_stopped(ptr %context, i64 0)
  br i1 %stop, label %done, label %run
run:
  call void %fn(ptr %arg, i64 %chunk, i64 0)
  %next = add i64 %chunk, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

_PLAIN_PARALLEL_FOR = """\
define hidden void @tw_parallel_for(ptr %context, ptr %fn, ptr %arg, i64 %n) nounwind {
  call void @tw_serial(ptr %context, ptr %fn, ptr %arg, i64 %n)
  ret void
}
"""
