"""Random products of tiles against NumPy: panels, rows that overlap, taps, and remainders of rows and of steps.

The description is what the interpreter runs, everywhere; the code runs where there is a unit, and the system grants it.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright import te
from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
from tilewright.kernels.tile_products import known_tile_product
from tilewright.loops.interpreter import interpret
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, Reduction

Array = NDArray[np.generic]
HOST = Target.host()
KINDS = {"tdpbf16ps": (bf16, bf16, f32), "tdpbusd": (u8, i8, i32), "tdpbssd": (i8, i8, i32)}
has_unit = pytest.mark.skipif(
    not {"amx-bf16", "amx-int8"} <= set(HOST.features), reason="needs AMX, and a kernel that grants it"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """``c[p, i, j] = sum(a[t, i * distance + k] * b[p, t, k, j])``: rows of ``a`` overlap if the distance is short."""

    unit: str
    panels: int
    rows: int
    columns: int
    taps: int
    steps: int
    """Groups of 32 bits along ``k``."""
    distance: int
    """Of rows, in groups."""

    @property
    def group(self) -> int:
        return 32 // KINDS[self.unit][0].bits

    @property
    def name(self) -> str:
        """Of the intrinsic."""
        sizes = f"s{self.panels}_{self.rows}_{self.columns}_r{self.taps}_{self.steps}_{self.group}"
        return f"{self.unit}_{sizes}_a3_1m{self.distance * self.group}p4m{self.group}p5_b0_3_4_2_5"

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        width = ((self.rows - 1) * self.distance + self.steps) * self.group
        return (self.taps, width), (self.panels, self.taps, self.steps, self.columns, self.group)

    def schedule(self) -> te.TeSchedule:
        """The product as a whole program, which is the intrinsic."""
        intrinsic = known_tile_product(self.name)
        assert intrinsic is not None
        left, right, wide = KINDS[self.unit]
        a, b = (te.placeholder(s, t, n) for s, t, n in zip(self.shapes, (left, right), "AB", strict=True))
        tap, step, inner = (te.reduce_axis((0, e), f"r{n}") for n, e in enumerate((self.taps, self.steps, self.group)))

        def body(panel: te.Expr, i: te.Expr, j: te.Expr) -> Reduction:
            place = i * (self.distance * self.group) + step.var * self.group + inner.var
            x, y = a[tap.var, place], b[panel, tap.var, step.var, j, inner.var]
            return te.sum(te.cast(x, wide) * te.cast(y, wide), axis=(tap, step, inner))

        c = te.compute((self.panels, self.rows, self.columns), body, name="C")
        assert isinstance(c.op, Compute)
        s = te.create_schedule(c)
        s[c].tensorize(c.op.axis[0], intrinsic)
        return s

    def operands(self, seed: int) -> tuple[Array, Array]:
        random, (left, right, _) = np.random.default_rng(seed), KINDS[self.unit]
        a, b = (_drawn(t, shape, random) for t, shape in zip((left, right), self.shapes, strict=True))
        return a, b

    def expected(self, a: Array, b: Array) -> Array:
        exact = np.float64 if self.unit == "tdpbf16ps" else np.int64
        depth = self.steps * self.group
        windows = np.lib.stride_tricks.sliding_window_view(a.astype(exact), depth, axis=1)[
            :, :: self.distance * self.group
        ]
        filters = b.astype(exact).transpose(0, 1, 2, 4, 3).reshape(self.panels, self.taps, depth, self.columns)
        return np.einsum("tik,ptkj->pij", windows, filters)

    def check(self, found: Array, expected: Array) -> None:
        tolerance = 1e-4 if self.unit == "tdpbf16ps" else 0
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance, err_msg=self.name
        )


def _drawn(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Bytes are often the greatest and the least ones."""
    if dtype == bf16:
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return random.choice([dtype.min, dtype.max, 0, 1, 77], shape).astype(dtype.numpy)


def problems(rows: int, steps: int) -> st.SearchStrategy[Problem]:
    """Products of up to so many rows and steps, and of several of all: axes of one element are no loops."""
    columns = st.integers(1, 3).map(lambda tiles: 16 * tiles)
    sizes = st.integers(2, 4), st.integers(2, rows), columns, st.integers(2, 3), st.integers(2, steps)
    return st.builds(Problem, st.sampled_from(sorted(KINDS)), *sizes, st.integers(1, 6))


@given(problems(4, 2), st.integers(0, 9))
@settings(max_examples=4, deadline=None)
def test_descriptions(problem: Problem, seed: int) -> None:
    a, b = problem.operands(seed)
    found = interpret(te.lower(problem.schedule()), {"A": a, "B": b})["C"]
    problem.check(found, problem.expected(a, b))


def _runs(problem: Problem, seed: int) -> None:
    a, b = problem.operands(seed)
    found = te.build(problem.schedule(), HOST)(a, b)
    assert not isinstance(found, tuple)
    problem.check(found, problem.expected(a, b))


@has_unit
@given(problems(100, 40), st.integers(0, 9))
@settings(max_examples=6, deadline=None)
def test_code(problem: Problem, seed: int) -> None:
    _runs(problem, seed)


@has_unit
@pytest.mark.slow
@given(problems(300, 80), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_code_of_many(problem: Problem, seed: int) -> None:
    _runs(problem, seed)
