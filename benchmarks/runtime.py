"""What the runtime itself costs: parallel regions, calls of a tiny model, loading. Prints medians.

python -m benchmarks.runtime
"""

import ctypes
import statistics
import time
from collections.abc import Callable

import numpy as np

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.support import DECLARATIONS, support_text
from tilewright.base.dtypes import f32
from tilewright.runtime import abi
from tilewright.runtime.loader import load_image
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.memory import address_of, aligned
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.pool import shared_pool
from tilewright.target.target import Target

REGIONS = """
define internal void @work(ptr %arg, i64 %chunk, i64 %worker) nounwind {
entry:
  %turns = load i64, ptr %arg
  %some = icmp sgt i64 %turns, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %seen = load volatile i64, ptr %arg
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %turns
  br i1 %more, label %loop, label %done
done:
  %scaled = shl i64 %worker, 4
  %index = add i64 %scaled, 16
  %at = getelementptr i64, ptr %arg, i64 %index
  %old = load volatile i64, ptr %at
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  ret void
}
define void @regions(ptr %context, ptr %arg, i64 %regions, i64 %n) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @tw_parallel_for(ptr %context, ptr @work, ptr %arg, i64 %n)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %regions
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
TINY = """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  %z.at = getelementptr ptr, ptr %buffers, i64 2
  %z = load ptr, ptr %z.at
  %a = load <16 x float>, ptr %x, align 4
  %b = load <16 x float>, ptr %y, align 4
  %c = fadd <16 x float> %a, %b
  store <16 x float> %c, ptr %z, align 4
  ret i32 0
}
"""


def objects(text: str) -> list[bytes]:
    """Of ``text``, and of the support functions as images have them."""
    host = Target.host()
    return [compile_object(text, host), compile_object(support_text(host.arch.value), host)]


def median_us(job: Callable[[], object], repeats: int, samples: int = 21) -> float:
    """Median time of one of ``repeats`` in microseconds."""
    job()
    times: list[float] = []
    for _ in range(samples):
        start = time.perf_counter()
        job()
        times.append((time.perf_counter() - start) / repeats * 1e6)
    return statistics.median(times)


class Regions:
    """A native loop over parallel regions of chunks that take a given number of turns."""

    def __init__(self, threads: int) -> None:
        image = load_image(objects(DECLARATIONS + REGIONS))
        self._context = aligned(abi.CONTEXT_BYTES).view(np.int64)
        self._context.fill(0)
        self._context[:2] = shared_pool().address, shared_pool().ensure(threads, image)
        self._arg = aligned(8 * 16 * (abi.MAX_THREADS + 1)).view(np.int64)
        self._arg.fill(0)
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._call = ctypes.CFUNCTYPE(None, *kinds)(image.symbol("regions"))
        self._image = image

    def run(self, regions: int, chunks: int, turns: int = 0) -> None:
        self._arg[0] = turns
        self._call(address_of(self._context), address_of(self._arg), regions, chunks)

    def share_of_others(self) -> float:
        """How much of the chunks ran on workers, since the last time it was asked."""
        counts = self._arg[16::16]
        share = 1 - counts[0] / max(1, counts.sum())
        counts.fill(0)
        return share


def regions() -> None:
    two, one = Regions(2), Regions(1)
    print("parallel region on 2 threads, hot, from a native loop")
    for chunks in (2, 4, 16, 64):
        taken = median_us(lambda n=chunks: two.run(5000, n), 5000)
        print(f"  empty, {chunks:3} chunks {taken:8.3f} us   ({two.share_of_others():.0%} of chunks on the worker)")
    for turns in (2_000, 20_000):
        single = median_us(lambda t=turns: one.run(200, 1, t), 200)
        both = median_us(lambda t=turns: two.run(200, 2, t), 200)
        print(f"  2 chunks of {single:6.2f} us take {both:6.2f} us: {both - single:.3f} us for the region")
    waking = []
    for _ in range(40):
        time.sleep(0.004)
        start = time.perf_counter()
        two.run(1, 2, 0)
        waking.append((time.perf_counter() - start) * 1e6)
    print(f"  after 4 ms of sleep {statistics.median(waking):6.2f} us")


def tiny_model() -> None:
    specs = [TensorSpec(name, f32, (4, 4)) for name in ("x", "y", "z")]
    made = objects(TINY)
    loading = median_us(lambda: NativeExecutable(Manifest(tuple(specs[:2]), (specs[2],)), made), 1)
    model = NativeExecutable(Manifest(tuple(specs[:2]), (specs[2],)), made, threads=2)
    x, y = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    feeds, out = {"x": x, "y": y}, {"z": np.empty((4, 4), np.float32)}
    print("model of 2 inputs, 1 output, 16 elements, from Python")
    print(f"  load              {loading:8.2f} us")
    print(f"  run(feeds)        {median_us(lambda: [model.run(feeds) for _ in range(2000)], 2000):8.2f} us")
    print(f"  run(feeds, out)   {median_us(lambda: [model.run(feeds, out) for _ in range(2000)], 2000):8.2f} us")
    bound = model.bind(feeds, out).run
    print(f"  bound arrays      {median_us(lambda: [bound(None) for _ in range(2000)], 2000):8.2f} us")
    print(f"  np.add(x, y)      {median_us(lambda: [np.add(x, y) for _ in range(2000)], 2000):8.2f} us")


if __name__ == "__main__":
    regions()
    tiny_model()
