"""Floating-point peak of this machine: fused multiply-adds on registers only, compiled from LLVM IR.

Clocks move, so a kernel's rate means little next to a peak measured at another time: `share_of_peak` runs probe and
kernel in turns. `python -m benchmarks.peak` prints the peak of one core and of all cores.
"""

import ctypes
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import llvmlite.binding as llvm

ACCUMULATORS = 12  # two FMA units of latency four need eight; more than twelve don't fit sixteen registers
FLOAT_BITS = 32
PROBE_SECONDS = 2e-3

Probe = Callable[[], float]


@dataclass(frozen=True, slots=True)
class PeakShare:
    """A kernel next to the probe: its best rate (GFLOP/s), the probe's, and the median of the neighbours' ratios."""

    kernel: float
    peak: float
    share: float


@dataclass(frozen=True, slots=True)
class NativeLoop:
    """The compiled loop; `keep` holds what the code's memory belongs to."""

    run: Callable[[int], object]
    flops_per_iteration: int
    keep: tuple[object, ...]

    def timed(self, iterations: int) -> tuple[float, float]:
        """Run; clock before and after, in seconds."""
        begin = time.perf_counter()
        self.run(iterations)
        return begin, time.perf_counter()


def fma_probe(vector_bits: int, threads: int = 1) -> Probe:
    """A callable that runs for about two milliseconds and returns the float32 GFLOP/s of all threads together.

    Raises ValueError when this CPU has no vector registers of `vector_bits`.
    """
    if vector_bits > native_vector_bits():
        raise ValueError(f"this CPU's vectors have {native_vector_bits()} bits, not {vector_bits}")
    loop = compile_loop(vector_bits)
    iterations = _iterations_for(loop, PROBE_SECONDS)
    if threads == 1:
        return lambda: _rate(loop, iterations, [loop.timed(iterations)])
    pool, start = ThreadPoolExecutor(threads), threading.Barrier(threads)

    def together(_: int) -> tuple[float, float]:
        start.wait()
        return loop.timed(iterations)

    return lambda: _rate(loop, iterations, list(pool.map(together, range(threads))))


def share_of_peak(kernel: Callable[[], object], flops: float, probe: Probe, samples: int = 50) -> PeakShare:
    """Run probe and kernel in turns; `flops` is what one call of the kernel executes."""
    rates: list[tuple[float, float]] = []
    for _ in range(samples):
        peak = probe()
        begin = time.perf_counter()
        kernel()
        rates.append((flops / (time.perf_counter() - begin) / 1e9, peak))
    share = statistics.median(kernel_rate / peak for kernel_rate, peak in rates)
    return PeakShare(max(rate for rate, _ in rates), max(peak for _, peak in rates), share)


def native_vector_bits() -> int:
    """Width of this CPU's widest floating-point vectors with fused multiply-add."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 512
    return 256 if features.get("fma") else 128


def compile_loop(vector_bits: int) -> NativeLoop:
    """Compile the loop of `loop_ir` for this CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)
    jit = llvm.create_lljit_compiler(machine)
    library = llvm.JITLibraryBuilder().add_ir(loop_ir(vector_bits)).export_symbol("fma_loop").link(jit, "peak")
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(library["fma_loop"])
    flops = 2 * ACCUMULATORS * (vector_bits // FLOAT_BITS)
    return NativeLoop(function, flops, (jit, library))


def loop_ir(vector_bits: int) -> str:
    """LLVM IR of `float fma_loop(i64 iterations)`: independent chains x = x * b + c, added up at the end."""
    lanes = vector_bits // FLOAT_BITS
    vector = f"<{lanes} x float>"
    splat = f"shufflevector {vector} %seed, {vector} poison, <{lanes} x i32> zeroinitializer"
    chains = range(ACCUMULATORS)
    phis = [f"  %x{i} = phi {vector} [ %s, %entry ], [ %y{i}, %loop ]" for i in chains]
    steps = [f"  %y{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %x{i}, {vector} %b, {vector} %c)" for i in chains]
    sums = [f"  %z{i} = fadd {vector} %y{i}, {'%z' + str(i - 1) if i else '%y0'}" for i in chains]
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
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *steps,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            *sums,
            f"  %r = extractelement {vector} %z{ACCUMULATORS - 1}, i32 0",
            "  ret float %r",
            "}",
        ]
    )


def _iterations_for(loop: NativeLoop, seconds: float) -> int:
    """So many that a run takes about `seconds`; at least one."""
    trial = 100_000
    loop.timed(trial)
    begin, end = loop.timed(trial)
    return max(1, round(trial * seconds / (end - begin)))


def _rate(loop: NativeLoop, iterations: int, times: Sequence[tuple[float, float]]) -> float:
    """GFLOP/s from the first thread's begin to the last one's end."""
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    return len(times) * iterations * loop.flops_per_iteration / seconds / 1e9


def main() -> None:
    """Print the peak of one core and of all."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for threads in sorted({1, cores}):
        probe = fma_probe(native_vector_bits(), threads)
        rates = [probe() for _ in range(200)]
        print(f"{threads} threads: best {max(rates):.0f}, median {statistics.median(rates):.0f} GFLOP/s")


if __name__ == "__main__":
    main()
