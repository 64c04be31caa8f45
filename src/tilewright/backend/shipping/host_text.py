"""LLVM IR of parallel regions on threads of the caller: ``docs/emit.md`` has the contract of its function."""

from tilewright.backend.cpu.pool_text import field
from tilewright.backend.cpu.processors import Processor
from tilewright.runtime import abi


def host_text(processor: Processor) -> str:
    """The definition of ``tw_parallel_for``; it uses ``tw_serial`` of ``support``.

    The context's pool is two pointers: the caller's function, and its first argument. Each chunk runs in the default
    floating-point mode, as a thread of the caller may have another one.
    """
    return f"""\
define hidden void @tw_parallel_for(ptr %context, ptr %fn, ptr %arg, i64 %n) nounwind {{
  %job = alloca [2 x ptr]
  {field("pool.at", "context", abi.CONTEXT_POOL)}
  %pool = load ptr, ptr %pool.at
  {field("threads.at", "context", abi.CONTEXT_THREADS)}
  %threads = load i64, ptr %threads.at
  %nobody = icmp eq ptr %pool, null
  %single = icmp slt i64 %threads, 2
  %few = icmp slt i64 %n, 2
  %poor = or i1 %nobody, %single
  %alone = or i1 %poor, %few
  br i1 %alone, label %serial, label %ask
serial:
  call void @tw_serial(ptr %context, ptr %fn, ptr %arg, i64 %n)
  ret void
ask:
  store ptr %fn, ptr %job
  %arg.at = getelementptr ptr, ptr %job, i64 1
  store ptr %arg, ptr %arg.at
  %run = load ptr, ptr %pool
  %host.at = getelementptr ptr, ptr %pool, i64 1
  %host = load ptr, ptr %host.at
  call void %run(ptr %host, ptr @tw_task, ptr %job, i64 %n)
  ret void
}}

define internal void @tw_task(ptr %job, i64 %chunk, i64 %worker) nounwind {{
{processor.save}
  %fn = load ptr, ptr %job
  %arg.at = getelementptr ptr, ptr %job, i64 1
  %arg = load ptr, ptr %arg.at
  call void %fn(ptr %arg, i64 %chunk, i64 %worker)
{processor.restore}
  ret void
}}
"""
