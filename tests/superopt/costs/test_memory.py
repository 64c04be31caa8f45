"""The estimate of memory, against a simulation; and searches that keep within a limit."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.superopt.search.test_backtracking import RANDOM, Counted, products, same, value
from tilewright.base.superopt import Strategy, Superopt
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops.operator import require
from tilewright.passes.rules import SEARCH, load_rules
from tilewright.superopt.costs.memory import peak_memory, size_of
from tilewright.superopt.search.optimization import EFFORTS, Search

Drawn = Sequence[tuple[int, int, bool]]


def graph_of(drawn: Drawn) -> Graph:
    """Nodes that each read two of the values before, or see one; every third value leaves."""
    x = value("x", 3, 4)
    values, nodes = [x], list[Node]()
    for number, (first, second, is_view) in enumerate(drawn):
        left, right = values[first % len(values)], values[second % len(values)]
        op, inputs = ("Flatten", [left]) if is_view else ("Add", [left, right])
        nodes.append(make_node(require(op), inputs, [f"v{number}"], {}))
        values.append(nodes[-1].outputs[0])
    return Graph("g", (x,), tuple(values[1::3]), tuple(nodes), {})


def simulated(graph: Graph) -> int:
    """Bytes of all buffers that something not yet run reads, that just was made, or that leave; one by one."""
    root: dict[Value, Value] = {}
    for node in graph.nodes:
        (made,) = node.outputs
        seen = node.inputs[0] if node.op.name == "Flatten" else None
        root[made] = made if seen is None else root.get(seen, seen)
    peak = 0
    for position, node in enumerate(graph.nodes):
        made = {root[n.outputs[0]] for n in graph.nodes[: position + 1]} - set(graph.inputs)
        later = [v for n in graph.nodes[position:] for v in n.inputs if v is not None]
        needed = {root.get(v, v) for v in (*later, *node.outputs, *graph.outputs)}
        peak = max(peak, sum(size_of(buffer) for buffer in made & needed))
    return peak


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=9))
def test_the_peak_is_that_of_a_simulation(drawn: Drawn) -> None:
    graph = graph_of(drawn)
    assert peak_memory(graph) == simulated(graph)


def test_weights_are_kept_and_what_they_are_made_of_is_not() -> None:
    x, v, w = value("x", 3, 4), value("v", 4, 2), value("w", 4, 6)
    joined = make_node(require("Concat"), [v, w], ["joined"], {"axis": 1})
    product = make_node(require("MatMul"), [x, joined.outputs[0]], ["y"], {})
    arrays = {weight: RANDOM.standard_normal((4, n)).astype("float32") for weight, n in ((v, 2), (w, 6))}
    graph = Graph("g", (x,), product.outputs, (joined, product), arrays)
    assert peak_memory(graph) == 4 * (4 * 8 + 3 * 8)


def test_no_graph_takes_more_than_the_limit() -> None:
    """One product of three matrices is there together with its parts."""
    graph, effort = products(3), EFFORTS[Superopt.FAST]
    for strategy in Strategy:
        free = Search(load_rules(SEARCH), effort, strategy)
        (best, *_) = free.optimize(graph, Counted())
        same(graph, best.after)
        needed = peak_memory(best.after)
        assert needed > peak_memory(graph)
        for limit, is_found in ((needed, True), (needed - 1, False)):
            limited = Search(load_rules(SEARCH), effort, strategy, memory=limit)
            after = limited.optimize(graph, Counted())[0].after
            assert peak_memory(after) <= limit
            assert (peak_memory(after) == needed) == is_found


def test_what_takes_too_much_anyway_is_not_made_worse() -> None:
    graph = products(2)
    found = Search(load_rules(SEARCH), EFFORTS[Superopt.FAST], memory=1).optimize(graph, Counted())
    assert all(peak_memory(one.after) <= peak_memory(graph) for one in found)
