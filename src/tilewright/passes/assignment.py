"""Solver of partitioned boolean quadratic problems (PBQP): choices for the nodes of a graph, with costs of nodes and of
pairs of neighbours (Scholz and Eckstein, "Register Allocation for Irregular Architectures", 2002).

Solved by eliminating node after node, fewest neighbours first (nonserial dynamic programming: Bertele and Brioschi,
1972): a node's best choice is tabulated for all choices of its neighbours. On a chain that is dynamic programming; for
one and two neighbours these are the reductions RI and RII. If such a table would be too large, the node gets the best
choice for it and its neighbours alone (RN), and the result may not be optimal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import prod

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]

LARGEST_TABLE = 1 << 14
"""Maximum entries of a table of best choices."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A choice for each node, the total cost, and whether it is optimal."""

    choices: tuple[int, ...]
    cost: float
    is_best: bool


def assign(
    nodes: Sequence[Costs], edges: Mapping[tuple[int, int], Costs], largest_table: int = LARGEST_TABLE
) -> Assignment:
    """Choices with the least sum of ``nodes[i][choice i]`` and ``edges[i, j][choice i, choice j]``.

    Each node has at least one choice; forbidden ones cost infinity. Edges are between different nodes.
    """
    tables = [_Table((node,), costs) for node, costs in enumerate(nodes)]
    tables.extend(_Table((a, b), costs) for (a, b), costs in edges.items())
    elimination = _Elimination(tables, [len(costs) for costs in nodes], largest_table)
    choices = elimination.run()
    total = sum(float(costs[choices[node]]) for node, costs in enumerate(nodes))
    total += sum(float(costs[choices[a], choices[b]]) for (a, b), costs in edges.items())
    return Assignment(tuple(choices), total, elimination.is_exact)


@dataclass(frozen=True, slots=True)
class _Table:
    """Costs by the choices of some nodes, one dimension for each."""

    nodes: tuple[int, ...]
    costs: Costs

    def over(self, nodes: Sequence[int]) -> Costs:
        """The costs with dimensions for ``nodes``, of extent 1 for independent ones."""
        order = sorted(range(len(self.nodes)), key=lambda position: nodes.index(self.nodes[position]))
        extents = dict(zip(self.nodes, self.costs.shape, strict=True))
        return self.costs.transpose(order).reshape([extents.get(node, 1) for node in nodes])

    def settled(self, node: int, choice: int) -> "_Table":
        """The costs after ``node`` has chosen."""
        position = self.nodes.index(node)
        return _Table(
            self.nodes[:position] + self.nodes[position + 1 :],
            self.costs.take([choice], axis=position).squeeze(position),
        )


class _Elimination:
    """The remaining tables, and, in order, the choice of each eliminated node by the choices of later ones."""

    def __init__(self, tables: Sequence[_Table], sizes: Sequence[int], largest: int) -> None:
        self.is_exact = True
        self._sizes = sizes
        self._largest = largest
        self._tables: dict[int, list[_Table]] = {node: [] for node in range(len(sizes))}
        self._neighbours: dict[int, set[int]] = {node: set() for node in range(len(sizes))}
        self._decided: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []
        for table in tables:
            self._add(table)
        self._entries = {node: self._table_size(node) for node in range(len(sizes))}
        self._queue = [(entries, node) for node, entries in self._entries.items()]
        """A queue by size; entries not in ``_entries`` are out of date."""
        heapify(self._queue)

    def run(self) -> list[int]:
        """A choice for each node."""
        while self._entries:
            entries, node = heappop(self._queue)
            if self._entries.get(node) != entries:
                continue
            if entries > self._largest:
                heappush(self._queue, (entries, node))
                node = max(self._entries, key=lambda n: len(self._neighbours[n]))
                self._settle(node)
            else:
                self._eliminate(node)
            del self._entries[node]
            for other in self._neighbours.pop(node):
                self._entries[other] = self._table_size(other)
                heappush(self._queue, (self._entries[other], other))
        return self._choices()

    def _add(self, table: _Table) -> None:
        for node in table.nodes:
            self._tables[node].append(table)
            self._neighbours[node].update(other for other in table.nodes if other != node)

    def _take(self, node: int) -> list[_Table]:
        """Remove ``node`` and all its tables; its own list of neighbours is kept."""
        taken = self._tables.pop(node)
        for other in self._neighbours[node]:
            self._tables[other] = [table for table in self._tables[other] if node not in table.nodes]
            self._neighbours[other].discard(node)
        return taken

    def _table_size(self, node: int) -> int:
        return self._sizes[node] * prod(self._sizes[other] for other in self._neighbours[node])

    def _eliminate(self, node: int) -> None:
        """Replace all tables of ``node`` by one over its neighbours, with the minimum over its choices."""
        others = tuple(sorted(self._neighbours[node]))
        total = np.zeros([self._sizes[n] for n in (*others, node)])
        for table in self._take(node):
            total = total + table.over((*others, node))
        if others:
            self._add(_Table(others, total.min(axis=-1)))
        self._decided.append((node, others, total.argmin(axis=-1)))

    def _settle(self, node: int) -> None:
        """Fix the choice of ``node`` as if its neighbours had no other neighbours."""
        tables = self._take(node)
        alone = np.zeros(self._sizes[node])
        for table in tables:
            alone = alone + np.moveaxis(table.costs, table.nodes.index(node), 0).reshape(len(alone), -1).min(axis=1)
        choice = alone.argmin()
        self.is_exact = False
        for table in tables:
            if len(table.nodes) > 1:
                self._add(table.settled(node, int(choice)))
        self._decided.append((node, (), np.asarray(choice)))

    def _choices(self) -> list[int]:
        choices = [0] * len(self._sizes)
        for node, others, best in reversed(self._decided):
            choices[node] = int(best[tuple(choices[other] for other in others)])
        return choices
