"""Extents that are equal in each case, against numbers; and some that are not."""

from collections.abc import Mapping
from itertools import product

import pytest

from tilewright.ops.shapes import number_at
from tilewright.symbolic.cases import equal_by_cases, simplify_by_cases
from tilewright.symbolic.expr import ONE, ZERO, Expr, Extent, Var, const, maximum, minimum

N, M = Extent("n"), Extent("m")
SOME = Extent("n", least=1)
TO_8 = (N + 7) // 8
EQUAL: dict[str, tuple[Expr, Expr]] = {
    "a shift": (maximum(minimum(N * 2, N + 1) - 1, ZERO), N),
    "nothing is left": (maximum(N - 1, ZERO) * N, (N - 1) * N),
    "not empty": (maximum(ONE - SOME, SOME), SOME),
    "two extents": (maximum(N * M - 1, ZERO) * N * M, (N * M - 1) * N * M),
    "whole windows": ((N - (N + 7) % 8 + 7) * (M - (M + 7) % 8 + 7), TO_8 * 8 * ((M + 7) // 8) * 8),
}
FEW = const(5)
RELATIVE = minimum(maximum(N - 5, ZERO) * 2 + 10, N * 2 + maximum(FEW - N, ZERO)) - maximum(FEW - N, ZERO)
"""The columns that a window of 5 to both sides leaves of a table, with padding for shorter texts."""
EQUAL |= {
    "from 5 on and below": (maximum(N - 5, ZERO) + minimum(N, FEW), N),
    "a window on a table": (M * RELATIVE * 4, M * N * 8),
    "a third": (maximum(N * 3 - 7, ZERO), N * 3 - minimum(N * 3, const(7))),
}
DIFFERENT: Mapping[str, tuple[Expr, Expr]] = {
    "one less": (maximum(N - 1, ZERO), N - 1),
    "empty": (maximum(ONE - N, N), N),
    "quotient of products": (N * M // M, N),
    "rounded": (N // 4 * 2, N // 2),
    "polynomials": (N * M, N + M),
    "4 is not 5": (maximum(N - 5, ZERO) + minimum(N, const(4)), N),
}


def differs(a: Expr, b: Expr) -> bool:
    extents: list[Var] = sorted(a.variables | b.variables, key=lambda v: v.name)
    lows = [v.least if isinstance(v, Extent) else 0 for v in extents]
    points = product(*(range(low, 20) for low in lows))
    return any(
        number_at(a + const(0), dict(zip(extents, at, strict=True)))
        != number_at(b, dict(zip(extents, at, strict=True)))
        for at in points
    )


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str) -> None:
    a, b = EQUAL[name]
    assert equal_by_cases(a, b)
    assert not differs(a, b)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    a, b = DIFFERENT[name]
    assert not equal_by_cases(a, b)
    assert differs(a, b)


def test_simplified() -> None:
    assert simplify_by_cases(maximum(minimum(N * 2, N + 1) - 1, ZERO)) == N
    assert simplify_by_cases(RELATIVE) == N * 2
    once = maximum(N - 1, ZERO)
    assert simplify_by_cases(once) == once
    assert SOME != N
    assert SOME.unique != N.unique
