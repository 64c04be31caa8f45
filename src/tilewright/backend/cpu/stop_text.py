"""LLVM IR text for stopping a call: its begin and end, the poll of the tick, and the thread that counts ticks.

The protocol is in ``runtime.abi``, "Stopping a call". ``support`` puts this text into images; ``poll`` is the inlined
check of main and serial loops.
"""

from tilewright.backend.cpu.pool_text import field
from tilewright.backend.cpu.systems import SystemText
from tilewright.backend.cpu.text import FunctionText
from tilewright.runtime import abi


def poll(text: FunctionText, worker: str) -> None:
    """Return from the function here if its call is to end; ``worker``: the number of the current worker."""
    ticks_at = text.pure(f"getelementptr inbounds i8, ptr %context, i64 {abi.CONTEXT_TICKS}", 0)
    seen_at = text.pure(f"getelementptr inbounds i8, ptr %context, i64 {abi.CONTEXT_SEEN}", 0)
    ticks = text.pure(f"load ptr, ptr {ticks_at}", 0)
    tick = text.emit(f"load atomic i64, ptr {ticks} monotonic, align 8")
    seen = text.emit(f"load atomic i64, ptr {seen_at} monotonic, align 8")
    changed = text.emit(f"icmp ne i64 {tick}, {seen}")
    text.leave_if(changed, f"call i1 @tw_check(ptr %context, i64 {worker})")


def stop_text(system: SystemText) -> str:
    """Definitions of ``tw_begin``, ``tw_end``, ``tw_stopped``, ``tw_check`` and ``tw_ticker``.

    They use ``tw_fail`` of ``support``, and ``tw_nap``, ``tw_wait`` and ``tw_wake`` of ``pool_text``.
    """
    return "\n".join(
        (system.clock, _begin(), _end(), _stopped(), _stir(), _check(), _signals(system.main_thread), _ticker())
    )


def _begin() -> str:
    return f"""\
; Makes the context ready for a call; returns whether the call is over already.
define internal i1 @tw_begin(ptr %context) nounwind {{
  {field("code.at", "context", abi.CONTEXT_CODE)}
  store i64 0, ptr %code.at
  {field("seen.at", "context", abi.CONTEXT_SEEN)}
  {field("ticks.at", "context", abi.CONTEXT_TICKS)}
  {field("pool.at", "context", abi.CONTEXT_POOL)}
  %pool = load ptr, ptr %pool.at
  %poolless = icmp eq ptr %pool, null
  br i1 %poolless, label %alone, label %ticked
alone:
  store i64 0, ptr %seen.at
  store ptr %seen.at, ptr %ticks.at
  ret i1 false
ticked:
  {field("tick.at", "pool", abi.POOL_TICK)}
  store ptr %tick.at, ptr %ticks.at
  %tick = load atomic i64, ptr %tick.at monotonic, align 8
  store i64 %tick, ptr %seen.at
  {field("ask.at", "context", abi.CONTEXT_ASK)}
  %ask = add i64 %tick, {abi.FIRST_ASKED_TICKS}
  store i64 %ask, ptr %ask.at
  {field("awake.at", "pool", abi.POOL_AWAKE)}
  %awake = load atomic i32, ptr %awake.at seq_cst, align 4
  %busy = icmp eq i32 %awake, 2
  br i1 %busy, label %timed, label %stir
stir:
  call void @tw_stir(ptr %pool)
  br label %timed
timed:
  {field("deadline.at", "context", abi.CONTEXT_DEADLINE)}
  %deadline = load i64, ptr %deadline.at
  %endless = icmp eq i64 %deadline, 0
  br i1 %endless, label %go, label %check
check:
  %over = call i1 @tw_check(ptr %context, i64 0)
  ret i1 %over
go:
  ret i1 false
}}
"""


def _end() -> str:
    return f"""\
; What the call returns, whose main returned ``code``; the context has no deadline then.
define internal i32 @tw_end(ptr %context, i32 %code) nounwind {{
  {field("deadline.at", "context", abi.CONTEXT_DEADLINE)}
  %deadline = load i64, ptr %deadline.at
  %endless = icmp eq i64 %deadline, 0
  br i1 %endless, label %done, label %timed
timed:
  store i64 0, ptr %deadline.at
  %now = call i64 @tw_now()
  %late = icmp sge i64 %now, %deadline
  %good = icmp eq i32 %code, 0
  %failed = and i1 %late, %good
  %result = select i1 %failed, i32 {abi.ErrorCode.CANCELLED.value}, i32 %code
  ret i32 %result
done:
  ret i32 %code
}}
"""


def _stopped() -> str:
    return f"""\
; Whether a worker is to begin no more chunks. The context may be null, or one that no call has begun with.
define internal i1 @tw_stopped(ptr %context, i64 %worker) nounwind {{
  %bare = icmp eq ptr %context, null
  br i1 %bare, label %go, label %look
look:
  {field("ticks.at", "context", abi.CONTEXT_TICKS)}
  %ticks = load ptr, ptr %ticks.at
  %tickless = icmp eq ptr %ticks, null
  br i1 %tickless, label %go, label %compare
compare:
  {field("seen.at", "context", abi.CONTEXT_SEEN)}
  %tick = load atomic i64, ptr %ticks monotonic, align 8
  %seen = load atomic i64, ptr %seen.at monotonic, align 8
  %same = icmp eq i64 %tick, %seen
  br i1 %same, label %go, label %check
check:
  %stop = call i1 @tw_check(ptr %context, i64 %worker)
  ret i1 %stop
go:
  ret i1 false
}}
"""


def _stir() -> str:
    return f"""\
; Somebody is here: the ticker stays awake, or wakes up.
define internal void @tw_stir(ptr %pool) nounwind {{
  {field("awake.at", "pool", abi.POOL_AWAKE)}
  %before = atomicrmw xchg ptr %awake.at, i32 2 seq_cst, align 4
  %asleep = icmp eq i32 %before, 0
  br i1 %asleep, label %wake, label %done
wake:
  call void @tw_wake(ptr %awake.at, i32 1)
  br label %done
done:
  ret void
}}
"""


def _check() -> str:
    """A kernel's error ends the call, too."""
    return f"""\
define hidden i1 @tw_check(ptr %context, i64 %worker) nounwind cold noinline {{
  {field("code.at", "context", abi.CONTEXT_CODE)}
  {field("seen.at", "context", abi.CONTEXT_SEEN)}
  %code = load atomic i64, ptr %code.at monotonic, align 8
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %stop, label %who
who:
  %caller = icmp eq i64 %worker, 0
  br i1 %caller, label %answer, label %go
answer:
  {field("pool.at", "context", abi.CONTEXT_POOL)}
  %pool = load ptr, ptr %pool.at
  {field("tick.at", "pool", abi.POOL_TICK)}
  %tick = load atomic i64, ptr %tick.at monotonic, align 8
  store atomic i64 %tick, ptr %seen.at monotonic, align 8
  call void @tw_stir(ptr %pool)
  {field("deadline.at", "context", abi.CONTEXT_DEADLINE)}
  %deadline = load i64, ptr %deadline.at
  %endless = icmp eq i64 %deadline, 0
  br i1 %endless, label %signals, label %timed
timed:
  %now = call i64 @tw_now()
  %late = icmp sge i64 %now, %deadline
  br i1 %late, label %fail, label %signals
signals:
  {field("ask.at", "context", abi.CONTEXT_ASK)}
  %ask = load i64, ptr %ask.at
  %early = icmp slt i64 %tick, %ask
  br i1 %early, label %go, label %interpreter
interpreter:
  %ask.next = add i64 %tick, {abi.ASKED_TICKS}
  store i64 %ask.next, ptr %ask.at
  %raised = call i1 @tw_signals(ptr %context, ptr %pool)
  br i1 %raised, label %fail, label %go
fail:
  %reason = phi i64 [ {abi.ErrorCode.CANCELLED.value}, %timed ], [ {abi.ErrorCode.INTERRUPTED.value}, %interpreter ]
  call void @tw_fail(ptr %context, i64 %reason, i64 -1, i64 0, i64 0)
  br label %stop
stop:
  store atomic i64 {abi.STOPPED}, ptr %seen.at monotonic, align 8
  ret i1 true
go:
  ret i1 false
}}
"""


def _signals(main_thread: str) -> str:
    """Only the main thread runs handlers; others need not wait for the interpreter's lock, where the system tells."""
    ensure, release, check, fetch = (
        field(f"{name}.at", "pool", abi.POOL_HOOKS + 8 * i)
        for i, name in enumerate(("ensure", "release", "check", "fetch"))
    )
    exceptions = (field(f"exception.{i}", "context", abi.CONTEXT_EXCEPTION + 8 * i) for i in range(3))
    kind, value, trace = exceptions
    return f"""\
; Runs the handlers of pending signals, on the main thread of a Python; whether one raised.
define internal i1 @tw_signals(ptr %context, ptr %pool) nounwind {{
  {ensure}
  %ensure = load ptr, ptr %ensure.at
  %none = icmp eq ptr %ensure, null
  br i1 %none, label %go, label %who
who:
{main_thread}
  br i1 %main, label %ask, label %go
ask:
  {check}
  %check = load ptr, ptr %check.at
  {release}
  %release = load ptr, ptr %release.at
  %state = call i32 %ensure()
  %found = call i32 %check()
  %raised = icmp ne i32 %found, 0
  br i1 %raised, label %take, label %leave
take:
  {fetch}
  %fetch = load ptr, ptr %fetch.at
  {kind}
  {value}
  {trace}
  call void %fetch(ptr %exception.0, ptr %exception.1, ptr %exception.2)
  br label %leave
leave:
  call void %release(i32 %state)
  ret i1 %raised
go:
  ret i1 false
}}
"""


def _ticker() -> str:
    return f"""\
define hidden ptr @tw_ticker(ptr %pool) nounwind {{
entry:
  {field("tick.at", "pool", abi.POOL_TICK)}
  {field("awake.at", "pool", abi.POOL_AWAKE)}
  {field("stop.at", "pool", abi.POOL_STOP)}
  br label %nap
nap:
  %naps = phi i32 [ 0, %entry ], [ 0, %quiet ], [ 0, %drowsy ], [ 0, %sleep ], [ %naps.next, %tick ]
  call void @tw_nap(ptr %stop.at, i32 0)
  %stop = load atomic i32, ptr %stop.at seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %exit, label %tick
tick:
  %ticked = atomicrmw add ptr %tick.at, i64 1 seq_cst, align 8
  %naps.next = add i32 %naps, 1
  %few = icmp ult i32 %naps.next, {abi.QUIET_TICKS}
  br i1 %few, label %nap, label %quiet
quiet:
  %lately = cmpxchg ptr %awake.at, i32 2, i32 1 seq_cst seq_cst, align 4
  %used = extractvalue {{ i32, i1 }} %lately, 1
  br i1 %used, label %nap, label %drowsy
drowsy:
  %late = cmpxchg ptr %awake.at, i32 1, i32 0 seq_cst seq_cst, align 4
  %idle = extractvalue {{ i32, i1 }} %late, 1
  br i1 %idle, label %last, label %nap
last:
  %told = atomicrmw add ptr %tick.at, i64 1 seq_cst, align 8
  br label %sleep
sleep:
  %awake = load atomic i32, ptr %awake.at seq_cst, align 4
  %risen = icmp ne i32 %awake, 0
  br i1 %risen, label %nap, label %doze
doze:
  call void @tw_wait(ptr %awake.at, i32 0)
  %stop.late = load atomic i32, ptr %stop.at seq_cst, align 4
  %over = icmp ne i32 %stop.late, 0
  br i1 %over, label %exit, label %sleep
exit:
  ret ptr null
}}
"""


NO_STOP = f"""\
; Nobody counts ticks.
define internal i1 @tw_begin(ptr %context) nounwind {{
  {field("code.at", "context", abi.CONTEXT_CODE)}
  store i64 0, ptr %code.at
  {field("seen.at", "context", abi.CONTEXT_SEEN)}
  store i64 0, ptr %seen.at
  {field("ticks.at", "context", abi.CONTEXT_TICKS)}
  store ptr %seen.at, ptr %ticks.at
  ret i1 false
}}

define internal i32 @tw_end(ptr %context, i32 %code) nounwind {{
  ret i32 %code
}}

define internal i1 @tw_stopped(ptr %context, i64 %worker) nounwind {{
  ret i1 false
}}

define hidden i1 @tw_check(ptr %context, i64 %worker) nounwind {{
  ret i1 false
}}
"""
"""The same for targets without threads: a call can't be stopped."""
