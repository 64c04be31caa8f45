import pytest

from tests.loops import workloads
from tilewright.base.errors import BadProgram
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.verify import verify
from tilewright.tensor import build as te

GOOD = """
program f(A: f32[8, 4]) -> (C: f32[8]):
  alloc T: f32[8]
  for i in parallel(8):
    for k in range(4):
      block T(vi = i: spatial 8, vk = k: reduce 4):
        reads T[vi], A[vi, vk]
        writes T[vi]
        init:
          T[vi] = f32(0.0)
        T[vi] = T[vi] + A[vi, vk]
  for j in range(8):
    block C(vj = j: spatial 8):
      reads T[vj]
      writes C[vj]
      C[vj] = T[vj]
"""


def test_lowered_programs_are_legal() -> None:
    verify(parse_program(GOOD))
    verify(lower(workloads.matmul(te.var("m"), 3, te.var("k"))))
    verify(lower(workloads.conv2d_padded(7, 2, 3, 3, 2)))
    verify(lower(workloads.welford(3, 4)))
    verify(lower(workloads.cumsum(te.var("t"), 3)))
    verify(lower(workloads.lstm(4, 3)))
    verify(lower(workloads.insertion_sort(5)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("for j in", "for i in", "there are two loops called i"),
        ("block C(", "block T(", "there are two blocks called T"),
        ("alloc T: f32[8]", "alloc T: f32[8]\n  alloc T: f32[8]", "there are two buffers called T"),
        ("(vj = j:", "(j = j:", "block C: j hides another variable"),
        ("program f(", "program f[i](", "i hides another variable"),
        (
            "T[vi] = T[vi] + A[vi, vk]",
            "T[vi] = T[vi] + A[i, vk]",
            "uses i, which has no value here; inside a block only",
        ),
        ("C[vj] = T[vj]", "A[vj, 0] = T[vj]", "block C: A is an input; it can't be written"),
        ("C[vj] = T[vj]", "C[vj] = f64(T[vj])", r"C: f32\[8\] is assigned .* of f64; cast it"),
        ("writes C[vj]", "writes C[0]", r"block C: writes C\[vj\], but declares C\[0\]"),
        ("      reads T[vj]\n", "", r"block C: reads T\[vj\], but declares nothing of it"),
        ("for j in range(8)", "for j in range(9)", "8 points are executed by 9 iterations: some of them twice"),
        ("for j in range(8)", "for j in range(7)", "8 points are executed by 7 iterations: some of them never"),
        ("(vj = j:", "(vj = j + 8:", r"axis vj = j \+ 8 is outside of its extent 8"),
        ("(vj = j:", "(vj = 0:", "executed again for each j, on which no axis depends"),
        ("for k in range", "for k in parallel", "parallel loop k drives the reduce axis vk"),
        ("for k in range", "for k in vectorized", "vectorized loop k drives the reduce axis vk"),
        ("(vj = j: spatial 8)", "(vj = j: spatial 8, vx = j: spatial 8)", "64 points are executed by 8 iterations"),
        ("block C(vj = j: spatial 8):", "block C(vj = j: spatial 8) where j:", "predicate `j` is i64, not bool"),
    ],
)
def test_broken_rules(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(BadProgram, match=message):
        verify(parse_program(GOOD.replace(old, new)))


def test_reductions_into_a_buffer_of_the_workers_own_may_be_in_parallel_loops() -> None:
    text = """
program f(A: f32[8]) -> (C: f32[8]):
  for i in parallel(8):
    alloc T: f32[1] in local
    for k in range(8):
      block T(v = 0: spatial 1, vk = k: reduce 8):
        reads T[v], A[vk]
        writes T[v]
        init:
          T[v] = f32(0.0)
        T[v] = T[v] + A[vk]
    block C(vi = i: spatial 8):
      reads T[0]
      writes C[vi]
      C[vi] = T[0]
"""
    verify(parse_program(text))
    outside = text.replace(
        "  for i in parallel(8):\n    alloc T: f32[1] in local\n", "  alloc T: f32[1]\n  for i in parallel(8):\n"
    )
    with pytest.raises(BadProgram, match="executed again for each i"):
        verify(parse_program(outside))


def test_intrinsics_are_declared() -> None:
    with pytest.raises(BadProgram, match="intrinsic dot is called, but is not among"):
        verify(parse_program("program f() -> (C: f32[4]):\n  intrinsic dot(C)\n"))
