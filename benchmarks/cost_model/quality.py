"""How good scores of held-out programs are, by four numbers (Zheng et al., OSDI 2020, section 7.4); how data are split.

The label of a program is the least time of its task in the whole data set as a part of its own, in (0, 1]. Of all
held-out programs, with s what the model says (larger is better):

- RMSE: the root of the mean of (s - label)^2, over all held-out programs of all tasks;
- R2: 1 - sum of (s - label)^2 / sum of (label - mean label)^2, over the same;
- pairwise: of all pairs of held-out programs of one task whose times differ, those that s puts in the right order;
  equal s count half. All pairs of all tasks count alike;
- recall@30 of the top 30: of the 30 fastest held-out programs of a task, the part that is among the 30 with the largest
  s; the mean over tasks with at least 60 held-out programs, as among fewer any order is right often. ``chance`` is what
  a random order would have.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.space.space import Floats
from tilewright.tune.models.statements import BEFOREHAND, StatementModel

from .data import Data, Indices

HELD_OUT = 0.2
TOP = 30
FEWEST = 2 * TOP


@dataclass(frozen=True, slots=True)
class Quality:
    """See above. NaN where there is nothing to compare."""

    rmse: float
    r2: float
    pairwise: float
    recall: float
    chance: float


def quality(scores: Floats, data: Data, labels: Floats) -> Quality:
    """Of the scores of ``data``, which was held out; ``labels``: of its programs, (programs,)."""
    errors = float(np.sum((scores - labels) ** 2))
    tasks = [np.flatnonzero(data.tasks == task) for task in range(len(data.names))]
    ordered = np.sum([_in_order(scores[own], labels[own]) for own in tasks], axis=0)
    large = [own for own in tasks if len(own) >= FEWEST]
    return Quality(
        rmse=(errors / len(labels)) ** 0.5,
        r2=1.0 - errors / float(np.sum((labels - labels.mean()) ** 2)),
        pairwise=float(ordered[0] / ordered[1]),
        recall=float(np.mean([recall(scores[own], labels[own]) for own in large])) if large else np.nan,
        chance=float(np.mean([TOP / len(own) for own in large])) if large else np.nan,
    )


def recall(scores: Floats, labels: Floats, top: int = TOP) -> float:
    """The part of the ``top`` with the largest labels that is among those with the largest scores."""
    best, chosen = (np.argsort(-values, kind="stable")[:top] for values in (labels, scores))
    return len(np.intersect1d(best, chosen)) / top


def _in_order(scores: Floats, labels: Floats) -> tuple[float, float]:
    """Pairs of one task that are in the right order, and all pairs."""
    first, second = np.triu_indices(len(labels), 1)
    truth, said = (np.sign(values[first] - values[second]) for values in (labels, scores))
    differ = truth != 0
    right = np.sum(said[differ] == truth[differ]) + 0.5 * np.sum(said[differ] == 0)
    return float(right), float(differ.sum())


def split(data: Data, seed: int = 0) -> tuple[Indices, Indices]:
    """Learned and held-out programs: a fifth of the programs of each task. Those with equal features stay together."""
    random, held_out = np.random.default_rng(seed), np.zeros(len(data), np.bool_)
    programs = data.programs
    for task in range(len(data.names)):
        different = np.unique(programs[data.tasks == task])
        chosen = random.permutation(different)[: round(HELD_OUT * len(different))]
        held_out |= np.isin(programs, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def of_networks(data: Data) -> Iterator[tuple[str, Indices, Indices]]:
    """For each network: its programs are held out, and those of the others are learned from."""
    owners = np.array(data.networks)[data.tasks]
    for network in dict.fromkeys(data.networks):
        yield network, np.flatnonzero(owners != network), np.flatnonzero(owners == network)


def tried(data: Data, learned: Indices, held_out: Indices) -> Quality:
    """A model as it comes with the package, that learned from one part, on the other one."""
    model = StatementModel(growth=BEFOREHAND)
    model.fit(data.take(learned).history())
    others = data.take(held_out)
    return quality(model.score(others.statements), others, data.labels[held_out])
