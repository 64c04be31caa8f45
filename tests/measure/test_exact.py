"""References add up long sums in float64."""

import numpy as np

from tilewright import te
from tilewright.loops.interpreter import interpret
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.measure.exact import LONG, with_exact_sums
from tilewright.tensor.ir import Tensor


def root_of_squares(count: int) -> Program:
    x, k = te.placeholder((2, count), name="x"), te.reduce_axis((0, count), "k")
    total: Tensor = te.compute((2,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="total")
    return te.create_schedule(te.compute((2,), lambda i: te.sqrt(total[i]), name="root")).naive


def test_long_sums_are_rounded_once() -> None:
    naive = root_of_squares(LONG)
    exact = with_exact_sums(naive)
    verify(exact)
    assert exact.params == naive.params
    x = np.full((2, LONG), 0.1, np.float32)
    wanted = np.linalg.norm(x.astype(np.float64), axis=1)
    error, before = (abs(interpret(program, {"x": x})["root"] - wanted).max() for program in (exact, naive))
    assert error <= 2**-24 * wanted.max() < before


def test_others_stay() -> None:
    naive = root_of_squares(LONG // 2)
    assert with_exact_sums(naive) is naive
    x, k = te.placeholder((LONG,), name="x"), te.reduce_axis((0, LONG), "k")
    largest = te.create_schedule(te.compute((), lambda: te.max(x[k], axis=k), name="largest")).naive
    assert with_exact_sums(largest) is largest
