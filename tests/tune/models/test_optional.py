"""Without its package, a model says what to install."""

import sys

import pytest

from tilewright.base.errors import BadInput
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.models.looptree import LoopTree
from tilewright.tune.models.treegru import TreeGRU


def test_trees_need_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(BadInput, match=r"lightgbm is not installed: pip install 'tilewright\[tune\]'"):
        BoostedTrees()


def test_the_network_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadInput, match=r"torch is not installed: pip install 'tilewright\[torch\]'"):
        TreeGRU(LoopTree.chain(2, per_loop=3))
