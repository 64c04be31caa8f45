"""How features are spread over loops, and made about as large as each other."""

import numpy as np
import pytest

from tilewright.base.errors import BadInput
from tilewright.tune.models.looptree import LoopTree, Scaling


def test_a_chain_is_a_perfect_nest() -> None:
    tree = LoopTree.chain(3, per_loop=2)
    assert tree.parents == (None, 0, 1)
    assert tree.width == 6
    contexts = tree.contexts(np.arange(12.0).reshape(2, 6))
    assert contexts[1].tolist() == [[6.0, 7.0], [8.0, 9.0], [10.0, 11.0]]


@pytest.mark.parametrize("parents", [(0,), (None, 1), (None, 2, 0), (None, -1)])
def test_a_loop_comes_after_the_one_around_it(parents: tuple[int | None, ...]) -> None:
    with pytest.raises(BadInput, match="after the one around it"):
        LoopTree(parents, per_loop=2)


def test_scaling_looks_at_the_loops_that_are_there() -> None:
    contexts = np.random.default_rng(1).normal([5.0, -3.0, 7.0], [2.0, 0.1, 0.0], (200, 4, 3))
    contexts[::3, 2] = np.nan
    values, present = Scaling.of(contexts).scaled(contexts)
    assert present[:, [0, 1, 3]].all()
    assert (present[:, 2] == (np.arange(200) % 3 != 0)).all()
    there = values[present > 0]
    np.testing.assert_allclose(there.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(there.std(axis=0), [1.0, 1.0, 0.0], atol=1e-5)
    assert not values[present == 0].any()


def test_a_feature_that_nobody_knows_is_no_fault() -> None:
    contexts = np.ones((3, 2, 2))
    contexts[:, :, 1] = np.nan
    values, present = Scaling.of(contexts).scaled(contexts)
    assert present.all()
    assert not values.any()
