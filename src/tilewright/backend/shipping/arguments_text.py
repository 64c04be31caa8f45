"""LLVM IR that reads the arguments of a program: options, numbers, and where the names of files begin."""

from collections.abc import Sequence

LIST, WRONG = -1, -2
"""What ``@arguments`` returns besides the place of the first file: ``--interface`` was given; or what nobody knows."""

_TEXTS = """\
; Whether two texts that end with a zero are equal.
define internal i1 @equal(ptr %a, ptr %b) nounwind {
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %same ]
  %a.at = getelementptr i8, ptr %a, i64 %i
  %b.at = getelementptr i8, ptr %b, i64 %i
  %x = load i8, ptr %a.at
  %y = load i8, ptr %b.at
  %alike = icmp eq i8 %x, %y
  br i1 %alike, label %same, label %no
same:
  %next = add i64 %i, 1
  %end = icmp eq i8 %x, 0
  br i1 %end, label %yes, label %look
yes:
  ret i1 true
no:
  ret i1 false
}

; Reads ``count`` numbers of at most 18 digits, with commas between them; whether the text has these and nothing else.
define internal i1 @numbers(ptr %text, i64 %count, ptr %into) nounwind {
entry:
  br label %number
number:
  %at = phi ptr [ %text, %entry ], [ %after, %more ]
  %done = phi i64 [ 0, %entry ], [ %done.next, %more ]
  br label %digit
digit:
  %place = phi ptr [ %at, %number ], [ %place.next, %add ]
  %value = phi i64 [ 0, %number ], [ %value.next, %add ]
  %digits = phi i64 [ 0, %number ], [ %digits.next, %add ]
  %letter = load i8, ptr %place
  %low = sub i8 %letter, 48
  %is.digit = icmp ult i8 %low, 10
  %room = icmp ult i64 %digits, 18
  %takes = and i1 %is.digit, %room
  br i1 %takes, label %add, label %end
add:
  %wide = zext i8 %low to i64
  %tens = mul i64 %value, 10
  %value.next = add i64 %tens, %wide
  %digits.next = add i64 %digits, 1
  %place.next = getelementptr i8, ptr %place, i64 1
  br label %digit
end:
  %none = icmp eq i64 %digits, 0
  br i1 %none, label %no, label %keep
keep:
  %into.at = getelementptr i64, ptr %into, i64 %done
  store i64 %value, ptr %into.at
  %done.next = add i64 %done, 1
  %all = icmp eq i64 %done.next, %count
  %wanted = select i1 %all, i8 0, i8 44
  %right = icmp eq i8 %letter, %wanted
  br i1 %right, label %fits, label %no
fits:
  %after = getelementptr i8, ptr %place, i64 1
  br i1 %all, label %yes, label %more
more:
  br label %number
yes:
  ret i1 true
no:
  ret i1 false
}
"""


def arguments_text(options: Sequence[tuple[str, str, int]]) -> str:
    """The definition of ``i64 @arguments(i64 count, ptr words)``.

    It returns the number of the first file among the words, or ``LIST``, or ``WRONG``.

    ``options``: for each, its text, the name of the array that its numbers go to, and how many there are.
    """
    names = "\n".join(text_constant(f"option.{i}", f"{text}\0") for i, (text, _, _) in enumerate(options))
    cases = "\n".join(_case(i, array, count) for i, (_, array, count) in enumerate(options))
    steps = ", ".join(("[ 1, %entry ]", *(f"[ %next.{i}, %taken.{i} ]" for i in range(len(options)))))
    return f"""\
{_TEXTS}
{text_constant("option.list", "--interface" + chr(0))}
{names}

define internal i64 @arguments(i64 %count, ptr %words) nounwind {{
entry:
  br label %look
look:
  %i = phi i64 {steps}
  %more = icmp ult i64 %i, %count
  br i1 %more, label %word, label %files
word:
  %at = getelementptr ptr, ptr %words, i64 %i
  %given = load ptr, ptr %at
  %value.place = add i64 %i, 1
  %value.at = getelementptr ptr, ptr %words, i64 %value.place
  %lists = call i1 @equal(ptr %given, ptr @option.list)
  br i1 %lists, label %list, label %try.0
list:
  %last = icmp eq i64 %value.place, %count
  %listed = select i1 %last, i64 {LIST}, i64 {WRONG}
  ret i64 %listed
{cases}
try.{len(options)}:
  br label %files
files:
  ret i64 %i
wrong:
  ret i64 {WRONG}
}}
"""


def _case(i: int, array: str, count: int) -> str:
    return f"""\
try.{i}:
  %is.{i} = call i1 @equal(ptr %given, ptr @option.{i})
  br i1 %is.{i}, label %valued.{i}, label %try.{i + 1}
valued.{i}:
  %there.{i} = icmp ult i64 %value.place, %count
  br i1 %there.{i}, label %read.{i}, label %wrong
read.{i}:
  %value.{i} = load ptr, ptr %value.at
  %good.{i} = call i1 @numbers(ptr %value.{i}, i64 {count}, ptr @{array})
  br i1 %good.{i}, label %taken.{i}, label %wrong
taken.{i}:
  %next.{i} = add i64 %i, 2
  br label %look"""


def text_constant(name: str, text: str) -> str:
    """A constant with the bytes of ``text``."""
    data = text.encode()
    escaped = "".join(f"\\{byte:02x}" for byte in data)
    return f'@{name} = internal constant [{len(data)} x i8] c"{escaped}"'
