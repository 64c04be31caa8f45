"""The estimate of scheduled programs: what can be counted by hand, and which of two schedules takes longer."""

from tests.sketch.programs import matmul
from tilewright import te
from tilewright.loops.program import Program
from tilewright.target.target import Target
from tilewright.tune.features.cycles import program_cycles

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")


def copied(rows: int, columns: int, *, across: bool = False) -> te.TeSchedule:
    x = te.placeholder((rows, columns), name="X")
    y = te.compute((rows, columns), lambda i, j: x[j, i] if across else x[i, j], name="Y")
    s = te.create_schedule(y)
    _, j = y.op.axis
    inner = s[y].split(j, factor=16)[1]
    s[y].vectorize(inner)
    return s


def cycles(s: te.TeSchedule) -> float:
    return program_cycles(s.program, TARGET)


def product(size: int, rows: int, lanes: int) -> Program:
    """Tiles of so many rows and lanes, over the whole reduction."""
    c = matmul(size, size, size)
    s = te.create_schedule(c)
    (i, j), (k,) = c.op.axis, c.op.reduce_axis
    outer, inner = s[c].split(i, factor=rows)
    left, right = s[c].split(j, factor=lanes)
    s[c].reorder(left, outer, k, inner, right)
    s[c].unroll(inner)
    s[c].vectorize(right)
    return s.program


def test_a_copy_of_much_takes_what_memory_gives() -> None:
    size = 4096
    moved = 3 * 4 * size * size  # what is written is read first
    assert 1 < cycles(copied(size, size)) * TARGET.machine.stream_bytes / moved < 2


def test_what_fits_into_a_cache_takes_less_for_each_byte() -> None:
    assert cycles(copied(64, 64)) < 0.5 * cycles(copied(4096, 4096)) / 4096


def test_gathered_lanes_take_longer() -> None:
    assert cycles(copied(64, 64, across=True)) > 3 * cycles(copied(64, 64))


def test_tiles_that_fill_the_registers_are_the_fastest() -> None:
    small, best, spilling = (
        program_cycles(product(96, rows, lanes), TARGET) for rows, lanes in ((1, 16), (12, 32), (48, 48))
    )
    assert best < small
    assert best < spilling
    multiply_adds = 96**3 / 16 / TARGET.fma_per_cycle
    assert multiply_adds < best < 2 * multiply_adds


def test_sums_without_lanes_take_many_times_as_long() -> None:
    assert program_cycles(te.create_schedule(matmul(96, 96, 96)).program, TARGET) > 16 * program_cycles(
        product(96, 12, 32), TARGET
    )
