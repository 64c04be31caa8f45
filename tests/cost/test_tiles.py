"""Tiles that are chosen: whole registers that LLVM does not widen, also where there is nothing to compute."""

from itertools import product

from tilewright.base.target import Target
from tilewright.cost.tiles import Problem, choose_tile


def test_vectors_are_as_wide_as_llvm_makes_them() -> None:
    target = Target.parse("x86_64,znver5")
    for vector, rows in product((1, 16, 40, 48, 1000), (0, 1, 3, 8, 9, 100)):
        tile = choose_tile(Problem(vector, rows, 1, 4), target)
        assert tile.lanes & (tile.lanes - 1) == 0
        assert tile.lanes // 16 * tile.rows < 32
