"""LLVM IR text of the worker pool: parallel regions on several threads. ``support`` puts it into images.

The protocol, and its correctness argument, are in ``runtime.abi``; ``tests/runtime/test_pool_protocol.py`` checks a
model of it. How threads sleep and are woken is in ``systems`` (``Processor.waiting``, where there is no system).
"""

from tilewright.backend.cpu.processors import Processor
from tilewright.backend.cpu.systems import system_text
from tilewright.base.processors import System
from tilewright.runtime import abi


def pool_text(processor: Processor, system: System = System.LINUX) -> str:
    """Definitions of ``tw_parallel_for``, ``tw_worker`` and ``tw_stop``.

    They use ``tw_serial`` of ``support``, and ``tw_stopped`` of ``stop_text``.
    """
    parts = (
        processor.waiting or system_text(system, processor).waiting,
        _pause(processor),
        _chunk(),
        _drain(),
        _join(),
        _parallel_for(),
        _region(),
        _worker(processor),
        _stop(),
    )
    return "\n".join(parts)


def field(name: str, block: str, offset: int) -> str:
    """IR that sets ``%name`` to the address of a field of a block."""
    return f"%{name} = getelementptr i8, ptr %{block}, i64 {offset}"


def _pause(processor: Processor) -> str:
    return f"""\
define internal void @tw_pause() nounwind {processor.pause_attribute} {{
{processor.pause}
  ret void
}}
"""


def _job_test(ticket: str, seen: str, worker: str, tag: str) -> str:
    """``%may.TAG``: this ticket is of a job that this worker has not seen, and may help with. Also ``%epoch.TAG``."""
    limit_mask = (1 << abi.LIMIT_BITS) - 1
    return f"""\
  %epoch.{tag} = lshr i64 {ticket}, 32
  %unseen.{tag} = icmp ne i64 %epoch.{tag}, {seen}
  %shifted.{tag} = lshr i64 {ticket}, {abi.PARTS_BITS}
  %limit.{tag} = and i64 %shifted.{tag}, {limit_mask}
  %admitted.{tag} = icmp slt i64 {worker}, %limit.{tag}
  %may.{tag} = and i1 %unseen.{tag}, %admitted.{tag}"""


def _chunk() -> str:
    return f"""\
; One chunk; if the call lists its chunks, also who ran it, and when.
define internal void @tw_chunk(ptr %context, ptr %fn, ptr %arg, i64 %chunk, i64 %worker) nounwind {{
  {field("list.at", "context", abi.CONTEXT_CHUNKS)}
  %list = load ptr, ptr %list.at
  %off = icmp eq ptr %list, null
  br i1 %off, label %plain, label %timed
plain:
  call void %fn(ptr %arg, i64 %chunk, i64 %worker)
  ret void
timed:
  %begin = call i64 @tw_now()
  call void %fn(ptr %arg, i64 %chunk, i64 %worker)
  %end = call i64 @tw_now()
  %place = atomicrmw add ptr %list, i64 1 monotonic, align 8
  %room.at = getelementptr i64, ptr %list, i64 1
  %room = load i64, ptr %room.at
  %fits = icmp ult i64 %place, %room
  br i1 %fits, label %note, label %done
note:
  %words = mul i64 %place, 3
  %entries = getelementptr i64, ptr %list, i64 2
  %worker.at = getelementptr i64, ptr %entries, i64 %words
  store i64 %worker, ptr %worker.at
  %begin.at = getelementptr i64, ptr %worker.at, i64 1
  store i64 %begin, ptr %begin.at
  %end.at = getelementptr i64, ptr %worker.at, i64 2
  store i64 %end, ptr %end.at
  br label %done
done:
  ret void
}}
"""


def _drain() -> str:
    parts_mask, half_mask = (1 << abi.PARTS_BITS) - 1, (1 << abi.POSITION_BITS) - 1
    return f"""\
; Claims and runs chunks of the ticket's job until none is left: this worker's own part from its first chunk on, and
; then those of the others, from their last one back. Returns how many; they still count as pending. Chunks of a call
; that is to end are claimed, and not run.
define internal i32 @tw_drain(ptr %pool, i64 %ticket, i64 %worker) nounwind {{
entry:
  {field("parts.at", "pool", abi.POOL_PARTS)}
  %epoch = lshr i64 %ticket, 32
  %parts = and i64 %ticket, {parts_mask}
  %first = urem i64 %worker, %parts
  br label %part
part:
  %number = phi i64 [ %first, %entry ], [ %following, %next ]
  %passed = phi i64 [ 0, %entry ], [ %passed.next, %next ]
  %before = phi i32 [ 0, %entry ], [ %ran, %next ]
  %offset = mul i64 %number, {abi.PART_BYTES}
  %part.at = getelementptr i8, ptr %parts.at, i64 %offset
  {field("fn.at", "part.at", abi.PART_FN)}
  {field("arg.at", "part.at", abi.PART_ARG)}
  {field("base.at", "part.at", abi.PART_BASE)}
  {field("context.at", "part.at", abi.PART_CONTEXT)}
  %own = icmp eq i64 %number, %worker
  br label %look
look:
  %ran = phi i32 [ %before, %part ], [ %ran, %claim ], [ %more, %ended ]
  %word = load atomic i64, ptr %part.at acquire, align 8
  %of = lshr i64 %word, 32
  %current = icmp eq i64 %of, %epoch
  %shifted = lshr i64 %word, {abi.POSITION_BITS}
  %begin = and i64 %shifted, {half_mask}
  %beyond = and i64 %word, {half_mask}
  %open = icmp ult i64 %begin, %beyond
  %may = and i1 %current, %open
  br i1 %may, label %claim, label %next
claim:
  %fn = load atomic ptr, ptr %fn.at monotonic, align 8
  %arg = load atomic ptr, ptr %arg.at monotonic, align 8
  %base = load atomic i64, ptr %base.at monotonic, align 8
  %context = load atomic ptr, ptr %context.at monotonic, align 8
  %last = sub i64 %beyond, 1
  %position = select i1 %own, i64 %begin, i64 %last
  %change = select i1 %own, i64 {1 << abi.POSITION_BITS}, i64 -1
  %taken = add i64 %word, %change
  %pair = cmpxchg ptr %part.at, i64 %word, i64 %taken acq_rel monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %mine, label %look
mine:
  %stop = call i1 @tw_stopped(ptr %context, i64 %worker)
  br i1 %stop, label %ended, label %run
run:
  %chunk = add i64 %base, %position
  call void @tw_chunk(ptr %context, ptr %fn, ptr %arg, i64 %chunk, i64 %worker)
  br label %ended
ended:
  %more = add i32 %ran, 1
  br label %look
next:
  %passed.next = add i64 %passed, 1
  %after = add i64 %number, 1
  %wrapped = icmp eq i64 %after, %parts
  %following = select i1 %wrapped, i64 0, i64 %after
  %again = icmp ult i64 %passed.next, %parts
  br i1 %again, label %part, label %done
done:
  ret i32 %ran
}}
"""


def _join() -> str:
    return f"""\
; The caller waits until no chunk is pending: spin, then sleep, and look at each tick whether the call is to end.
define internal void @tw_join(ptr %pool, ptr %context) nounwind {{
entry:
  {field("pending.at", "pool", abi.POOL_PENDING)}
  {field("waiter.at", "pool", abi.POOL_WAITER)}
  {field("spins.at", "pool", abi.POOL_SPINS)}
  %spins = load i32, ptr %spins.at
  br label %spin
spin:
  %spun = phi i32 [ 0, %entry ], [ %spun.next, %again ]
  %pending = load atomic i32, ptr %pending.at acquire, align 4
  %finished = icmp eq i32 %pending, 0
  br i1 %finished, label %done, label %again
again:
  call void @tw_pause()
  %spun.next = add i32 %spun, 1
  %keep = icmp ult i32 %spun.next, %spins
  br i1 %keep, label %spin, label %announce
announce:
  store atomic i32 1, ptr %waiter.at seq_cst, align 4
  br label %check
check:
  %left = load atomic i32, ptr %pending.at seq_cst, align 4
  %over = icmp eq i32 %left, 0
  br i1 %over, label %awake, label %sleep
sleep:
  call void @tw_nap(ptr %pending.at, i32 %left)
  %stop = call i1 @tw_stopped(ptr %context, i64 0)
  br label %check
awake:
  store atomic i32 0, ptr %waiter.at monotonic, align 4
  br label %done
done:
  ret void
}}
"""


def _parallel_for() -> str:
    batch = (1 << abi.POSITION_BITS) - 1
    return f"""\
define hidden void @tw_parallel_for(ptr %context, ptr %fn, ptr %arg, i64 %n) nounwind {{
entry:
  %bare = icmp eq ptr %context, null
  %few = icmp slt i64 %n, 2
  %alone = or i1 %bare, %few
  br i1 %alone, label %serial, label %look
look:
  {field("pool.at", "context", abi.CONTEXT_POOL)}
  %pool = load ptr, ptr %pool.at
  {field("threads.at", "context", abi.CONTEXT_THREADS)}
  %threads = load i64, ptr %threads.at
  %poolless = icmp eq ptr %pool, null
  %single = icmp slt i64 %threads, 2
  %nobody = or i1 %poolless, %single
  br i1 %nobody, label %serial, label %staffed
staffed:
  {field("workers.at", "pool", abi.POOL_WORKERS)}
  %workers = load atomic i32, ptr %workers.at monotonic, align 4
  %empty = icmp eq i32 %workers, 0
  br i1 %empty, label %serial, label %take
take:
  {field("busy.at", "pool", abi.POOL_BUSY)}
  %pair = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %mine, label %batch, label %serial
serial:
  call void @tw_serial(ptr %context, ptr %fn, ptr %arg, i64 %n)
  ret void

batch:
  %base = phi i64 [ 0, %take ], [ %base.next, %batch ]
  %rest = sub i64 %n, %base
  %fits = icmp ult i64 %rest, {batch}
  %count = select i1 %fits, i64 %rest, i64 {batch}
  call void @tw_region(ptr %context, ptr %fn, ptr %arg, i64 %base, i64 %count, i64 %threads, i32 %workers)
  %base.next = add i64 %base, %count
  %more = icmp ult i64 %base.next, %n
  br i1 %more, label %batch, label %free
free:
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
}}
"""


def _region() -> str:
    return f"""\
; One job from start to end, by the owner of the pool.
define internal void @tw_region(ptr %context, ptr %fn, ptr %arg, i64 %base, i64 %count, i64 %threads, i32 %workers)
    nounwind {{
entry:
  {field("pool.at", "context", abi.CONTEXT_POOL)}
  %pool = load ptr, ptr %pool.at
  {field("pending.at", "pool", abi.POOL_PENDING)}
  %pending = trunc i64 %count to i32
  store atomic i32 %pending, ptr %pending.at monotonic, align 4

  %last = load atomic i64, ptr %pool monotonic, align 8
  %epoch = lshr i64 %last, 32
  %epoch.next = add i64 %epoch, 1
  %epoch.bits = shl i64 %epoch.next, 32
  %huge = icmp ugt i64 %threads, {abi.MAX_THREADS}
  %limit = select i1 %huge, i64 {abi.MAX_THREADS}, i64 %threads
  %workers.wide = zext i32 %workers to i64
  %there = add i64 %workers.wide, 1
  %short = icmp ult i64 %there, %limit
  %staff = select i1 %short, i64 %there, i64 %limit
  %few = icmp ult i64 %count, %staff
  %parts = select i1 %few, i64 %count, i64 %staff
  {field("parts.at", "pool", abi.POOL_PARTS)}
  br label %part
part:
  %number = phi i64 [ 0, %entry ], [ %number.next, %part ]
  %from = phi i64 [ 0, %entry ], [ %to, %part ]
  %number.next = add i64 %number, 1
  %scaled = mul i64 %number.next, %count
  %to = udiv i64 %scaled, %parts
  %from.bits = shl i64 %from, {abi.POSITION_BITS}
  %range = or i64 %from.bits, %to
  %word = or i64 %epoch.bits, %range
  %offset = mul i64 %number, {abi.PART_BYTES}
  %part.at = getelementptr i8, ptr %parts.at, i64 %offset
  {field("fn.at", "part.at", abi.PART_FN)}
  store atomic ptr %fn, ptr %fn.at monotonic, align 8
  {field("arg.at", "part.at", abi.PART_ARG)}
  store atomic ptr %arg, ptr %arg.at monotonic, align 8
  {field("base.at", "part.at", abi.PART_BASE)}
  store atomic i64 %base, ptr %base.at monotonic, align 8
  {field("context.at", "part.at", abi.PART_CONTEXT)}
  store atomic ptr %context, ptr %context.at monotonic, align 8
  store atomic i64 %word, ptr %part.at release, align 8
  %more = icmp ult i64 %number.next, %parts
  br i1 %more, label %part, label %publish
publish:
  %limit.bits = shl i64 %limit, {abi.PARTS_BITS}
  %job.bits = or i64 %limit.bits, %parts
  %ticket = or i64 %epoch.bits, %job.bits
  store atomic i64 %ticket, ptr %pool seq_cst, align 8

  {field("sleepers.at", "pool", abi.POOL_SLEEPERS)}
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  {field("wake.at", "pool", abi.POOL_WAKE)}
  %woken = atomicrmw add ptr %wake.at, i32 1 seq_cst, align 4
  ; Sleepers have no order: if some of them are not admitted, wake them all; else as many as there are chunks.
  %all = icmp ugt i64 %limit, %workers.wide
  %helpers = sub i32 %pending, 1
  %wanted = select i1 %all, i32 %helpers, i32 {abi.MAX_THREADS}
  call void @tw_wake(ptr %wake.at, i32 %wanted)
  br label %work
work:
  %ran = call i32 @tw_drain(ptr %pool, i64 %ticket, i64 0)
  %before = atomicrmw sub ptr %pending.at, i32 %ran acq_rel, align 4
  %done = icmp eq i32 %before, %ran
  br i1 %done, label %end, label %wait
wait:
  call void @tw_join(ptr %pool, ptr %context)
  br label %end
end:
  ret void
}}
"""


def _worker(processor: Processor) -> str:
    return f"""\
; A thread of the pool: spin for a job, run chunks, report them; sleep after a while without.
define hidden ptr @tw_worker(ptr %slot) nounwind {{
entry:
{processor.save}
  %pool = load ptr, ptr %slot
  {field("id.at", "slot", 8)}
  %id = load i64, ptr %id.at
  {field("pending.at", "pool", abi.POOL_PENDING)}
  {field("waiter.at", "pool", abi.POOL_WAITER)}
  {field("wake.at", "pool", abi.POOL_WAKE)}
  {field("sleepers.at", "pool", abi.POOL_SLEEPERS)}
  {field("stop.at", "pool", abi.POOL_STOP)}
  {field("spins.at", "pool", abi.POOL_SPINS)}
  %spins = load i32, ptr %spins.at
  br label %idle
{_spin_for_a_job()}

{_sleep()}

{_run_chunks()}
exit:
  ret ptr null
}}
"""


def _spin_for_a_job() -> str:
    """From ``idle`` to ``work``, ``exit``, or after a while without a job ``tired``."""
    return f"""\
idle:
  %seen = phi i64 [ 0, %entry ], [ %seen, %awake ], [ %epoch.t, %work ], [ %epoch.t, %report ], [ %epoch.t, %look ],
    [ %epoch.t, %call ]
  br label %spin
spin:
  %spun = phi i32 [ 0, %idle ], [ %spun.next, %again ]
  %ticket = load atomic i64, ptr %pool acquire, align 8
{_job_test("%ticket", "%seen", "%id", "t")}
  br i1 %may.t, label %work, label %rest
rest:
  %stop = load atomic i32, ptr %stop.at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %exit, label %again
again:
  call void @tw_pause()
  %spun.next = add i32 %spun, 1
  %keep = icmp ult i32 %spun.next, %spins
  br i1 %keep, label %spin, label %tired"""


def _sleep() -> str:
    """From ``tired`` to ``idle``, woken if need be."""
    return f"""\
tired:
  ; Announce first, look again after: the publisher stores its ticket first and looks for sleepers after.
  %calls = load atomic i32, ptr %wake.at seq_cst, align 4
  %slept = atomicrmw add ptr %sleepers.at, i32 1 seq_cst, align 4
  %ticket.late = load atomic i64, ptr %pool seq_cst, align 8
{_job_test("%ticket.late", "%seen", "%id", "l")}
  %stop.late = load atomic i32, ptr %stop.at seq_cst, align 4
  %stopped.late = icmp ne i32 %stop.late, 0
  %stay = or i1 %may.l, %stopped.late
  br i1 %stay, label %awake, label %sleep
sleep:
  call void @tw_wait(ptr %wake.at, i32 %calls)
  br label %awake
awake:
  %risen = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst, align 4
  br label %idle"""


def _run_chunks() -> str:
    """From ``work`` to ``idle``: who reports the last chunk wakes the caller."""
    return """\
work:
  %ran = call i32 @tw_drain(ptr %pool, i64 %ticket, i64 %id)
  %none = icmp eq i32 %ran, 0
  br i1 %none, label %idle, label %report
report:
  %before = atomicrmw sub ptr %pending.at, i32 %ran seq_cst, align 4
  %last = icmp eq i32 %before, %ran
  br i1 %last, label %look, label %idle
look:
  %waiter = load atomic i32, ptr %waiter.at seq_cst, align 4
  %waited = icmp ne i32 %waiter, 0
  br i1 %waited, label %call, label %idle
call:
  call void @tw_wake(ptr %pending.at, i32 1)
  br label %idle"""


def _stop() -> str:
    return f"""\
define hidden void @tw_stop(ptr %pool) nounwind {{
  {field("stop.at", "pool", abi.POOL_STOP)}
  store atomic i32 1, ptr %stop.at seq_cst, align 4
  {field("wake.at", "pool", abi.POOL_WAKE)}
  %woken = atomicrmw add ptr %wake.at, i32 1 seq_cst, align 4
  call void @tw_wake(ptr %wake.at, i32 {abi.MAX_THREADS})
  {field("awake.at", "pool", abi.POOL_AWAKE)}
  %risen = atomicrmw xchg ptr %awake.at, i32 2 seq_cst, align 4
  call void @tw_wake(ptr %awake.at, i32 1)
  call void @tw_wake(ptr %stop.at, i32 1)
  ret void
}}
"""
