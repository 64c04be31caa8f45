"""Stores of some lanes of a vector: by its mask with AVX-512, else in pieces, with nothing beside them."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tilewright.backend.cpu.accesses import pieces_of
from tilewright.backend.cpu.image import assembly
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.loops.ir import Buffer, If, Loop, LoopKind, Store
from tilewright.loops.program import Program
from tilewright.loops.visit import seq
from tilewright.symbolic.expr import Read, Var, const
from tilewright.target.target import Target

row, lane = Var("row"), Var("lane")
MASKED = re.compile(r"\tvp?maskmov\w+\t[^\n]*\)\n")
"""A store by the mask of AVX or AVX2: the address is the last operand."""


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_pieces_are_the_active_lanes(active: list[bool]) -> None:
    pieces = list(pieces_of(active))
    covered = [lane for first, count in pieces for lane in range(first, first + count)]
    assert covered == [lane for lane, is_active in enumerate(active) if is_active]
    assert all(count & (count - 1) == 0 == first % count for first, count in pieces)


@given(st.integers(1, 64), st.integers(0, 64))
def test_the_first_lanes_are_a_piece_for_each_bit_of_their_number(lanes: int, count: int) -> None:
    active = [lane < min(count, lanes) for lane in range(lanes)]
    assert len(list(pieces_of(active))) == min(count, lanes).bit_count()


def copied(dtype: DType, rows: int, first: int, stop: int, lanes: int) -> Program:
    """Each row is ones, but for the lanes ``first`` to ``stop``, which are copied."""
    shape = const(rows), const(lanes)
    a, out = Buffer("a", dtype, shape), Buffer("out", dtype, shape)
    copy = If((lane >= first) & (lane < stop), Store(out, (row, lane), Read(a, (row, lane))))
    ones = Store(out, (row, lane), const(1, dtype))
    body = seq(*(Loop(lane, const(lanes), each, LoopKind.VECTORIZED) for each in (ones, copy)))
    return Program("k", (a, out), Loop(row, const(rows), body))


@pytest.mark.share(2)
@pytest.mark.parametrize("target", [Target.host(), Target.host().restricted("avx2")], ids=["host", "avx2"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.f16, dtypes.u8, dtypes.boolean])
@pytest.mark.parametrize(("first", "stop", "lanes"), [(0, 6, 8), (0, 7, 16), (3, 8, 8), (2, 13, 32), (5, 6, 8)])
def test_other_lanes_are_not_touched(dtype: DType, first: int, stop: int, lanes: int, target: Target) -> None:
    values = np.random.default_rng(stop).integers(0, 2, (3, lanes)).astype(dtype.numpy)
    (result,) = run_native(copied(dtype, 3, first, stop, lanes), {"a": values}, target=target)
    wanted = np.ones((3, lanes), dtype.numpy)
    wanted[:, first:stop] = values[:, first:stop]
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(("first", "stop"), [(0, 6), (0, 5), (3, 8)])
def test_no_store_of_avx_by_its_mask(first: int, stop: int) -> None:
    """It is microcode on Zen 1 to 3."""
    program = copied(dtypes.f32, 3, first, stop, 8)
    assert not MASKED.search(assembly(program, Target.parse("x86_64,znver3")))
    assert re.search(r"\tvmovups\t[^\n]*\) \{%k", assembly(program, Target.parse("x86_64,znver4")))
