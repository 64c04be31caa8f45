"""Products by dot-product instructions, scheduled through `te`, against the instruction's own peak.

`python -m benchmarks.dot_products [--rounds N]` prints a table. The peak: the instruction on registers, in independent
chains without loads. Both are timed in turns, in runs of some hundred microseconds; their best ones are compared, and
the median of neighbours. Each product is compared with NumPy's.
"""

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from benchmarks.peak import share_of_peak
from tilewright import te
from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.register_code import register_code
from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
from tilewright.compilation import build_program
from tilewright.insight.probes import Probe
from tilewright.runtime.loader import load_image
from tilewright.runtime.memory import aligned_copy
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.target.target import Target

CHAINS = 24
LANES = 16
STEPS = 30_000
"""Of each chain in a run of the probe."""


@dataclass(frozen=True, slots=True)
class Case:
    """A product of `rows x depth` and `depth x columns`, in register tiles of `tile` rows and two registers."""

    intrinsic: str
    left: DType
    right: DType
    wide: DType
    rows: int = 384
    columns: int = 512
    depth: int = 512
    tile: int = 12

    @property
    def group(self) -> int:
        """Products that are one step of a lane."""
        return 32 // self.left.bits

    @property
    def operations(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.rows * self.columns * self.depth


CASES = Case("vpdpbusd", u8, i8, i32), Case("vdpbf16ps", bf16, bf16, f32)


def scheduled(case: Case, intrinsic: TensorIntrinsic) -> te.TeSchedule:
    """The product, `B` packed in groups: `[n/16, k/group, 16, group]`."""
    a = te.placeholder((case.rows, case.depth), case.left, "A")
    b = te.placeholder((case.columns // LANES, case.depth // case.group, LANES, case.group), case.right, "B")
    ko, ki = te.reduce_axis((0, case.depth // case.group), "ko"), te.reduce_axis((0, case.group), "ki")

    def body(i: te.Expr, j: te.Expr) -> object:
        left, right = a[i, ko.var * case.group + ki.var], b[j // LANES, ko.var, j % LANES, ki.var]
        return te.sum(te.cast(left, case.wide) * te.cast(right, case.wide), axis=(ko, ki))

    c = te.compute((case.rows, case.columns), body, name="C")
    s = te.create_schedule(c)
    tile = s.cache_write(c, "local")
    io, jo, ii, ji = s[c].tile(*c.op.axis, case.tile, 2 * LANES)
    s[c].reorder(jo, io, ii, ji)
    s[tile].compute_at(s[c], io)
    i, j = tile.op.axis
    vectors, lanes = s[tile].split(j, factor=LANES)
    s[tile].reorder(ko, i, vectors, lanes, ki)
    s[tile].unroll(i)
    s[tile].unroll(vectors)
    s[tile].tensorize(lanes, intrinsic)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    return s


def operands(case: Case) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    random = np.random.default_rng(0)
    a, b = (case.rows, case.depth), (case.depth, case.columns)
    if case.left is u8:
        return random.integers(0, 256, a, np.uint8), random.integers(-128, 128, b, np.int8)
    return random.standard_normal(a).astype(ml_dtypes.bfloat16), random.standard_normal(b).astype(ml_dtypes.bfloat16)


def kernel(case: Case, intrinsic: TensorIntrinsic, target: Target) -> Callable[[], object]:
    """A run of the product, which was right once."""
    run = build_program(te.lower(scheduled(case, intrinsic)), target, threads=1).run
    a, b = operands(case)
    packed = b.reshape(case.depth // case.group, case.group, case.columns // LANES, LANES).transpose(2, 0, 3, 1)
    feeds = {"A": aligned_copy(a), "B": aligned_copy(packed)}
    wide = np.int64 if case.wide is i32 else np.float64
    np.testing.assert_allclose(run(feeds)[0], a.astype(wide) @ b.astype(wide), atol=0 if case.wide is i32 else 1e-3)
    return lambda: run(feeds)


def peak(case: Case, intrinsic: TensorIntrinsic, target: Target) -> Probe:
    """The rate of the update's own instructions on registers, in 1e9 operations per second."""
    image = load_image([compile_object(chains(intrinsic), target)])
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(image.symbol("chains"))

    def rate() -> float:
        begin = perf_counter()
        function(STEPS)
        return 2.0 * CHAINS * STEPS * LANES * case.group / (perf_counter() - begin) / 1e9

    return lambda: rate() if image else 0.0  # the code lives as long as the image


def chains(intrinsic: TensorIntrinsic) -> str:
    """LLVM IR of `i32 chains(i64 steps)`: `CHAINS` accumulators, each of which is updated in each step."""
    assert intrinsic.update is not None
    code = register_code(intrinsic.update)
    assert code is not None
    left, right, wide = code.types
    known = {code.parameters[0]: "%a", code.parameters[1]: "%b"}
    steps: list[str] = []
    for chain in range(CHAINS):
        own = {code.parameters[2]: f"%x{chain}", **known}
        for name, pieces in code.lines:
            text = "".join(own[piece] if place % 2 else piece for place, piece in enumerate(pieces))
            own[name] = f"%y{chain}" if name == code.result else f"{name}.{chain}"
            steps.append(f"{own[name]} = {text}")
    sums = [f"%z{i} = xor <16 x i32> %w{i}, {f'%z{i - 1}' if i else 'zeroinitializer'}" for i in range(CHAINS)]
    return "\n".join(
        [
            "define i32 @chains(i64 %count) {",
            "entry:",
            f"%n = trunc i64 %count to i32\n%a = bitcast i32 %n to {left}",
            "%first = insertelement <16 x i32> poison, i32 %n, i64 0",
            "%all = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer",
            f"%b = bitcast <16 x i32> %all to {right}",
            "br label %loop",
            "loop:",
            "%i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *(f"%x{i} = phi {wide} [ zeroinitializer, %entry ], [ %y{i}, %loop ]" for i in range(CHAINS)),
            *steps,
            "%next = add i64 %i, 1",
            "%more = icmp slt i64 %next, %count",
            "br i1 %more, label %loop, label %exit",
            "exit:",
            *(f"%w{i} = bitcast {wide} %y{i} to <16 x i32>" for i in range(CHAINS)),
            *sums,
            f"%r = extractelement <16 x i32> %z{CHAINS - 1}, i64 0",
            "ret i32 %r",
            "}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    rounds = parser.parse_args().rounds
    target = Target.host()
    print("| product | sizes | G op/s | the instruction's peak | best / best | median of neighbours |")
    print("|---|---|---:|---:|---:|---:|")
    for case in CASES:
        intrinsic = te.dot_products(target).get(case.intrinsic)
        if intrinsic is None:
            print(f"| {case.intrinsic} | this processor has it not | | | | |")
            continue
        probe, run = peak(case, intrinsic, target), kernel(case, intrinsic, target)
        found = share_of_peak(run, case.operations, probe, rounds)
        sizes = f"{case.rows} x {case.depth} x {case.columns}"
        rates = f"{found.kernel:.0f} | {found.peak:.0f} | {found.kernel / found.peak:.3f} | {found.share:.3f}"
        print(f"| {case.intrinsic}: {case.left} x {case.right} -> {case.wide} | {sizes} | {rates} |")


if __name__ == "__main__":
    main()
