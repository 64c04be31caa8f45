"""Pieces are the whole, alike ones are searched once, and what is put together computes the same."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.superopt.search.test_backtracking import RANDOM, Counted, same, value
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops.operator import require
from tilewright.passes.rules import SEARCH, load_rules
from tilewright.superopt.search.backtracking import Backtracking
from tilewright.superopt.search.partition import Form, pieces, searched
from tilewright.superopt.search.result import State


def layers(count: int, widths: tuple[int, ...] = (4, 4, 4)) -> Graph:
    """Each layer: products of one matrix, and their sum."""
    x = value("x", 3, 4)
    constants: dict[Value, Array] = {}
    nodes: list[Node] = []
    last = x
    for layer in range(count):
        made: list[Value] = []
        for number, width in enumerate(widths):
            weight = value(f"w{layer}.{number}", 4, width)
            constants[weight] = RANDOM.standard_normal((4, width)).astype(np.float32) / 4
            nodes.append(make_node(require("MatMul"), [last, weight], [f"y{layer}.{number}"], {}, f"layer {layer}"))
            made += nodes[-1].outputs
        for number, other in enumerate(made[1:]):
            nodes.append(make_node(require("Add"), [made[0], other], [f"s{layer}.{number}"], {}, f"layer {layer}"))
            made[0] = nodes[-1].outputs[0]
        last = made[0]
    return Graph("g", (x,), (last,), tuple(nodes), constants)


@given(st.integers(1, 7), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_pieces_have_every_node_once_and_few_enough(count: int, most: int) -> None:
    graph = layers(count)
    found = pieces(graph, most)
    assert sorted(n.outputs[0].name for p in found for n in p.nodes) == sorted(n.outputs[0].name for n in graph.nodes)
    known = set(graph.inputs)
    for piece in found:
        assert 0 < len(piece.nodes) <= most
        assert known.issuperset(piece.inputs)
        known |= set(piece.outputs)
    assert known.issuperset(graph.outputs)


def test_it_is_cut_between_layers() -> None:
    """Where one value crosses."""
    assert [len(piece.nodes) for piece in pieces(layers(4), 7)] == [5, 5, 5, 5]
    assert all(len(piece.outputs) == 1 for piece in pieces(layers(4), 12))


def test_alike_layers_are_searched_once() -> None:
    graph = layers(6)
    asked: list[Graph] = []
    search = Backtracking(load_rules(SEARCH), Counted())

    def counted(piece: Graph) -> State:
        asked.append(piece)
        return search.best(piece)

    found = searched(graph, 7, counted)
    assert len(asked) == 1
    assert sum(node.op.name == "MatMul" for node in found.graph.nodes) == 6
    assert len({step.replaced for step in found.steps}) == len(found.steps) == 12
    assert {node.source for node in found.graph.nodes} == {f"layer {layer}" for layer in range(6)}
    same(graph, found.graph)


def test_what_a_rule_may_ask_for_is_part_of_the_form() -> None:
    """A number that a constant has everywhere; not the names, nor weights. A constant without elements has none."""

    def form(array: Array, name: str = "c") -> object:
        x, constant = value("x", *array.shape[:-1], 30), value(name, *array.shape)
        node = make_node(require("Mul"), [x, constant], [f"{name}.y"], {})
        return Form.of(Graph("g", (x,), node.outputs, (node,), {constant: array.astype(np.float32)})).key

    ones, ramp = np.ones(30), np.arange(30)
    assert form(ramp) == form(ramp + 1) == form(ramp, "other")
    assert len({form(ones), form(2 * ones), form(ramp), form(np.ones(1)), form(np.zeros(1))}) == 5
    assert form(np.ones((0, 30))) == form(np.zeros((0, 30)))


@given(st.lists(st.sampled_from([(4,), (4, 4), (4, 4, 4, 4)]), min_size=1, max_size=3), st.integers(2, 30))
@settings(max_examples=15, deadline=None)
def test_what_is_put_together_computes_the_same(widths: list[tuple[int, ...]], most: int) -> None:
    graph = layers(4, widths[0])
    search = Backtracking(load_rules(SEARCH), Counted())
    found = searched(graph, most, search.best)
    assert abs(found.cost - search.cost(found.graph)) < 1e-6
    same(graph, found.graph)
