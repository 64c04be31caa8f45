"""LLVM IR of the C functions that code may call where there is no C library.

LLVM makes calls of them out of its own intrinsics: for memory everywhere, and for rounding on processors without such
an instruction. Rounding assumes the default mode (to nearest, ties to even), which ``tw_enter`` sets: adding and
subtracting 2^23 (2^52 for doubles) to a smaller magnitude leaves its nearest whole number.
"""

from collections.abc import Mapping

_MEMORY = {
    "memcpy": """\
declare hidden ptr @memmove(ptr, ptr, i64)

define hidden ptr @memcpy(ptr %to, ptr %from, i64 %size) nounwind {
  %moved = call ptr @memmove(ptr %to, ptr %from, i64 %size)
  ret ptr %to
}
""",
    "memmove": """\
define hidden ptr @memmove(ptr %to, ptr %from, i64 %size) nounwind {
entry:
  %to.at = ptrtoint ptr %to to i64
  %from.at = ptrtoint ptr %from to i64
  %below = icmp ult i64 %to.at, %from.at
  br label %look
look:
  %done = phi i64 [ 0, %entry ], [ %done.next, %move ]
  %more = icmp ult i64 %done, %size
  br i1 %more, label %move, label %end
move:
  %done.next = add i64 %done, 1
  %back = sub i64 %size, %done.next
  %i = select i1 %below, i64 %done, i64 %back
  %source = getelementptr i8, ptr %from, i64 %i
  %byte = load i8, ptr %source
  %place = getelementptr i8, ptr %to, i64 %i
  store i8 %byte, ptr %place
  br label %look
end:
  ret ptr %to
}
""",
    "memset": """\
define hidden ptr @memset(ptr %to, i32 %value, i64 %size) nounwind {
entry:
  %byte = trunc i32 %value to i8
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %set ]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %set, label %end
set:
  %place = getelementptr i8, ptr %to, i64 %i
  store i8 %byte, ptr %place
  %next = add i64 %i, 1
  br label %look
end:
  ret ptr %to
}
""",
}

# The result from the magnitude %m, its nearest whole number %n, and the argument's sign.
_ROUNDED = {
    "rint": "",
    "nearbyint": "",
    "roundeven": "",
    "trunc": """\
  %over = fcmp ogt {type} %n, %m
  %less = fsub {type} %n, 1.0
  %r = select i1 %over, {type} %less, {type} %n
""",
    "floor": """\
  %over = fcmp ogt {type} %signed, %x
  %less = fsub {type} %signed, 1.0
  %r = select i1 %over, {type} %less, {type} %signed
""",
    "ceil": """\
  %under = fcmp olt {type} %signed, %x
  %more = fadd {type} %signed, 1.0
  %r = select i1 %under, {type} %more, {type} %signed
""",
    "round": """\
  %over = fcmp ogt {type} %n, %m
  %less = fsub {type} %n, 1.0
  %below = select i1 %over, {type} %less, {type} %n
  %rest = fsub {type} %m, %below
  %far = fcmp oge {type} %rest, 0.5
  %up = fadd {type} %below, 1.0
  %r = select i1 %far, {type} %up, {type} %below
""",
}


def _rounding(name: str, body: str, double: bool) -> str:
    kind, suffix, limit = ("double", "f64", 2.0**52) if double else ("float", "f32", 2.0**23)
    result = "%r" if body else "%n"
    return f"""\
define hidden {kind} @{name}{"" if double else "f"}({kind} %x) nounwind {{
  %m = call {kind} @llvm.fabs.{suffix}({kind} %x)
  %small = fcmp olt {kind} %m, {limit:.1f}
  br i1 %small, label %round, label %whole
round:
  %sum = fadd {kind} %m, {limit:.1f}
  %n = fsub {kind} %sum, {limit:.1f}
  %signed = call {kind} @llvm.copysign.{suffix}({kind} %n, {kind} %x)
{body.format(type=kind)}  %result = call {kind} @llvm.copysign.{suffix}({kind} {result}, {kind} %x)
  ret {kind} %result
whole:
  ret {kind} %x
}}
declare {kind} @llvm.fabs.{suffix}({kind})
declare {kind} @llvm.copysign.{suffix}({kind}, {kind})
"""


FUNCTIONS: Mapping[str, str] = {
    **_MEMORY,
    **{
        f"{name}{'' if double else 'f'}": _rounding(name, body, double)
        for name, body in _ROUNDED.items()
        for double in (False, True)
    },
}
"""The module of each, by its name; it may call others of these."""
