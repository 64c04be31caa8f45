"""Processor-specific parts of the support functions: pauses, and the floating-point mode.

A new processor needs an entry in ``PROCESSORS``.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Processor:
    """Facts of a processor for the support functions: pieces of IR, and numbers of system calls.

    ``pause``: the spin-wait hint. ``save`` stores the floating-point mode of this thread in ``%saved`` and sets the
    default; ``restore`` brings it back. ``futex``, ``getpid`` and ``gettid`` are numbers of system calls on Linux.
    """

    futex: int
    getpid: int
    gettid: int
    declarations: str = ""
    pause: str = ""
    pause_attribute: str = "alwaysinline"
    save: str = ""
    restore: str = ""
    waiting: str = ""
    """Definitions of ``tw_wait``, ``tw_nap`` and ``tw_wake``; empty: those of the system (``systems``)."""


_X86_DEFAULT_MXCSR = 0x1F80  # all exceptions masked, round to nearest, denormals kept

PROCESSORS = {
    "x86_64": Processor(
        futex=202,
        getpid=39,
        gettid=186,
        declarations="""\
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
""",
        pause="  call void @llvm.x86.sse2.pause()",
        save=f"""\
  %saved = alloca i32
  %default = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  store i32 {_X86_DEFAULT_MXCSR}, ptr %default
  call void @llvm.x86.sse.ldmxcsr(ptr %default)""",
        restore="  call void @llvm.x86.sse.ldmxcsr(ptr %saved)",
    ),
    "aarch64": Processor(
        futex=98,
        getpid=172,
        gettid=178,
        declarations="""\
declare void @llvm.aarch64.isb(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
""",
        pause="  call void @llvm.aarch64.isb(i32 15)",  # yield is a no-op on most cores; isb waits some 10 ns
        save="""\
  %saved = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)""",
        restore="  call void @llvm.aarch64.set.fpcr(i64 %saved)",
    ),
    "riscv64": Processor(
        futex=98,
        getpid=172,
        gettid=178,
        declarations="declare void @llvm.riscv.pause()\n",
        pause="  call void @llvm.riscv.pause()",
        pause_attribute='noinline "target-features"="+zihintpause"',  # a hint: older cores run it as a no-op
    ),
}
UNKNOWN = Processor(futex=0, getpid=0, gettid=0)
