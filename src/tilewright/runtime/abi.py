"""The binary interface between a native image, its caller and the worker pool. Version 3.

An **image** is machine code: one or more relocatable objects, linked by ``runtime.loader``. It holds kernels, one main
and the support functions of ``backend.cpu.support``. All integers are little endian; every pointer has 8 bytes.

    i32  tw_main(ptr buffers, ptr dims, ptr workspace, ptr context)         the whole model; returns an ErrorCode
    void kernel (ptr buffers, ptr dims, ptr workspace, ptr context)         one fused group; any name

- ``buffers``: array of pointers. Of main: the inputs, then the outputs, then the constants, in the manifest's order.
  Of a kernel: what main passes (inputs, outputs, constants, or parts of main's workspace).
  Inputs and outputs are C-contiguous and aligned to their *element* only (outputs that the runtime allocates are
  aligned to ``ALIGNMENT``); constants, workspace and scratch are aligned to ``ALIGNMENT``. A bool is a byte: it is
  written as 0 or 1, and read as true unless 0. A pointer to a tensor with no elements may be anything.
- ``dims``: array of i64: the run-time extents, in the order of the manifest's ``symbols``. Of a kernel: its own list.
- ``workspace``: the arena, planned at compile time; its contents are undefined on entry. Main hands slices of it on.
- ``context``: a block of ``CONTEXT_BYTES`` that belongs to one call (below). ``tw_enter`` begins a call. To support
  functions, null means: one thread, no scratch, errors are dropped, and nothing stops the call.

      +0   ptr  pool           the process's pool, or null: run everything on the calling thread
      +8   i64  threads        most workers for this call, the caller included; >= 1
      +16  ptr  scratch        ``threads`` slices, aligned to ALIGNMENT
      +24  i64  scratch_stride bytes of one slice; a multiple of ALIGNMENT
      +32  i64  seen           the tick that this call has answered; STOPPED: everybody should leave (below)
      +40  i64  code           ErrorCode of the first error of this call; 0 = none. Zeroed by ``tw_enter``
      +48  i64  site           index into the manifest's ``sites``: which index or access
      +56  i64  value          the bad index (or trip count)
      +64  i64  bound          what it should have been below
      +72  ptr  main           these four are what ``tw_enter`` passes on
      +80  ptr  buffers
      +88  ptr  dims
      +96  ptr  workspace
      +104 ptr  times          null, or i64 for the clock and for each call of main (``tw_mark``)
      +112 ptr  ticks          where the tick is that ``seen`` is compared with; set by ``tw_enter``
      +120 i64  deadline       nanoseconds of the monotonic clock at which the call is to end; 0 = none
      +128 i64  ask            the tick from which on the interpreter is asked for signals
      +136 ptr  exception      three pointers: what a signal handler raised, as ``PyErr_Fetch`` gives it
      +160 i64  first_site     of the kernel that runs, among all ``sites``: main sets it before each that has any
      +168 ptr  chunks         null, or a list for the chunks that the pool runs: i64 how many there were, i64 room,
                           and for each, in any order, i64 worker, begin and end in nanoseconds
      +176 ..   reserved, zero

**Support functions**, part of every image (text: ``backend.cpu.support``):

    void tw_parallel_for(ptr context, ptr fn, ptr arg, i64 n)
        Calls ``void fn(ptr arg, i64 chunk, i64 worker)`` once for each chunk in 0..n-1, on several threads and in any
        order, and returns when all are done (what they wrote is visible). ``worker`` is in 0..threads-1, the caller
        is 0; no two chunks run at once with one ``worker``. Regions do not nest: inside a chunk, run inner parallel
        loops as plain loops. ``n`` is fixed at compile time, so the result does not depend on the number of threads.
    ptr  tw_scratch(ptr context, i64 worker)
        The scratch slice of a worker. Its contents are undefined at the start of each chunk.
    void tw_fail(ptr context, i64 code, i64 site, i64 value, i64 bound)
        Records an error of this call; the first one wins. ``site`` counts from the context's ``first_site``. The
        kernel then skips the access, or goes on with another index; main ends with ``ret`` of the code in its context.
    void tw_mark(ptr context, i64 slot)
        If the context has ``times``: times[slot] += now - times[0] and times[0] = now, in nanoseconds of the system's
        monotonic clock. Main marks 0 on entry, and after its call number i (in the manifest's ``calls``), 1 + i.
    i32  tw_enter(ptr context)
        Runs ``main`` of the context in the default floating-point mode (round to nearest, no flush to zero) and
        restores the caller's after: the pool's threads run in that mode too, so bits do not depend on who runs a chunk.
        Returns the ErrorCode. A call that ends after its deadline is CANCELLED, whatever it has computed.
    i1   tw_check(ptr context, i64 worker)
        Whether this call is to end; asked where the tick is not the one ``seen`` (below).
    ptr  tw_worker(ptr slot)   what a thread of the pool runs (started by ``runtime.pool``)
    ptr  tw_ticker(ptr pool)   what the thread that counts ticks runs (started by ``runtime.pool``)
    void tw_stop(ptr pool)     asks all of these threads to end as soon as they have no chunk
    i32  tw_abi_version        constant: VERSION

**Stopping a call.** The ticker counts up the process's tick each ``TICK_MILLISECONDS`` while there are calls. All code
that can take long compares the tick with ``seen`` of its context, which costs two loads: main after each kernel, the
pool before each chunk, and serial loops around enough work (``backend.cpu.statements``) in each iteration. Where they
differ, ``tw_check`` looks closer, on the thread of the caller only: it sets ``seen``, compares the clock with the
deadline, and now and then asks the interpreter to run handlers of signals, if this is the process's main thread (the
hooks; so Ctrl-C raises in a run, and a handler that returns lets it go on). If the call is to end, ``seen`` becomes
STOPPED, which is no tick: all threads of the call leave at their next look, and no chunk is begun. While the caller
waits for others it looks at each tick. A ticker that nobody has needed for a second sleeps; ``tw_enter`` and
``tw_check`` wake it. It changes the tick once more after it has said that it sleeps, so a call that goes on notices.

**The pool** is one block of memory per process, made by ``runtime.pool``. Any image's code can drive it, as the layout
is fixed by VERSION; every group of fields that is written together has cache lines of its own:

      +0    i64 ticket     epoch:32 | limit:16 | parts:16 of the last job. Workers below ``limit`` may help
      +256  i32 pending    chunks not yet finished (a futex: the caller sleeps here), +260 i32 waiter
      +384  i32 wake       counts wake-ups (a futex: idle workers sleep here), +388 i32 sleepers
      +512  i32 busy       1 while a caller owns the pool
      +640  i32 workers    threads that were started, +644 i32 stop, +648 i32 spins (pauses before sleeping)
      +768  i64 tick, +776 i32 awake (a futex: 0 the ticker sleeps, 1 nobody came lately, 2 somebody did)
      +896  hooks          functions of CPython, or null: PyGILState_Ensure, PyGILState_Release, PyErr_CheckSignals and
                           PyErr_Fetch
      +1024 slots          16 bytes for each thread: ptr pool, i64 worker id (>= 1)
      +17408 parts         128 bytes for each thread: +0 i64 epoch:32 | begin:16 | end:16, the chunks of a job that
                           nobody has claimed; +8 ptr fn, +16 ptr arg, +24 i64 base (added to the number of a chunk),
                           +32 ptr context of the job's call

*The protocol.* A caller takes ``busy`` (who fails runs its chunks itself), writes ``pending``, deals the chunks out to
parts of neighbours, one part for each thread, all with the job and a new epoch, and then publishes a ticket of this
epoch. Everybody, the caller too, looks at each ticket once: it claims chunks of its own part from the first one on, and
when there are none left, of the other parts from their last one back, each by ``cmpxchg`` of the part's word. The
caller returns when ``pending`` is 0.
Why in parts: kernels deal the same rows of a value to the same threads, and find what they wrote in their own caches.
To fetch a line that another core has changed takes longer than to read one from the third cache.
Why it is right: all that decides on a claim is in the one word. Job fields are read *before* the claim, and count only
if it succeeds. Then the job of this epoch was still open, so its caller can't have begun to write the next one before
this claimant has subtracted its chunk from ``pending``: the fields were those of this epoch. Within an epoch parts only
shrink, so who has found them all empty need not look again. A worker that comes late finds other epochs, touches
nothing, and is waited for by nobody. A wrong match needs a thread that stands still for exactly a multiple of 2^32
regions.
"""

from enum import IntEnum
from typing import Final

VERSION: Final = 3
MAIN: Final = "tw_main"
ENTER: Final = "tw_enter"
WORKER: Final = "tw_worker"
STOP: Final = "tw_stop"
TICKER: Final = "tw_ticker"
VERSION_SYMBOL: Final = "tw_abi_version"
ALIGNMENT: Final = 64
"""Bytes: alignment of constants, workspace, scratch, and of the outputs that the runtime allocates."""


class ErrorCode(IntEnum):
    """What ``tw_main`` returns."""

    OK = 0
    OUT_OF_BOUNDS = 1
    CANCELLED = 2
    LIMIT = 3
    INTERRUPTED = 4
    """A signal's handler raised; the exception is in the context."""
    INDEX = 5
    INDEX_FROM_END = 6
    NO_TILES = 7
    """The system lets the process not use the matrix unit. Only of code that runs without Python: it asks itself."""
    SIZES = 8
    """Extents, or a number of threads, that the code was not made for. Only of code that runs without Python."""


CONTEXT_BYTES: Final = 192
CONTEXT_POOL: Final = 0
CONTEXT_THREADS: Final = 8
CONTEXT_SCRATCH: Final = 16
CONTEXT_SCRATCH_STRIDE: Final = 24
CONTEXT_SEEN: Final = 32
CONTEXT_CODE: Final = 40
CONTEXT_SITE: Final = 48
CONTEXT_VALUE: Final = 56
CONTEXT_BOUND: Final = 64
CONTEXT_MAIN: Final = 72
CONTEXT_BUFFERS: Final = 80
CONTEXT_DIMS: Final = 88
CONTEXT_WORKSPACE: Final = 96
CONTEXT_TIMES: Final = 104
CONTEXT_TICKS: Final = 112
CONTEXT_DEADLINE: Final = 120
CONTEXT_ASK: Final = 128
CONTEXT_EXCEPTION: Final = 136
CONTEXT_FIRST_SITE: Final = 160
CONTEXT_CHUNKS: Final = 168
STOPPED: Final = -1
"""A value of ``seen`` that is no tick."""

POOL_TICKET: Final = 0
POOL_PENDING: Final = 256
POOL_WAITER: Final = 260
POOL_WAKE: Final = 384
POOL_SLEEPERS: Final = 388
POOL_BUSY: Final = 512
POOL_WORKERS: Final = 640
POOL_STOP: Final = 644
POOL_SPINS: Final = 648
POOL_TICK: Final = 768
POOL_AWAKE: Final = 776
POOL_HOOKS: Final = 896
POOL_SLOTS: Final = 1024
SLOT_BYTES: Final = 16

PARTS_BITS: Final = 16
LIMIT_BITS: Final = 16
POSITION_BITS: Final = 16
MAX_THREADS: Final = 1024
"""Most threads of a pool, the caller included."""
PART_FN: Final = 8
PART_ARG: Final = 16
PART_BASE: Final = 24
PART_CONTEXT: Final = 32
PART_BYTES: Final = 128
POOL_PARTS: Final = POOL_SLOTS + MAX_THREADS * SLOT_BYTES
POOL_BYTES: Final = POOL_PARTS + MAX_THREADS * PART_BYTES
TICK_MILLISECONDS: Final = 10
FIRST_ASKED_TICKS: Final = 5
ASKED_TICKS: Final = 20
"""Ticks of a call until the interpreter is asked for signals, and until it is again: its lock may be taken then."""
QUIET_TICKS: Final = 100
"""Ticks without a call after which the ticker sleeps, to twice as many."""
DEFAULT_SPINS: Final = 20_000
"""Pauses (about 0.5 ms) before a thread that waits goes to sleep."""
