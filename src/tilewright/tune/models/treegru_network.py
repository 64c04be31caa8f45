"""The network of ``treegru``: from the loops of candidates to one score for each. Requires torch."""

import torch
from torch import Tensor, nn

from tilewright.tune.models.looptree import LoopTree, Sizes


class Network(nn.Module):
    """Embeds loops, runs a GRU up the tree, and sums the states of all loops in memory slots (Chen et al. 2018).

    A loop's state h is scattered over m slots, out_i = softmax(W^T h)_i * h, and slots are summed over the loops: so
    loops with the same role share a slot, for any number of loops and any nest.
    """

    def __init__(self, tree: LoopTree, sizes: Sizes) -> None:
        super().__init__()
        self._parents = tree.parents
        self._embed = nn.Linear(tree.per_loop, sizes.embedding)
        self._cell = nn.GRUCell(sizes.embedding, sizes.hidden)
        self._gate = nn.Linear(sizes.hidden, sizes.slots, bias=False)
        self._reduce = nn.Linear(sizes.slots * sizes.hidden, sizes.hidden)
        self._head = nn.Linear(sizes.hidden, 1)

    def forward(self, contexts: Tensor, present: Tensor) -> Tensor:
        """(candidates,) from (candidates, loops, per_loop) and (candidates, loops), 1 for present loops."""
        memory = torch.zeros(1)
        for state, here in self._states(contexts, present):
            memory = memory + self._scattered(state) * here
        reduced = torch.tanh(self._reduce(memory.flatten(1)))
        return self._head(reduced).squeeze(1)

    def _states(self, contexts: Tensor, present: Tensor) -> list[tuple[Tensor, Tensor]]:
        """States of each loop, innermost first: (candidates, hidden), and (candidates, 1, 1), 1 for present loops."""
        embedded = torch.tanh(self._embed(contexts))
        nothing = torch.zeros(len(contexts), self._cell.hidden_size)
        within = [nothing] * len(self._parents)
        states: list[tuple[Tensor, Tensor]] = []
        for loop in reversed(range(len(self._parents))):
            here = present[:, loop : loop + 1]
            state = self._cell(embedded[:, loop], within[loop])
            states.append((state, here.unsqueeze(2)))
            parent = self._parents[loop]
            if parent is not None:
                # A missing loop passes on the state of its inner loop.
                within[parent] = within[parent] + state * here + within[loop] * (1.0 - here)
        return states

    def _scattered(self, state: Tensor) -> Tensor:
        """(candidates, slots, hidden)."""
        return torch.softmax(self._gate(state), dim=1).unsqueeze(2) * state.unsqueeze(1)
