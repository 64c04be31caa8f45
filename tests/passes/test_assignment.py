"""Assignments: equal to brute force on small random graphs, and never better than it where a node was settled first."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.passes.assignment import Costs, assign

Problem = tuple[list[Costs], dict[tuple[int, int], Costs]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to seven nodes with up to four choices, any edges; small integers (with many ties) and forbidden choices."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=7))
    nodes = [random.integers(0, 9, size).astype(np.float64) for size in sizes]
    density = draw(st.sampled_from([0.2, 0.5, 1.0]))
    edges: dict[tuple[int, int], Costs] = {}
    for a in range(len(sizes)):
        for b in range(len(sizes)):
            if a != b and random.random() < density / 2:
                costs = random.integers(0, 9, (sizes[a], sizes[b])).astype(np.float64)
                costs[random.random(costs.shape) < 0.1] = np.inf
                edges[a, b] = costs
    return nodes, edges


def cost(nodes: list[Costs], edges: dict[tuple[int, int], Costs], choices: tuple[int, ...]) -> float:
    own = sum(costs[choice] for costs, choice in zip(nodes, choices, strict=True))
    return float(own + sum(costs[choices[a], choices[b]] for (a, b), costs in edges.items()))


def least(nodes: list[Costs], edges: dict[tuple[int, int], Costs]) -> float:
    return min(cost(nodes, edges, choices) for choices in product(*(range(len(costs)) for costs in nodes)))


@given(problems())
@settings(max_examples=150)
def test_nothing_costs_less(problem: Problem) -> None:
    found = assign(*problem)
    assert found.is_best
    assert found.cost == cost(*problem, found.choices) == least(*problem)


@given(problems(), st.sampled_from([1, 4, 16]))
@settings(max_examples=100)
def test_small_tables_are_kept(problem: Problem, largest: int) -> None:
    """With small tables the choices are still choices, and whether they are the best is not claimed falsely."""
    found = assign(*problem, largest_table=largest)
    assert found.cost == cost(*problem, found.choices)
    assert found.cost >= least(*problem)
    if found.is_best:
        assert found.cost == least(*problem)


def test_a_long_chain() -> None:
    """Dynamic programming: alternating choices are cheap, and the first one decides all."""
    nodes: list[Costs] = [np.array([0.0, 5.0]), *(np.zeros(2) for _ in range(999))]
    edges = {(i, i + 1): np.array([[1.0, 0.0], [0.0, 1.0]]) for i in range(999)}
    found = assign(nodes, edges)
    assert found.choices == tuple(i % 2 for i in range(1000))
    assert (found.cost, found.is_best) == (0.0, True)


def test_where_tables_would_be_too_large() -> None:
    """Everyone is everyone's neighbour: somebody is settled first, and the result says so."""
    nodes: list[Costs] = [np.array([0.0, 1.0, 2.0])] * 12
    edges = {(a, b): np.eye(3) * 10 for a in range(12) for b in range(a)}
    found = assign(nodes, edges, largest_table=100)
    assert not found.is_best
    assert found.cost == pytest.approx(cost(nodes, edges, found.choices))
