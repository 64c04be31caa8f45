"""LLVM IR of a program around a model: raw tensors in, raw tensors out (``docs/emit.md`` has the protocol).

It knows Linux by one function, ``tw_system`` (``machine_code``), which makes a system call.
"""

from collections.abc import Mapping, Sequence

from tilewright.backend.shipping.interface import Interface, Tensor, offsets
from tilewright.base.processors import Architecture

MEMORY = "tw_memory"
"""The symbol of zeroed memory: inputs, outputs, and the scratch memory of a call."""
USAGE, READING, WRITING, MODEL = 2, 3, 4, 16
"""Exit codes: wrong arguments, an input that is short, an output that can't be written, and ``MODEL + ErrorCode``."""

_SYSTEM_CALLS: Mapping[Architecture, tuple[int, int, int]] = {
    Architecture.X86_64: (0, 1, 257),
    Architecture.AARCH64: (63, 64, 56),
    Architecture.RISCV64: (63, 64, 56),
}
"""The numbers of read, write and openat."""
_HERE, _INTERRUPTED = -100, -4
_SHORT = "an input can't be read, or ends early\n"
_FULL = "an output can't be written\n"
_FAILED = "the model reports an error, such as an index out of range\n"


def memory_bytes(interface: Interface) -> int:
    """Bytes of ``tw_memory``."""
    return _ends(interface)[1] + interface.scratch_bytes


def _ends(interface: Interface) -> tuple[tuple[int, ...], int]:
    return offsets([tensor.bytes for tensor in (*interface.inputs, *interface.outputs)])


def listing(interface: Interface) -> str:
    """What ``--interface`` prints: a line for each input and output, with its type, shape, bytes and name."""
    kinds = (("input", interface.inputs), ("output", interface.outputs))
    return "".join(f"{kind} {_line(tensor)}\n" for kind, tensors in kinds for tensor in tensors)


def _line(tensor: Tensor) -> str:
    return f"{tensor.dtype} {'x'.join(map(str, tensor.shape)) or 'scalar'} {tensor.bytes} {tensor.name}"


def _usage(interface: Interface) -> str:
    return f"usage: PROGRAM [--interface | FILE ...]  ({len(interface.inputs)} files, or standard input)\n"


def program_text(interface: Interface, arch: Architecture) -> str:
    """The definition of ``tw_program(stack)``, which returns the exit code; ``stack`` is the stack at the start."""
    places, end = _ends(interface)
    messages = (
        _message("usage", _usage(interface)),
        _message("short", _SHORT),
        _message("full", _FULL),
        _message("failed", _FAILED),
        _message("interface", listing(interface)),
        _message("option", "--interface\0"),
    )
    return "\n".join((*messages, tables(interface, places), transfers(arch), _OPTION, _program(interface, end)))


def tables(interface: Interface, places: Sequence[int]) -> str:
    """Tables of where inputs and outputs are in ``MEMORY``, at ``places``, and of their bytes."""
    count = len(interface.inputs)
    return "\n".join(
        (
            _table("input.places", places[:count]),
            _numbers("input.sizes", [tensor.bytes for tensor in interface.inputs]),
            _table("output.places", places[count:]),
            _numbers("output.sizes", [tensor.bytes for tensor in interface.outputs]),
            f"@{MEMORY} = external hidden global i8",
        )
    )


def _message(name: str, text: str) -> str:
    data = text.encode()
    escaped = "".join(f"\\{byte:02x}" for byte in data)
    return f'@{name} = internal constant [{len(data)} x i8] c"{escaped}"'


def _table(name: str, at: Sequence[int]) -> str:
    places = ", ".join(f"ptr getelementptr (i8, ptr @{MEMORY}, i64 {offset})" for offset in at)
    return f"@{name} = internal constant [{len(at)} x ptr] [{places}]"


def _numbers(name: str, numbers: Sequence[int]) -> str:
    return f"@{name} = internal constant [{len(numbers)} x i64] [{', '.join(f'i64 {n}' for n in numbers)}]"


def transfers(arch: Architecture) -> str:
    """Functions that read and write whole pieces, and open files."""
    read, write, opening = _SYSTEM_CALLS[arch]
    return f"""\
declare i64 @tw_system(i64, i64, i64, i64, i64, i64, i64)

define internal i64 @open(ptr %path) nounwind {{
  %name = ptrtoint ptr %path to i64
  %file = call i64 @tw_system(i64 {opening}, i64 {_HERE}, i64 %name, i64 0, i64 0, i64 0, i64 0)
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
  %done = call i64 @transfer(i64 {read}, i64 %file, ptr %data, i64 %size)
  ret i64 %done
}}

define internal i64 @write(i64 %file, ptr %data, i64 %size) nounwind {{
  %done = call i64 @transfer(i64 {write}, i64 %file, ptr %data, i64 %size)
  ret i64 %done
}}
"""


_OPTION = """\
; Whether the text is "--interface".
define internal i1 @asks(ptr %text) nounwind {
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %same ]
  %a.at = getelementptr i8, ptr %text, i64 %i
  %b.at = getelementptr i8, ptr @option, i64 %i
  %a = load i8, ptr %a.at
  %b = load i8, ptr %b.at
  %equal = icmp eq i8 %a, %b
  br i1 %equal, label %same, label %no
same:
  %next = add i64 %i, 1
  %end = icmp eq i8 %a, 0
  br i1 %end, label %yes, label %look
yes:
  ret i1 true
no:
  ret i1 false
}
"""


def _told(label: str, message: str, text: str, code: int) -> str:
    return f"""\
{label}:
  %told.{label} = call i64 @write(i64 2, ptr @{message}, i64 {len(text.encode())})
  ret i32 {code}
"""


def _program(interface: Interface, scratch_at: int) -> str:
    inputs, outputs = len(interface.inputs), len(interface.outputs)
    streams = any(tensor.bytes for tensor in interface.inputs[:1])  # else nothing tells where the inputs end
    return f"""\
define hidden i32 @tw_program(ptr %stack) nounwind {{
entry:
  %count = load i64, ptr %stack
  %names = getelementptr ptr, ptr %stack, i64 1
  %first.at = getelementptr ptr, ptr %names, i64 1
  %alone = icmp ule i64 %count, 1
  br i1 %alone, label %begin, label %argued
argued:
  %two = icmp eq i64 %count, 2
  br i1 %two, label %option, label %counted
option:
  %first = load ptr, ptr %first.at
  %asked = call i1 @asks(ptr %first)
  br i1 %asked, label %list, label %counted
list:
  %listed = call i64 @write(i64 1, ptr @interface, i64 {len(listing(interface).encode())})
  ret i32 0
counted:
  %fits = icmp eq i64 %count, {1 + inputs}
  br i1 %fits, label %begin, label %usage
begin:
  br label %set
set:
  %sets = phi i64 [ 0, %begin ], [ %sets.next, %next.set ]
  br label %input
input:
  %i = phi i64 [ 0, %set ], [ %i.next, %full ]
  %has.input = icmp ult i64 %i, {inputs}
  br i1 %has.input, label %from, label %run
from:
  br i1 %alone, label %take, label %open
open:
  %file.at = getelementptr ptr, ptr %first.at, i64 %i
  %path = load ptr, ptr %file.at
  %opened = call i64 @open(ptr %path)
  br label %take
take:
  %file = phi i64 [ 0, %from ], [ %opened, %open ]
  %place.at = getelementptr ptr, ptr @input.places, i64 %i
  %place = load ptr, ptr %place.at
  %size.at = getelementptr i64, ptr @input.sizes, i64 %i
  %size = load i64, ptr %size.at
  %got = call i64 @read(i64 %file, ptr %place, i64 %size)
  %i.next = add i64 %i, 1
  %whole = icmp eq i64 %got, %size
  br i1 %whole, label %full, label %ended
full:
  br label %input
ended:
  %nothing = icmp eq i64 %got, 0
  %first.input = icmp eq i64 %i, 0
  %later.set = icmp ne i64 %sets, 0
  %between = and i1 %nothing, %first.input
  %over = and i1 %between, %later.set
  br i1 %over, label %done, label %short
run:
  %scratch = getelementptr i8, ptr @{MEMORY}, i64 {scratch_at}
  %code = call i32 @{interface.prefix}_run(ptr @input.places, ptr @output.places, ptr %scratch)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %results, label %failed
results:
  br label %output
output:
  %o = phi i64 [ 0, %results ], [ %o.next, %given ]
  %has.output = icmp ult i64 %o, {outputs}
  br i1 %has.output, label %give, label %next.set
give:
  %result.at = getelementptr ptr, ptr @output.places, i64 %o
  %result = load ptr, ptr %result.at
  %bytes.at = getelementptr i64, ptr @output.sizes, i64 %o
  %bytes = load i64, ptr %bytes.at
  %written = call i64 @write(i64 1, ptr %result, i64 %bytes)
  %o.next = add i64 %o, 1
  %all = icmp eq i64 %written, %bytes
  br i1 %all, label %given, label %unwritten
given:
  br label %output
next.set:
  %sets.next = add i64 %sets, 1
  %again = and i1 %alone, {str(streams).lower()}
  br i1 %again, label %set, label %done
done:
  ret i32 0
failed:
  %told = call i64 @write(i64 2, ptr @failed, i64 {len(_FAILED)})
  %exit = add i32 %code, {MODEL}
  ret i32 %exit
{_told("usage", "usage", _usage(interface), USAGE)}
{_told("short", "short", _SHORT, READING)}
{_told("unwritten", "full", _FULL, WRITING)}
}}

declare i32 @{interface.prefix}_run(ptr, ptr, ptr)
"""
