"""Sums with matrices of constants, and instructions: what is in the code that is made of samples."""

import numpy as np
import pytest

from tests.sketch import programs
from tests.sketch.test_samples import FOUR_CORES, Interpreted
from tilewright import te
from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.te.stage import TeSchedule

ONES = ((1, 0), (1, 1), (0, 1))


def transform(places: int) -> te.Tensor:
    """``x^T M`` for each place, with zeros and ones in ``M``."""
    x, k = te.placeholder((3, places), name="X"), te.reduce_axis((0, 3), "k")
    matrix = programs.constant(ONES, "M")
    return te.compute((2, places), lambda i, p: te.sum(x[k, p] * matrix[k, i], axis=k), name="Y")


def first_schedule(whole: TeSchedule, wanted: str) -> Schedule:
    (space,) = [space for sketch, space in sketch_spaces(whole.program, FOUR_CORES) if str(sketch) == wanted]
    return space.schedule(space.sample(1, np.random.default_rng(1))[0])


def test_products_with_zero_and_one_vanish() -> None:
    whole = te.create_schedule(transform(64))
    one = first_schedule(whole, "constant_matrix(Y)")
    built = te.build(whole.scheduled(one), threads=1)
    Interpreted(whole).check(one)
    assert not any(word in built.asm for word in ("mulss", "mulps", "fmadd", "fnmadd"))
    naive = te.build(whole, threads=1)
    assert any(word in naive.asm for word in ("mulss", "mulps", "fmadd"))


@pytest.mark.parametrize(
    ("dtypes", "instruction", "taps"),
    [((u8, i8, i32), "vpdpbusd", 0), ((u8, i8, i32), "vpdpbusd", 2), ((bf16, bf16, f32), "vdpbf16ps", 0)],
    ids=["bytes", "convolution of points", "bfloats"],
)
def test_instructions(dtypes: tuple[DType, DType, DType], instruction: str, taps: int) -> None:
    if te.dot_products(FOUR_CORES).get(instruction) is None:
        pytest.skip(f"this processor has no {instruction}")
    whole = te.create_schedule(programs.dot_product(8, 32, 16, *dtypes, taps=taps))
    one = first_schedule(whole, "tensorize(C), cache_write(C), tile_and_fuse(C)")
    Interpreted(whole).check(one)
    assert instruction in te.build(whole.scheduled(one), threads=1).asm


def test_skip_zeros_refuses() -> None:
    s = te.create_schedule(programs.matmul(4, 4, 4))
    with pytest.raises(ScheduleError, match="no factor of the terms"):
        s.schedule.skip_zeros("C")
    whole = te.create_schedule(programs.max_pool(6, 2))
    with pytest.raises(ScheduleError, match="adds nothing"):
        whole.schedule.skip_zeros("Y")
    with pytest.raises(ScheduleError, match="is no sum"):
        te.create_schedule(programs.softmax(4, 4)).schedule.skip_zeros("power")
