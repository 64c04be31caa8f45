"""Little programs in LLVM IR for the runtime's tests, compiled once per process."""

from functools import cache

import llvmlite.binding as llvm

from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.runtime.objectfile import Machine, host_machine

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


@cache
def compile_text(text: str, machine: Machine | None = None) -> bytes:
    """Object code of IR text, position independent, for this machine or another."""
    machine = machine or host_machine()
    target = llvm.Target.from_triple(f"{machine.value}-unknown-linux-gnu")
    module = llvm.parse_assembly(text)
    module.verify()
    return target.create_target_machine(opt=2, reloc="pic", codemodel="small").emit_object(module)


def support_object(machine: Machine | None = None) -> bytes:
    return compile_text(support_text((machine or host_machine()).value), machine)


def image_of(*texts: str) -> list[bytes]:
    """Objects of an image: one for each text, and the support functions."""
    return [*(compile_text(DECLARATIONS + text) for text in texts), support_object()]


# z = x + y, element by element; n is the product of the constant shape.
ADD = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {{
entry:
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  %z.at = getelementptr ptr, ptr %buffers, i64 2
  %z = load ptr, ptr %z.at
  %some = icmp sgt i64 {n}, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %xi.at = getelementptr float, ptr %x, i64 %i
  %xi = load float, ptr %xi.at
  %yi.at = getelementptr float, ptr %y, i64 %i
  %yi = load float, ptr %yi.at
  %sum = fadd float %xi, %yi
  %zi.at = getelementptr float, ptr %z, i64 %i
  store float %sum, ptr %zi.at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {n}
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""

# y = x * c0, n from dims[0], chunks of one element in parallel; through scratch (of the worker) and workspace.
SCALE = """
define internal void @chunk(ptr %arg, i64 %i, i64 %worker) nounwind {
  %context = load ptr, ptr %arg
  %buffers.at = getelementptr ptr, ptr %arg, i64 1
  %buffers = load ptr, ptr %buffers.at
  %workspace.at = getelementptr ptr, ptr %arg, i64 2
  %workspace = load ptr, ptr %workspace.at
  %scratch = call ptr @tw_scratch(ptr %context, i64 %worker)
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  %c.at = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c.at
  %factor = load float, ptr %c
  %xi.at = getelementptr float, ptr %x, i64 %i
  %xi = load float, ptr %xi.at
  store volatile float %xi, ptr %scratch
  %again = load volatile float, ptr %scratch
  %product = fmul float %again, %factor
  %wi.at = getelementptr float, ptr %workspace, i64 %i
  store volatile float %product, ptr %wi.at
  %back = load volatile float, ptr %wi.at
  %yi.at = getelementptr float, ptr %y, i64 %i
  store float %back, ptr %yi.at
  ret void
}

define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %arg = alloca [3 x ptr]
  store ptr %context, ptr %arg
  %at.1 = getelementptr ptr, ptr %arg, i64 1
  store ptr %buffers, ptr %at.1
  %at.2 = getelementptr ptr, ptr %arg, i64 2
  store ptr %workspace, ptr %at.2
  %n = load i64, ptr %dims
  call void @tw_parallel_for(ptr %context, ptr @chunk, ptr %arg, i64 %n)
  ret i32 0
}
"""

# y = x, in two calls: an empty one, and one that runs a loop.
MARKED = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
entry:
  call void @tw_mark(ptr %context, i64 0)
  call void @tw_mark(ptr %context, i64 1)
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %value = load volatile i64, ptr %x
  store volatile i64 %value, ptr %y
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 1000000
  br i1 %more, label %loop, label %done
done:
  call void @tw_mark(ptr %context, i64 2)
  ret i32 0
}
"""

# Refuses an index that is 7 or more; y = x otherwise. Returns the code of the context, as a main must.
CHECKED = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  %i = load i64, ptr %x
  %good = icmp ult i64 %i, 7
  br i1 %good, label %write, label %bad
bad:
  call void @tw_fail(ptr %context, i64 1, i64 1, i64 %i, i64 7)
  call void @tw_fail(ptr %context, i64 3, i64 0, i64 0, i64 0)
  br label %end
write:
  store i64 %i, ptr %y
  br label %end
end:
  %code.at = getelementptr i8, ptr %context, i64 40
  %code = load i64, ptr %code.at
  %r = trunc i64 %code to i32
  ret i32 %r
}
"""

# Runs until it is stopped.
ENDLESS = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %seen.at = getelementptr i8, ptr %context, i64 32
  %ticks.at = getelementptr i8, ptr %context, i64 112
  %ticks = load ptr, ptr %ticks.at
  br label %loop
loop:
  %tick = load atomic i64, ptr %ticks monotonic, align 8
  %seen = load atomic i64, ptr %seen.at monotonic, align 8
  %same = icmp eq i64 %tick, %seen
  br i1 %same, label %loop, label %check
check:
  %stop = call i1 @tw_check(ptr %context, i64 0)
  br i1 %stop, label %end, label %loop
end:
  %code.at = getelementptr i8, ptr %context, i64 40
  %code = load i64, ptr %code.at
  %r = trunc i64 %code to i32
  ret i32 %r
}
"""

# `torture` runs many regions of varying length with two functions in turn, and checks each: every chunk ran once, no
# two chunks at once with the same worker number. Returns the number of errors.
# state: counters of the even regions at 0, of the odd ones at 64, errors at 128, flags of the workers from 256 on.
_TOUCH = """
define internal void @touch{which}(ptr %state, i64 %chunk, i64 %worker) nounwind {{
entry:
  %scaled = shl i64 %worker, 4
  %flag.index = add i64 %scaled, 256
  %flag = getelementptr i64, ptr %state, i64 %flag.index
  %taken = atomicrmw xchg ptr %flag, i64 1 seq_cst
  %index = add i64 %chunk, {which}
  %at = getelementptr i64, ptr %state, i64 %index
  %old = load volatile i64, ptr %at
  %turns = and i64 %old, 63
  br label %work
work:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %work ]
  %seen = load volatile i64, ptr %at
  %turn.next = add i64 %turn, 1
  %go = icmp ult i64 %turn.next, %turns
  br i1 %go, label %work, label %end
end:
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  %held = atomicrmw xchg ptr %flag, i64 0 seq_cst
  %free = icmp eq i64 %taken, 0
  br i1 %free, label %done, label %error
error:
  %errors = getelementptr i64, ptr %state, i64 128
  %was = atomicrmw add ptr %errors, i64 1 seq_cst
  br label %done
done:
  ret void
}}
"""
TORTURE = (
    _TOUCH.format(which=0)
    + _TOUCH.format(which=64)
    + """
define i64 @torture(ptr %context, ptr %state, i64 %regions, i64 %seed) nounwind {
entry:
  %errors.at = getelementptr i64, ptr %state, i64 128
  br label %region
region:
  %r = phi i64 [ 0, %entry ], [ %r.next, %checked ]
  %random = phi i64 [ %seed, %entry ], [ %random.next, %checked ]
  %total = phi i64 [ 0, %entry ], [ %total.next, %checked ]
  %product = mul i64 %random, 6364136223846793005
  %random.next = add i64 %product, 1442695040888963407
  %high = lshr i64 %random.next, 33
  %modulo = urem i64 %high, 31
  %n = add i64 %modulo, 2
  %odd = trunc i64 %high to i1
  %fn = select i1 %odd, ptr @touch64, ptr @touch0
  call void @tw_parallel_for(ptr %context, ptr %fn, ptr %state, i64 %n)
  %total.next = add i64 %total, %n
  br label %sum
sum:
  %i = phi i64 [ 0, %region ], [ %i.next, %sum ]
  %s = phi i64 [ 0, %region ], [ %s.next, %sum ]
  %counter.at = getelementptr i64, ptr %state, i64 %i
  %counter = load volatile i64, ptr %counter.at
  %s.next = add i64 %s, %counter
  %i.next = add i64 %i, 1
  %more.sum = icmp ult i64 %i.next, 128
  br i1 %more.sum, label %sum, label %compare
compare:
  %right = icmp eq i64 %s.next, %total.next
  br i1 %right, label %checked, label %wrong
wrong:
  %was = atomicrmw add ptr %errors.at, i64 1 seq_cst
  br label %checked
checked:
  %r.next = add i64 %r, 1
  %more = icmp ult i64 %r.next, %regions
  br i1 %more, label %region, label %end
end:
  %errors = load i64, ptr %errors.at
  ret i64 %errors
}

define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  ret i32 0
}
"""
)
