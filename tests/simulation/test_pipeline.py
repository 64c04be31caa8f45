"""Cycles of straight code: by hand from the tables of cores, for code of a few instructions."""

from dataclasses import replace

import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

from tilewright.backend.cpu.llvm import compile_assembly, compile_object
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.objectfile import Segment
from tilewright.simulation.decoding import Instruction, Kind, decoded
from tilewright.simulation.pipeline import loop_cycles, straight_cycles
from tilewright.target.cores import CORES, Core
from tilewright.target.target import Target

A53, A55, A72, A76, V1, M1 = (
    CORES[name] for name in ("cortex-a53", "cortex-a55", "cortex-a72", "cortex-a76", "neoverse-v1", "apple-m1")
)


def fma(register: int, *, by: str = "v30") -> Instruction:
    name = f"v{register}"
    return Instruction(0, Kind.FMA, (name, by, "v31"), (name,), name, 128)


def load(register: int, size: int = 16) -> Instruction:
    return Instruction(0, Kind.LOAD, ("x0",), (f"v{register}",), bits=128, bytes=size)


@pytest.mark.parametrize(
    ("core", "chained", "free"),  # cycles of a multiply-add that waits for the one before, and of one of many
    [(A53, 4, 1), (A55, 4, 1), (A72, 3, 1), (A76, 2, 1 / 2), (V1, 2, 1 / 4), (M1, 4, 1 / 4)],
)
def test_multiply_adds_wait_for_accumulators_or_for_pipelines(core: Core, chained: float, free: float) -> None:
    assert loop_cycles([fma(0)], core) == chained
    assert loop_cycles([fma(n) for n in range(24)], core) / 24 == pytest.approx(free)


@pytest.mark.parametrize(("core", "cycles"), [(A53, 2), (A55, 2), (A72, 1), (A76, 1 / 2), (V1, 1 / 3)])
def test_loads_of_vectors(core: Core, cycles: float) -> None:
    assert loop_cycles([load(n) for n in range(24)], core) / 24 == pytest.approx(cycles)


def test_in_order_a_wide_load_lets_nothing_start_beside_it() -> None:
    body = [load(20), *(fma(n) for n in range(8))]
    assert loop_cycles(body, A55) == 10
    assert loop_cycles([load(20, 8), *(fma(n) for n in range(8))], A55) == 8
    assert loop_cycles(body, A72) == 8


def test_in_order_an_operand_is_waited_for_and_out_of_order_it_is_not() -> None:
    body = [load(30), *(fma(n) for n in range(8))]  # all of them read what is loaded
    assert loop_cycles(body, A72) == 8
    waits = 5  # 4, and one for the other half
    assert loop_cycles(body, A55) == waits + 8


def test_no_more_than_the_width_starts_in_a_cycle() -> None:
    integers = [Instruction(0, Kind.INTEGER, (), (f"x{n}",)) for n in range(12)]
    assert loop_cycles(integers, A72) == 6  # two pipelines
    many = replace(A76, pipes={**A76.pipes, **dict.fromkeys(A76.pipes, 9)})
    assert loop_cycles(integers, many) == 3  # four of a cycle


def test_a_small_window_does_not_hide_a_chain() -> None:
    body = [fma(0), *(Instruction(0, Kind.VECTOR, (), (f"v{n}",), bits=128) for n in range(1, 9))]
    assert loop_cycles(body, A72) < loop_cycles(body, replace(A72, window=2))


def test_straight_code_overlaps_with_what_is_around_it() -> None:
    assert straight_cycles([fma(n) for n in range(8)], A76) == pytest.approx(4)
    assert straight_cycles([fma(n) for n in range(8)], A55) == 8


CODE = """
define <4 x float> @f(ptr %p, <4 x float> %a, <4 x float> %b, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi <4 x float> [ %a, %entry ], [ %more, %loop ]
  %at = getelementptr <4 x float>, ptr %p, i64 %i
  %x = load <4 x float>, ptr %at, align 4
  %more = call <4 x float> @llvm.fma.v4f32(<4 x float> %x, <4 x float> %b, <4 x float> %sum)
  %next = add i64 %i, 1
  %left = icmp ne i64 %next, %n
  br i1 %left, label %loop, label %end
end:
  %one = load float, ptr %p
  %first = insertelement <4 x float> poison, float %one, i32 0
  %all = shufflevector <4 x float> %first, <4 x float> poison, <4 x i32> zeroinitializer
  %scaled = fdiv <4 x float> %more, %all
  store <4 x float> %scaled, ptr %p, align 4
  ret <4 x float> %scaled
}
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
"""


def test_decoded_code_is_what_llvm_has_written() -> None:
    target = Target.parse("aarch64,cortex-a72")
    text = [line.split() for line in compile_assembly(CODE, target).splitlines() if line.startswith("\t")]
    written = [words[0] for words in text if not words[0].startswith(".")]
    item = parse_elf(compile_object(CODE, target))
    (code,) = (section.data for section in item.sections if section.segment is Segment.CODE)
    found = decoded(bytes(code), 0x1000)
    assert len(found) == len(written)
    kinds = dict(zip(written, found, strict=True))
    assert kinds["fmla"].kind is Kind.FMA
    assert kinds["fmla"].added in kinds["fmla"].reads
    assert kinds["fmla"].writes == (kinds["fmla"].added,)
    assert (kinds["fdiv"].kind, kinds["ld1r"].kind, kinds["ret"].kind) == (
        Kind.FLOAT_DIVIDE,
        Kind.BROADCAST,
        Kind.BRANCH,
    )
    (vector,) = [one for one in found if one.kind is Kind.LOAD]
    (stored,) = [one for one in found if one.kind is Kind.STORE]
    assert (vector.bytes, vector.bits, stored.bytes) == (16, 128, 16)
    (back,) = [one for one in found if one.target is not None]
    loop = [one for one in found if back.target <= one.address <= back.address]
    assert loop_cycles(loop, A72) == 3  # the chain of the sum
    assert loop_cycles(loop, A53) >= 4
