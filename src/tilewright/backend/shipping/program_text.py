"""LLVM IR of a program around a model: raw tensors in, raw tensors out (``docs/emit.md`` has the protocol)."""

from collections.abc import Sequence

from tilewright.backend.shipping.arguments_text import LIST, arguments_text, text_constant
from tilewright.backend.shipping.interface import Interface
from tilewright.backend.shipping.listing_text import listing, listing_text
from tilewright.backend.shipping.run_text import CALL, SIZES
from tilewright.backend.shipping.system_text import system_text
from tilewright.backend.shipping.tensors_text import ENDED, RECEIVED, STANDARD_INPUT, tensors_text
from tilewright.backend.shipping.threads_text import threads_text
from tilewright.base.processors import Architecture

USAGE, READING, WRITING, MEMORY, MODEL = 2, 3, 4, 5, 16
"""Exit codes: wrong arguments, an input that is short, an output that can't be written, no memory, and ``MODEL +
ErrorCode``."""

_SHORT = "an input can't be read, or ends early\n"
_FULL = "an output can't be written\n"
_LARGE = "there is not enough memory for these sizes\n"
_FAILED = "the model reports an error, such as an index out of range\n"


def _usage(interface: Interface) -> str:
    if interface.open:
        sizes, shown = f" --sizes {','.join(symbol.name for symbol in interface.open)}", "[--sizes ...] --interface"
    else:
        sizes, shown = "", "--interface"
    files = f"({len(interface.inputs)} files, or standard input)"
    return f"usage: PROGRAM [--threads N]{sizes} [FILE ...]  {files}, or PROGRAM {shown}\n"


def _misfit(interface: Interface) -> str:
    count = len(interface.open)
    sizes = f"give --sizes as --interface has them, {count} with commas between, and " if count else ""
    return f"the model is not for such sizes: {sizes}at most 1024 threads\n"


def program_text(interface: Interface, arch: Architecture, *, has_regions: bool) -> str:
    """The definition of ``tw_program(stack)``, which returns the exit code; ``stack`` is the stack at the start.

    ``has_regions``: whether the model has work for several threads.
    """
    messages = (
        text_constant("usage", _usage(interface)),
        text_constant("misfit", _misfit(interface)),
        text_constant("short", _SHORT),
        text_constant("full", _FULL),
        text_constant("large", _LARGE),
        text_constant("failed", _FAILED),
        text_constant("interface", listing(interface)),
    )
    sizes = [("--sizes", "extents", len(interface.open))] if interface.open else []
    return "\n".join(
        (
            *messages,
            *_tables(interface),
            system_text(arch),
            threads_text(),
            arguments_text((("--threads", "threads", 1), *sizes)),
            listing_text(interface),
            tensors_text(interface),
            _memory(interface),
            _program(interface, "call i64 @processors()" if has_regions else "add i64 0, 1"),
        )
    )


def _tables(interface: Interface) -> Sequence[str]:
    """What the options set, the sizes of tensors, and where in the list of sizes their bytes are."""
    count = len(interface.tensors)
    places = ", ".join(f"i64 {at}" for at in interface.bytes_at)
    unknown = ", ".join(["i64 -1"] * max(1, len(interface.open)))
    return (
        "@threads = internal global i64 0",
        f"@extents = internal global [{max(1, len(interface.open))} x i64] [{unknown}]",
        f"@sizes = internal global [{interface.scratch_bytes_at + 1} x i64] zeroinitializer",
        f"@bytes.at = internal constant [{count} x i64] [{places}]",
    )


def _memory(interface: Interface) -> str:
    return f"""\
define internal i64 @bytes(i64 %tensor) nounwind {{
  %place.at = getelementptr i64, ptr @bytes.at, i64 %tensor
  %place = load i64, ptr %place.at
  %bytes.at = getelementptr i64, ptr @sizes, i64 %place
  %bytes = load i64, ptr %bytes.at
  ret i64 %bytes
}}

; Memory for all tensors; whether there was enough.
define internal i1 @allocate() nounwind {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %kept ]
  %more = icmp ult i64 %i, {len(interface.tensors)}
  br i1 %more, label %take, label %yes
take:
  %bytes = call i64 @bytes(i64 %i)
  %pages = call ptr @reserve(i64 %bytes)
  %none = icmp eq ptr %pages, null
  br i1 %none, label %no, label %kept
kept:
  %at = getelementptr ptr, ptr @places, i64 %i
  store ptr %pages, ptr %at
  %i.next = add i64 %i, 1
  br label %look
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _told(label: str, message: str, text: str, code: int) -> str:
    return f"""\
{label}:
  %told.{label} = call i64 @write(i64 2, ptr @{message}, i64 {len(text.encode())})
  ret i32 {code}
"""


def _program(interface: Interface, usual_threads: str) -> str:
    return f"""\
define hidden i32 @tw_program(ptr %stack) nounwind {{
entry:
  %count = load i64, ptr %stack
  %words = getelementptr ptr, ptr %stack, i64 1
  %first = call i64 @arguments(i64 %count, ptr %words)
  %asked = icmp eq i64 %first, {LIST}
  br i1 %asked, label %list, label %options
list:
  %told.sizes = load i64, ptr @extents
  %unknown = icmp slt i64 %told.sizes, 0
  br i1 %unknown, label %plain, label %sized
plain:
  %listed = call i64 @write(i64 1, ptr @interface, i64 {len(listing(interface).encode())})
  ret i32 0
sized:
  %sizing = call i32 @{SIZES}(ptr @extents, i64 1, ptr @sizes)
  %fitting = icmp eq i32 %sizing, 0
  br i1 %fitting, label %show, label %misfit
show:
  call void @list()
  ret i32 0
options:
  %wrong = icmp slt i64 %first, 0
  br i1 %wrong, label %usage, label %counted
counted:
  %files = sub i64 %count, %first
  %alone = icmp eq i64 %files, 0
  %given = icmp eq i64 %files, {len(interface.inputs)}
  %fits = or i1 %alone, %given
  br i1 %fits, label %measure, label %usage
measure:
  %wanted = load i64, ptr @threads
  %usual = icmp eq i64 %wanted, 0
  %all = {usual_threads}
  %threads = select i1 %usual, i64 %all, i64 %wanted
  %measured = call i32 @{SIZES}(ptr @extents, i64 %threads, ptr @sizes)
  %possible = icmp eq i32 %measured, 0
  br i1 %possible, label %reserve, label %misfit
reserve:
  %scratch.at = getelementptr i64, ptr @sizes, i64 {interface.scratch_bytes_at}
  %scratch.bytes = load i64, ptr %scratch.at
  %scratch = call ptr @reserve(i64 %scratch.bytes)
  %enough = call i1 @allocate()
  %none = icmp eq ptr %scratch, null
  %some = xor i1 %none, true
  %there = and i1 %enough, %some
  br i1 %there, label %begin, label %large
begin:
  %pool = call ptr @staff(i64 %threads)
  %names = getelementptr ptr, ptr %words, i64 %first
{_sets(interface)}
{_told("usage", "usage", _usage(interface), USAGE)}
{_told("misfit", "misfit", _misfit(interface), USAGE)}
{_told("large", "large", _LARGE, MEMORY)}
{_told("short", "short", _SHORT, READING)}
{_told("unwritten", "full", _FULL, WRITING)}
}}

declare hidden i32 @{SIZES}(ptr, i64, ptr)
declare hidden i32 @{CALL}(ptr, ptr, ptr, ptr, i64, ptr)
"""


def _sets(interface: Interface) -> str:
    """From ``begin`` on: reads a set of inputs, runs, writes the outputs; again while standard input has more."""
    inputs = len(interface.inputs)
    # Without bytes in the first input, nothing tells where the inputs end.
    streams = "  %size.first = call i64 @bytes(i64 0)\n" if inputs else "  %size.first = add i64 0, 0\n"
    return f"""\
  %sources = select i1 %alone, ptr {STANDARD_INPUT}, ptr %names
  br label %set
set:
  %sets = phi i64 [ 0, %begin ], [ %sets.next, %next.set ]
  %what = call i64 @receive(ptr %sources)
  switch i64 %what, label %short [ i64 {RECEIVED}, label %run
                                   i64 {ENDED}, label %ended ]
ended:
  %later.set = icmp ne i64 %sets, 0
  br i1 %later.set, label %done, label %short
run:
  %results = getelementptr ptr, ptr @places, i64 {inputs}
  %code = call i32 @{CALL}(ptr @extents, ptr @places, ptr %results, ptr %scratch, i64 %threads, ptr %pool)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %computed, label %failed
computed:
  %sent = call i1 @send()
  br i1 %sent, label %next.set, label %unwritten
next.set:
  %sets.next = add i64 %sets, 1
{streams}\
  %streams = icmp ne i64 %size.first, 0
  %again = and i1 %alone, %streams
  br i1 %again, label %set, label %done
done:
  ret i32 0
failed:
  %told = call i64 @write(i64 2, ptr @failed, i64 {len(_FAILED)})
  %exit = add i32 %code, {MODEL}
  ret i32 %exit
"""
