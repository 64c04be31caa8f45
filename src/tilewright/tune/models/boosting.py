"""Boosting with LightGBM: trees that make a ``Loss`` small, as many as suit rows that are not learned from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.tune.models.losses import Loss
from tilewright.tune.models.model import FloatArray

if TYPE_CHECKING:
    import lightgbm

MOST_TREES = 200
_PATIENCE = 20  # trees without an improvement on the held-out part
_BETTER = 0.995  # is an improvement of the loss; without this, the last hundred trees bring next to nothing
Settings = Mapping[str, bool | float | str]
SETTINGS: Settings = {
    "learning_rate": 0.2,
    "min_data_in_leaf": 1,
    "max_bin": 63,
    "min_data_in_bin": 1,
    "feature_pre_filter": False,
    "objective": "none",  # ``Loss`` is it
    "metric": "none",
    "deterministic": True,
    "force_row_wise": True,  # else it is chosen by timing
    "num_threads": 1,  # the data are small, and something may be timed meanwhile
    "verbosity": -1,
}
"""Of all models; each adds how large its trees are, and what keeps them from learning noise."""


@dataclass(frozen=True, slots=True)
class Part:
    """What trees learn from, or are tried on: (rows, features); (rows,) that they are added to; and the loss."""

    features: FloatArray
    start: FloatArray
    loss: Loss


def grown(part: Part, trees: int, settings: Settings) -> "lightgbm.Booster":
    """So many trees, learned from ``part``."""
    booster, _ = _empty(part, settings)
    for _ in range(trees):
        _add_tree(booster, part.loss)
    return booster


def best_count(learned: Part, held_out: Part, settings: Settings, most: int = MOST_TREES) -> int:
    """How many trees, up to ``most``, are best for rows that are not learned from."""
    booster, data = _empty(learned, settings)
    valid = data.create_valid(held_out.features, init_score=held_out.start, params=dict(settings))
    booster.add_valid(valid, "held out")
    best, count = held_out.loss.value(held_out.start), 0
    for grown_trees in range(1, most + 1):
        _add_tree(booster, learned.loss)
        value = booster.eval_valid(lambda scores, _: ("loss", held_out.loss.value(scores), False))[0][2]
        if value < _BETTER * best:
            best, count = value, grown_trees
        elif grown_trees - count >= _PATIENCE:
            break
    return count


def _empty(part: Part, settings: Settings) -> "tuple[lightgbm.Booster, lightgbm.Dataset]":
    import lightgbm

    # The loss knows the labels; LightGBM wants some.
    data = lightgbm.Dataset(part.features, part.start, init_score=part.start, params=dict(settings))
    return lightgbm.Booster(dict(settings), data), data


def _add_tree(trees: "lightgbm.Booster", loss: Loss) -> None:
    trees.update(fobj=lambda scores, _: loss.slopes(scores))
