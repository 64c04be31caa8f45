"""Division of sums of digits that may carry: against all values."""

import itertools

import pytest

from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Const, Var, const
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.traversal import substitute

x, y = Var("x"), Var("y")


@pytest.mark.parametrize("extent", [3, 4, 5, 8])
@pytest.mark.parametrize("start", [-4, -1, 0, 1, 3])
def test_low_digits_that_carry(extent: int, start: int) -> None:
    bounds = Bounds({x: const(6), y: const(extent)})
    for before in ((x * 4 + y + start) // 8, (x * 4 + y + start) % 8):
        after = simplify(before, bounds)
        for i, j in itertools.product(range(6), range(extent)):
            point = {x: const(i), y: const(j)}
            expected = simplify(substitute(before, point), Bounds())
            assert isinstance(expected, Const) and simplify(substitute(after, point), Bounds()) == expected
