"""LLVM IR of what runs on a board without Python: a program with a clock, and its receiver.

The *board program* is a model, or a kernel, that says how long it took. From its standard input it takes, again and
again: the number of calls, 8 bytes; and all inputs, as a program of ``program_text`` does. It writes all outputs, and
the nanoseconds that these calls took together, 8 bytes.

The *agent* takes a board program: its size and the seconds that it may live, 8 bytes each; and its bytes. It becomes
that program, in memory, with the same standard input and output. After those seconds, the system ends it by SIGALRM.

All numbers are little endian. A crash is a signal, an error of the model an exit code (``program_text``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.backend.shipping.interface import Interface, offsets
from tilewright.backend.shipping.program_text import MEMORY, MODEL, READING, WRITING
from tilewright.backend.shipping.system_text import system_text
from tilewright.backend.shipping.tensors_text import RECEIVED, STANDARD_INPUT, tensors_text
from tilewright.base.processors import Architecture

WORD = 8
"""Bytes of a number."""
STARTING = 6
"""An agent's exit code: the program that it got can't be started."""
PIECE = 1 << 16
"""Bytes that an agent copies at once."""
_LINE = 64
"""Bytes of a cache's line, or fewer."""
_MONOTONIC, _REAL_TIME, _CLOSE_ON_EXEC, _EMPTY_PATH = 1, 0, 1, 0x1000
"""CLOCK_MONOTONIC, ITIMER_REAL, MFD_CLOEXEC, AT_EMPTY_PATH."""


@dataclass(frozen=True, slots=True)
class _Calls:
    """The numbers of system calls."""

    clock_gettime: int
    setitimer: int
    memfd_create: int
    execveat: int


_CALLS: Mapping[Architecture, _Calls] = {
    Architecture.X86_64: _Calls(228, 38, 319, 322),
    Architecture.AARCH64: _Calls(113, 103, 279, 281),
    Architecture.RISCV64: _Calls(113, 103, 279, 281),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are in a program's memory: inputs and outputs, the scratch of a call, and what evicts caches."""

    places: tuple[int, ...]
    scratch: int
    between: int
    bytes: int

    @staticmethod
    def of(interface: Interface, between_bytes: int) -> "Layout":
        """``between_bytes``: of other data that goes through the caches before each call."""
        places, scratch = offsets([tensor.bytes for tensor in (*interface.inputs, *interface.outputs)])
        between = scratch + interface.scratch_bytes
        return Layout(places, scratch, between, between + between_bytes)


def board_text(interface: Interface, arch: Architecture, layout: Layout) -> str:
    """The definition of ``tw_program`` of a board program."""
    tensors = (tensors_text(interface), _memory(interface, layout))
    return "\n".join((*tensors, system_text(arch), _now(arch), _evict(layout), _program(interface, layout)))


def _memory(interface: Interface, layout: Layout) -> str:
    """The bytes of tensors, and where they are: ``@lay_out`` sets it."""
    sizes = ", ".join(f"i64 {tensor.bytes}" for tensor in interface.tensors)
    placed = "".join(
        f"""\
  %tensor.{i} = getelementptr i8, ptr %memory, i64 {offset}
  store ptr %tensor.{i}, ptr getelementptr (ptr, ptr @places, i64 {i})
"""
        for i, offset in enumerate(layout.places)
    )
    return f"""\
@sizes = internal constant [{len(interface.tensors)} x i64] [{sizes}]

define internal i64 @bytes(i64 %tensor) nounwind {{
  %at = getelementptr i64, ptr @sizes, i64 %tensor
  %bytes = load i64, ptr %at
  ret i64 %bytes
}}

define internal void @lay_out(ptr %memory) nounwind {{
{placed}\
  ret void
}}
"""


def agent_text(arch: Architecture) -> str:
    """The definition of ``tw_program`` of an agent."""
    calls = _CALLS[arch]
    become = f"i64 {calls.execveat}"
    return f"""\
@name = internal constant [8 x i8] c"program\\00"
@nothing = internal constant [1 x i8] zeroinitializer
@arguments = internal constant [2 x ptr] [ptr @name, ptr null]
@variables = internal constant [1 x ptr] [ptr null]
{system_text(arch)}
define hidden i32 @tw_program(ptr %stack) nounwind {{
entry:
  %head = alloca [2 x i64], align 8
  %timer = alloca [4 x i64], align 8
  %memory = call ptr @reserve(i64 {PIECE})
  %none = icmp eq ptr %memory, null
  br i1 %none, label %full, label %listen
listen:
  %got = call i64 @read(i64 0, ptr %head, i64 {2 * WORD})
  switch i64 %got, label %short [ i64 0, label %done
                                  i64 {2 * WORD}, label %asked ]
asked:
  %size = load i64, ptr %head, align 8
  %seconds.at = getelementptr i64, ptr %head, i64 1
  %seconds = load i64, ptr %seconds.at, align 8
  %name = ptrtoint ptr @name to i64
  %file = call i64 @tw_system(i64 {calls.memfd_create}, i64 %name, i64 {_CLOSE_ON_EXEC}, i64 0, i64 0, i64 0, i64 0)
  %has.file = icmp sge i64 %file, 0
  br i1 %has.file, label %look, label %unstarted
look:
  %left = phi i64 [ %size, %asked ], [ %left.next, %written ]
  %some = icmp ugt i64 %left, 0
  br i1 %some, label %copy, label %whole
copy:
  %many = icmp ugt i64 %left, {PIECE}
  %piece = select i1 %many, i64 {PIECE}, i64 %left
  %came = call i64 @read(i64 0, ptr %memory, i64 %piece)
  %all.came = icmp eq i64 %came, %piece
  br i1 %all.came, label %keep, label %short
keep:
  %kept = call i64 @write(i64 %file, ptr %memory, i64 %piece)
  %left.next = sub i64 %left, %piece
  %all.kept = icmp eq i64 %kept, %piece
  br i1 %all.kept, label %written, label %unwritten
written:
  br label %look
whole:
  store i64 0, ptr %timer, align 8
  %interval.at = getelementptr i64, ptr %timer, i64 1
  store i64 0, ptr %interval.at, align 8
  %alarm.at = getelementptr i64, ptr %timer, i64 2
  store i64 %seconds, ptr %alarm.at, align 8
  %fraction.at = getelementptr i64, ptr %timer, i64 3
  store i64 0, ptr %fraction.at, align 8
  %timer.address = ptrtoint ptr %timer to i64
  %set = call i64 @tw_system(i64 {calls.setitimer}, i64 {_REAL_TIME}, i64 %timer.address, i64 0, i64 0, i64 0, i64 0)
  %path = ptrtoint ptr @nothing to i64
  %given = ptrtoint ptr @arguments to i64
  %around = ptrtoint ptr @variables to i64
  %begun = call i64 @tw_system({become}, i64 %file, i64 %path, i64 %given, i64 %around, i64 {_EMPTY_PATH}, i64 0)
  br label %unstarted
done:
  ret i32 0
short:
  ret i32 {READING}
unwritten:
  ret i32 {WRITING}
full:
  ret i32 {MEMORY}
unstarted:
  ret i32 {STARTING}
}}
"""


def _now(arch: Architecture) -> str:
    return f"""\
; Nanoseconds of a clock that is never set.
define internal i64 @now(ptr %time) nounwind {{
  %at = ptrtoint ptr %time to i64
  %read = call i64 @tw_system(i64 {_CALLS[arch].clock_gettime}, i64 {_MONOTONIC}, i64 %at, i64 0, i64 0, i64 0, i64 0)
  %seconds = load volatile i64, ptr %time, align 8
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load volatile i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}
"""


def _evict(layout: Layout) -> str:
    return f"""\
; Other data for the caches.
define internal void @evict(ptr %memory) nounwind {{
entry:
  br label %look
look:
  %at = phi i64 [ {layout.between}, %entry ], [ %next, %one ]
  %more = icmp ult i64 %at, {layout.bytes}
  br i1 %more, label %one, label %done
one:
  %line = getelementptr i8, ptr %memory, i64 %at
  store volatile i8 1, ptr %line
  %next = add i64 %at, {_LINE}
  br label %look
done:
  ret void
}}
"""


def _program(interface: Interface, layout: Layout) -> str:
    return f"""\
define hidden i32 @tw_program(ptr %stack) nounwind {{
entry:
  %word = alloca i64, align 8
  %time = alloca [2 x i64], align 8
  %memory = call ptr @reserve(i64 {layout.bytes})
  %none = icmp eq ptr %memory, null
  br i1 %none, label %full, label %there
there:
  call void @lay_out(ptr %memory)
  br label %set
set:
  %got = call i64 @read(i64 0, ptr %word, i64 {WORD})
  switch i64 %got, label %short [ i64 0, label %done
                                  i64 {WORD}, label %begin ]
begin:
  %calls = load i64, ptr %word, align 8
  %what = call i64 @receive(ptr {STANDARD_INPUT})
  %whole = icmp eq i64 %what, {RECEIVED}
  br i1 %whole, label %call, label %short
call:
  %n = phi i64 [ 0, %begin ], [ %n.next, %good ]
  %passed = phi i64 [ 0, %begin ], [ %passed.next, %good ]
  %more = icmp ult i64 %n, %calls
  br i1 %more, label %run, label %results
run:
  call void @evict(ptr %memory)
  %start = call i64 @now(ptr %time)
  %scratch = getelementptr i8, ptr %memory, i64 {layout.scratch}
  %outputs = getelementptr ptr, ptr @places, i64 {len(interface.inputs)}
  %code = call i32 @{interface.prefix}_run(ptr @places, ptr %outputs, ptr %scratch)
  %end = call i64 @now(ptr %time)
  %took = sub i64 %end, %start
  %passed.next = add i64 %passed, %took
  %n.next = add i64 %n, 1
  %right = icmp eq i32 %code, 0
  br i1 %right, label %good, label %failed
good:
  br label %call
results:
  %sent = call i1 @send()
  br i1 %sent, label %tell, label %unwritten
tell:
  store i64 %passed, ptr %word, align 8
  %told = call i64 @write(i64 1, ptr %word, i64 {WORD})
  %said = icmp eq i64 %told, {WORD}
  br i1 %said, label %set, label %unwritten
done:
  ret i32 0
short:
  ret i32 {READING}
unwritten:
  ret i32 {WRITING}
full:
  ret i32 {MEMORY}
failed:
  %exit = add i32 %code, {MODEL}
  ret i32 %exit
}}

declare i32 @{interface.prefix}_run(ptr, ptr, ptr)
"""
