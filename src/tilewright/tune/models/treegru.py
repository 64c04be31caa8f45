"""TreeGRU: a recurrent network over the loops of a program (Chen et al., NeurIPS 2018, section 3.2).

It needs only the context features of each loop, and the same network fits nests of any depth. It takes longer than
boosted trees to fit and to score, for candidates of similar quality: trees are the default.
"""

from collections.abc import Generator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

from tilewright.tune.models.looptree import LoopTree, Scaling, Sizes
from tilewright.tune.models.losses import loss_of
from tilewright.tune.models.model import FloatArray, Measured, Objective
from tilewright.tune.models.optional import require
from tilewright.tune.models.rows import Rows, check_width, rows_of, split

if TYPE_CHECKING:
    import torch

    from tilewright.tune.models.treegru_network import Network

_BATCH = 64  # candidates; pairs are within one batch
_LEARNING_RATE = 1e-3
_MOST_EPOCHS = 60
_EPOCHS_OF_FEW_ROWS = 20  # if there are too few rows to hold some out
_PATIENCE = 8  # epochs without an improvement on the held-out part
_SCORED_AT_ONCE = 4096  # candidates; bounds the memory


class TreeGRU:
    """A ``CostModel`` of candidates whose features are the loops of a ``LoopTree``.

    ``seed`` chooses initial weights, batches, pairs and the held-out part. Raises ``BadInput`` if torch is missing.
    """

    def __init__(
        self, tree: LoopTree, objective: Objective = Objective.RANK, seed: int = 0, sizes: Sizes | None = None
    ) -> None:
        require("torch", "torch")
        self._tree = tree
        self._objective = objective
        self._seed = seed
        self._sizes = sizes or Sizes()
        self._fitted: tuple[Scaling, Network] | None = None

    def fit(self, features: FloatArray, throughputs: FloatArray) -> None:
        """See ``CostModel``."""
        rows = rows_of([Measured(features, throughputs)])
        check_width(features, self._tree.width)
        self._fitted = None
        if not rows.tell_apart:
            return
        scaling = Scaling.of(self._tree.contexts(features))
        with _one_thread():
            self._fitted = scaling, self._trained(rows, scaling)

    def score(self, features: FloatArray) -> FloatArray:
        """See ``CostModel``."""
        check_width(features, self._tree.width)
        if self._fitted is None or not len(features):
            return np.zeros(len(features))
        scaling, network = self._fitted
        with _one_thread():
            return self._scores(network, scaling, features)

    def _trained(self, rows: Rows, scaling: Scaling) -> "Network":
        """The network after the epoch with the best held-out loss."""
        import torch

        generator = np.random.default_rng(self._seed)
        network = _initial(self._tree, self._sizes, self._seed)
        optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
        parts = split(rows, generator)
        if parts is None:
            for _ in range(_EPOCHS_OF_FEW_ROWS):
                self._epoch(network, optimizer, scaling, rows, generator)
            return network
        learned, held_out = parts
        trial = loss_of(self._objective, held_out, generator)
        best, best_loss, best_epoch = network, float("inf"), 0
        for epoch in range(_MOST_EPOCHS):
            self._epoch(network, optimizer, scaling, learned, generator)
            loss = trial.value(self._scores(network, scaling, held_out.features))
            if loss < best_loss:
                best, best_loss, best_epoch = deepcopy(network), loss, epoch
            elif epoch - best_epoch >= _PATIENCE:
                break
        return best

    def _epoch(
        self,
        network: "Network",
        optimizer: "torch.optim.Adam",
        scaling: Scaling,
        rows: Rows,
        generator: np.random.Generator,
    ) -> None:
        import torch

        shuffled = generator.permutation(len(rows))
        for begin in range(0, len(rows), _BATCH):
            batch = rows.take(shuffled[begin : begin + _BATCH])
            optimizer.zero_grad()
            scores = _run(network, scaling, self._tree, batch.features)
            loss = loss_of(self._objective, batch, generator)
            slopes, _ = loss.slopes(scores.detach().numpy().astype(np.float64))
            scores.backward(torch.from_numpy((slopes / len(batch)).astype(np.float32)))
            optimizer.step()

    def _scores(self, network: "Network", scaling: Scaling, features: FloatArray) -> FloatArray:
        import torch

        with torch.no_grad():
            scores = [
                _run(network, scaling, self._tree, features[begin : begin + _SCORED_AT_ONCE]).numpy()
                for begin in range(0, len(features), _SCORED_AT_ONCE)
            ]
        return np.concatenate(scores).astype(np.float64)


def _run(network: "Network", scaling: Scaling, tree: LoopTree, features: FloatArray) -> "torch.Tensor":
    import torch

    contexts, present = scaling.scaled(tree.contexts(features))
    return network(torch.from_numpy(contexts), torch.from_numpy(present))


@contextmanager
def _one_thread() -> Generator[None]:
    """A single thread: batches are small, and other processes may be timed meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _initial(tree: LoopTree, sizes: Sizes, seed: int) -> "Network":
    """With weights that depend on the seed alone, without changing the process's generator."""
    import torch

    from tilewright.tune.models.treegru_network import Network

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(tree, sizes)
