"""LLVM IR of a program's tensors: where they are, how all inputs come in, and how all outputs go out.

It stands on the functions of ``system_text``, and on ``@bytes``, which tells the bytes of a tensor. In ``@places``,
which the program fills, inputs come first, then outputs.
"""

from typing import Final

from tilewright.backend.shipping.interface import Interface

RECEIVED, SHORT, ENDED = range(3)
"""What ``@receive`` returns: all inputs are there; one can't be read, or ends early; the first one has no byte."""
STANDARD_INPUT: Final = "null"
"""In place of names of files."""


def tensors_text(interface: Interface) -> str:
    """The definitions of ``@places``, ``@place``, ``@receive`` and ``@send``."""
    return "\n".join((_places(interface), _receive(interface), _send(interface)))


def _places(interface: Interface) -> str:
    return f"""\
@places = internal global [{len(interface.tensors)} x ptr] zeroinitializer

define internal ptr @place(i64 %tensor) nounwind {{
  %at = getelementptr ptr, ptr @places, i64 %tensor
  %place = load ptr, ptr %at
  ret ptr %place
}}
"""


def _receive(interface: Interface) -> str:
    return f"""\
; Reads all inputs, each from the file with its name, or all from standard input.
define internal i64 @receive(ptr %names) nounwind {{
entry:
  %alone = icmp eq ptr %names, {STANDARD_INPUT}
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %full ]
  %more = icmp ult i64 %i, {len(interface.inputs)}
  br i1 %more, label %from, label %received
from:
  br i1 %alone, label %take, label %open
open:
  %name.at = getelementptr ptr, ptr %names, i64 %i
  %name = load ptr, ptr %name.at
  %opened = call i64 @open(ptr %name)
  br label %take
take:
  %file = phi i64 [ 0, %from ], [ %opened, %open ]
  %place = call ptr @place(i64 %i)
  %size = call i64 @bytes(i64 %i)
  %got = call i64 @read(i64 %file, ptr %place, i64 %size)
  %i.next = add i64 %i, 1
  %whole = icmp eq i64 %got, %size
  br i1 %whole, label %full, label %lacking
full:
  br label %look
lacking:
  %nothing = icmp eq i64 %got, 0
  %first = icmp eq i64 %i, 0
  %ended = and i1 %nothing, %first
  %fault = select i1 %ended, i64 {ENDED}, i64 {SHORT}
  ret i64 %fault
received:
  ret i64 {RECEIVED}
}}
"""


def _send(interface: Interface) -> str:
    inputs = len(interface.inputs)
    return f"""\
; Writes all outputs to standard output; whether all of them were taken.
define internal i1 @send() nounwind {{
entry:
  br label %look
look:
  %o = phi i64 [ {inputs}, %entry ], [ %o.next, %written ]
  %more = icmp ult i64 %o, {len(interface.tensors)}
  br i1 %more, label %give, label %sent
give:
  %result = call ptr @place(i64 %o)
  %size = call i64 @bytes(i64 %o)
  %gone = call i64 @write(i64 1, ptr %result, i64 %size)
  %o.next = add i64 %o, 1
  %complete = icmp eq i64 %gone, %size
  br i1 %complete, label %written, label %unwritten
written:
  br label %look
sent:
  ret i1 true
unwritten:
  ret i1 false
}}
"""
