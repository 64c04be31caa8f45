"""LLVM IR of the functions that an emulator calls for each basic block and each access: they run natively.

A call from C to Python would take a microsecond, and a kernel has millions of blocks. ``State`` in ``watching`` is the
layout of what they count in.
"""

BLOCK, ACCESS = "tw_on_block", "tw_on_access"
LINE_BITS = 6
"""Of the number of a byte in its line of a cache."""

TEXT = f"""\
; State: the first address of the code, its bytes, the last block, the table, bytes that ran, bytes after which the
; engine is stopped, and what stops it. The table has for each word of the code: times that a block begins there, times
; that it was reached by a jump back, and the block's bytes.
define void @{BLOCK}(ptr %engine, i64 %address, i32 %size, ptr %state) nounwind {{
entry:
  %base = load i64, ptr %state
  %bytes.at = getelementptr i64, ptr %state, i64 1
  %bytes = load i64, ptr %bytes.at
  %offset = sub i64 %address, %base
  %inside = icmp ult i64 %offset, %bytes
  br i1 %inside, label %count, label %done
count:
  %last.at = getelementptr i64, ptr %state, i64 2
  %last = load i64, ptr %last.at
  store i64 %address, ptr %last.at
  %back = icmp ule i64 %address, %last
  %table.at = getelementptr ptr, ptr %state, i64 3
  %table = load ptr, ptr %table.at
  %word = lshr i64 %offset, 2
  %times.at = getelementptr [3 x i64], ptr %table, i64 %word
  %times = load i64, ptr %times.at
  %times.next = add i64 %times, 1
  store i64 %times.next, ptr %times.at
  %backs.at = getelementptr i64, ptr %times.at, i64 1
  %backs = load i64, ptr %backs.at
  %more = zext i1 %back to i64
  %backs.next = add i64 %backs, %more
  store i64 %backs.next, ptr %backs.at
  %size.at = getelementptr i64, ptr %times.at, i64 2
  %size.wide = zext i32 %size to i64
  store i64 %size.wide, ptr %size.at
  %ran.at = getelementptr i64, ptr %state, i64 4
  %ran = load i64, ptr %ran.at
  %ran.next = add i64 %ran, %size.wide
  store i64 %ran.next, ptr %ran.at
  %limit.at = getelementptr i64, ptr %state, i64 5
  %limit = load i64, ptr %limit.at
  %over = icmp uge i64 %ran.next, %limit
  br i1 %over, label %stop, label %done
stop:
  %stop.at = getelementptr ptr, ptr %state, i64 6
  %end = load ptr, ptr %stop.at
  %ended = call i32 %end(ptr %engine)
  br label %done
done:
  ret void
}}

; State: the last line, then two caches.
define void @{ACCESS}(ptr %engine, i32 %kind, i64 %address, i32 %size, i64 %value, ptr %state) nounwind {{
entry:
  %line = lshr i64 %address, {LINE_BITS}
  %last = load i64, ptr %state
  %same = icmp eq i64 %line, %last
  br i1 %same, label %done, label %first
first:
  store i64 %line, ptr %state
  %near = getelementptr i64, ptr %state, i64 1
  %hit = call i1 @look(ptr %near, i64 %line)
  br i1 %hit, label %done, label %second
second:
  %far = getelementptr i64, ptr %state, i64 6
  %found = call i1 @look(ptr %far, i64 %line)
  br label %done
done:
  ret void
}}

; Whether a cache has a line; it is then the most recently used of its set. A cache: its sets less one, its ways, the
; table of lines, most recently used first, misses, and those of them that follow a line which is there.
define internal i1 @look(ptr %cache, i64 %line) nounwind {{
entry:
  %ways.at = getelementptr i64, ptr %cache, i64 1
  %ways = load i64, ptr %ways.at
  %set = call ptr @set(ptr %cache, i64 %line)
  br label %shift
shift:
  %way = phi i64 [ 0, %entry ], [ %way.next, %again ]
  %moved = phi i64 [ %line, %entry ], [ %held, %again ]
  %place = getelementptr i64, ptr %set, i64 %way
  %held = load i64, ptr %place
  store i64 %moved, ptr %place
  %is = icmp eq i64 %held, %line
  br i1 %is, label %hit, label %again
again:
  %way.next = add i64 %way, 1
  %more = icmp ult i64 %way.next, %ways
  br i1 %more, label %shift, label %miss
miss:
  %misses.at = getelementptr i64, ptr %cache, i64 3
  %misses = load i64, ptr %misses.at
  %misses.next = add i64 %misses, 1
  store i64 %misses.next, ptr %misses.at
  %before = sub i64 %line, 1
  %set.before = call ptr @set(ptr %cache, i64 %before)
  br label %seek
seek:
  %i = phi i64 [ 0, %miss ], [ %i.next, %other ]
  %at = getelementptr i64, ptr %set.before, i64 %i
  %there = load i64, ptr %at
  %follows = icmp eq i64 %there, %before
  br i1 %follows, label %stream, label %other
other:
  %i.next = add i64 %i, 1
  %left = icmp ult i64 %i.next, %ways
  br i1 %left, label %seek, label %missed
stream:
  %streamed.at = getelementptr i64, ptr %cache, i64 4
  %streamed = load i64, ptr %streamed.at
  %streamed.next = add i64 %streamed, 1
  store i64 %streamed.next, ptr %streamed.at
  br label %missed
missed:
  ret i1 false
hit:
  ret i1 true
}}

define internal ptr @set(ptr %cache, i64 %line) nounwind {{
  %mask = load i64, ptr %cache
  %ways.at = getelementptr i64, ptr %cache, i64 1
  %ways = load i64, ptr %ways.at
  %table.at = getelementptr ptr, ptr %cache, i64 2
  %table = load ptr, ptr %table.at
  %number = and i64 %line, %mask
  %first = mul i64 %number, %ways
  %set = getelementptr i64, ptr %table, i64 %first
  ret ptr %set
}}
"""
