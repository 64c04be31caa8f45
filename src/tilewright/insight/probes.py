"""Small native loops that measure a machine: multiply-adds on registers, reads of memory, and the clock frequency.

Their LLVM IR is written here, compiled by the same code generator as kernels, and run on several threads at once.
"""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from threading import Barrier

from tilewright.backend.cpu.llvm import compile_object
from tilewright.base.errors import UnsupportedTarget
from tilewright.runtime.loader import load_image
from tilewright.runtime.memory import address_of, aligned
from tilewright.target.target import Target

ACCUMULATORS = 12
"""Two FMA units of latency four need eight; more than twelve don't fit sixteen registers."""
STREAMS = 8
"""Vectors read by one iteration of the reading loop."""
FLOAT_BITS = 32
ADDITIONS = 64
"""Dependent additions in an iteration of the clock loop."""
PROBE_SECONDS = 2e-3

Run = Callable[[int, int], object]
"""Called with ``(thread, iterations)`` on each thread."""
Probe = Callable[[], float]
"""Runs for about two milliseconds by default; returns the rate of all threads together, in 1e9 per second."""


@dataclass(frozen=True, slots=True)
class NativeLoop:
    """A compiled loop, and the work (operations or bytes) of one iteration of one thread."""

    run: Run
    amount: int

    def timed(self, thread: int, iterations: int) -> tuple[float, float]:
        """Run; clock before and after, in seconds."""
        begin = time.perf_counter()
        self.run(thread, iterations)
        return begin, time.perf_counter()


def fma_probe(
    target: Target,
    threads: int = 1,
    vector_bits: int | None = None,
    chains: int = ACCUMULATORS,
    seconds: float = PROBE_SECONDS,
) -> Probe:
    """Float32 GFLOP/s of multiply-adds on registers, in ``chains`` independent chains; ``target`` is this machine.

    Raises ``UnsupportedTarget`` if it has no vector registers of ``vector_bits``.
    """
    bits = vector_bits or target.vector_bits
    if bits > target.vector_bits:
        raise UnsupportedTarget(f"this processor's vectors have {target.vector_bits} bits, not {bits}")
    loop = fma_loop(target, bits, chains)
    return _probe(loop, _iterations_for(loop, seconds), threads)


def read_probe(target: Target, size: int, threads: int = 1) -> Probe:
    """GB/s at which all threads together repeatedly read ``size`` bytes (or down to half of it), each its own part."""
    rows = max(1, size // threads // (STREAMS * target.vector_bits // 8))
    loop = read_loop(target, rows.bit_length() - 1, threads)
    return _probe(loop, max(_iterations_for(loop, PROBE_SECONDS), rows), threads)


def clock_probe(target: Target, seconds: float = PROBE_SECONDS) -> Probe:
    """The clock frequency in GHz, from dependent operations, which take a cycle each on every processor."""
    image = load_image([compile_object(clock_ir(), target)])
    function = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(image.symbol("clock_loop"))

    def run(thread: int, iterations: int) -> object:
        return image and function(iterations, thread, 1)

    loop = NativeLoop(run, ADDITIONS)
    return _probe(loop, _iterations_for(loop, seconds, 1000), 1)


def fma_loop(target: Target, vector_bits: int, chains: int = ACCUMULATORS) -> NativeLoop:
    """The loop of ``fma_ir``, compiled."""
    image = load_image([compile_object(fma_ir(vector_bits, chains), target)])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(image.symbol("fma_loop"))

    def run(thread: int, iterations: int) -> object:
        del thread
        return image and function(iterations)  # the code lives as long as the image

    return NativeLoop(run, 2 * chains * (vector_bits // FLOAT_BITS))


def read_loop(target: Target, bits: int, threads: int) -> NativeLoop:
    """The loop of ``read_ir`` over ``2**bits`` rows for each thread; an iteration reads one row."""
    image = load_image([compile_object(read_ir(target.vector_bits), target)])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        image.symbol("read_loop")
    )
    row = STREAMS * target.vector_bits // 8
    memory = [aligned(row << bits) for _ in range(threads)]
    for part in memory:
        part.fill(0)

    def run(thread: int, iterations: int) -> object:
        return image and function(address_of(memory[thread]), (1 << bits) - 1, iterations)

    return NativeLoop(run, row)


def _probe(loop: NativeLoop, iterations: int, threads: int) -> Probe:
    pool, start = ThreadPoolExecutor(threads), Barrier(threads)

    def together(thread: int) -> tuple[float, float]:
        start.wait()
        return loop.timed(thread, iterations)

    def rate() -> float:
        """The sum of all threads' rates, each by its own times: threads start within microseconds of each other."""
        times = list(pool.map(together, range(threads))) if threads > 1 else [loop.timed(0, iterations)]
        return sum(iterations * loop.amount / (end - begin) for begin, end in times) / 1e9

    return rate


def _iterations_for(loop: NativeLoop, seconds: float, trial: int = 100_000) -> int:
    """The number of iterations, at least 1, for a run of about ``seconds``."""
    loop.timed(0, trial)
    begin, end = loop.timed(0, trial)
    return max(1, round(trial * seconds / (end - begin)))


def clock_ir() -> str:
    """LLVM IR of ``i64 clock_loop(i64 count, i64 a, i64 b)``: additions and exclusive ors, which LLVM can't combine."""
    values = ["%x", *(f"%x{i}" for i in range(1, ADDITIONS)), "%y"]
    operations = ("add", "%a"), ("xor", "%b")
    steps = [
        f"  {made} = {operations[i % 2][0]} i64 {used}, {operations[i % 2][1]}"
        for i, (used, made) in enumerate(pairwise(values))
    ]
    phis = ["  %x = phi i64 [ %a, %entry ], [ %y, %loop ]"]
    return "\n".join(
        ["define i64 @clock_loop(i64 %count, i64 %a, i64 %b) {", "entry:", *_counted(phis, steps), "  ret i64 %y", "}"]
    )


def fma_ir(vector_bits: int, chains: int = ACCUMULATORS) -> str:
    """LLVM IR of ``float fma_loop(i64 iterations)``: independent chains x = x * b + c, added up at the end."""
    lanes = vector_bits // FLOAT_BITS
    vector = f"<{lanes} x float>"
    splat = f"shufflevector {vector} %seed, {vector} poison, <{lanes} x i32> zeroinitializer"
    steps = [
        f"  %y{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %x{i}, {vector} %b, {vector} %c)"
        for i in range(chains)
    ]
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            "define float @fma_loop(i64 %count) {",
            "entry:",
            "  %f = sitofp i64 %count to float",
            f"  %seed = insertelement {vector} poison, float %f, i32 0",
            f"  %s = {splat}",
            f"  %b = fdiv {vector} %s, %s",
            f"  %c = fsub {vector} %s, %s",
            *_loop_ir(vector, chains, "%s", steps),
        ]
    )


def read_ir(vector_bits: int) -> str:
    """LLVM IR of ``float read_loop(ptr data, i64 mask, i64 count)``: sums the rows ``i & mask``."""
    vector = f"<{vector_bits // FLOAT_BITS} x float>"
    steps = ["  %wrapped = and i64 %i, %mask", f"  %row = mul i64 %wrapped, {STREAMS}"]
    for i in range(STREAMS):
        steps += [
            f"  %at{i} = add i64 %row, {i}",
            f"  %p{i} = getelementptr {vector}, ptr %data, i64 %at{i}",
            f"  %v{i} = load {vector}, ptr %p{i}, align 64",
            f"  %y{i} = fadd {vector} %x{i}, %v{i}",
        ]
    head = ["define float @read_loop(ptr %data, i64 %mask, i64 %count) {", "entry:"]
    return "\n".join([*head, *_loop_ir(vector, STREAMS, "zeroinitializer", steps)])


def _loop_ir(vector: str, chains: int, start: str, steps: list[str]) -> list[str]:
    """A loop of ``%count`` iterations that computes ``%y`` from ``%x``; it returns the sum, so that no code is dead."""
    phis = [f"  %x{i} = phi {vector} [ {start}, %entry ], [ %y{i}, %loop ]" for i in range(chains)]
    sums = [f"  %z{i} = fadd {vector} %y{i}, {f'%z{i - 1}' if i else '%y0'}" for i in range(chains)]
    last = f"  %r = extractelement {vector} %z{chains - 1}, i32 0"
    return [*_counted(phis, steps), *sums, last, "  ret float %r", "}"]


def _counted(phis: list[str], steps: list[str]) -> list[str]:
    """A loop of ``%count`` iterations, and the label after it."""
    return [
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *phis,
        *steps,
        "  %next = add i64 %i, 1",
        "  %more = icmp slt i64 %next, %count",
        "  br i1 %more, label %loop, label %exit",
        "exit:",
    ]
