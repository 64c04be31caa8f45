"""Whole graphs are priced without the numbers of their weights: that must not change what they cost."""

import numpy as np

from tests.passes.test_shared_weights import cells
from tests.superopt.search.test_backtracking import value
from tilewright.base.numerics import Math
from tilewright.graph import Graph, Node, make_node
from tilewright.ops.operator import require
from tilewright.ops.winograd import transformed_filter
from tilewright.passes.shared_weights import share_weights
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.target.target import Target

TARGET = Target.parse("x86_64,znver5,l1=48K,l2=1M,l3=32M,cores=2")
RANDOM = np.random.default_rng(0)


def products(*arrays: np.ndarray) -> Graph:
    """The sum of products of one matrix with each of ``arrays``."""
    x = value("x", 8, 64)
    constants = {value(f"w{number}", 64, 64): array for number, array in enumerate(arrays)}
    nodes: list[Node] = [
        make_node(require("MatMul"), [x, weight], [f"y{number}"], {}) for number, weight in enumerate(constants)
    ]
    total = nodes[0].outputs[0]
    for number, product in enumerate(nodes[1:]):
        nodes.append(make_node(require("Add"), [total, product.outputs[0]], [f"s{number}"], {}))
        total = nodes[-1].outputs[0]
    return Graph("g", (x,), (total,), tuple(nodes), constants)


def cost(graph: Graph) -> float:
    return KernelCosts.of(graph, TARGET, Math.DEFAULT, {}).of_graph(graph)


def test_weights_of_one_shape_stay_different() -> None:
    one, other = (RANDOM.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    assert cost(products(one, other)) > 1.5 * cost(products(one))


def test_what_is_known_of_another_graph_changes_no_cost() -> None:
    arrays = [RANDOM.standard_normal((64, 64)).astype(np.float32) for _ in range(3)]
    small, large = products(*arrays[:1]), products(*arrays)
    shared = KernelCosts.of(large, TARGET, Math.DEFAULT, {})
    assert [shared.of_graph(small), shared.of_graph(large)] == [cost(small), cost(large)]


def test_products_of_one_matrix_cost_what_they_are_compiled_to() -> None:
    apart = cells(steps=4, layers=1)
    joined = share_weights(apart)
    assert len(joined.nodes) > len(apart.nodes)
    assert cost(apart) == cost(joined)


def test_a_filter_of_one_number_is_transformed_as_any_other() -> None:
    shape = (4, 3, 3, 3)
    broadcast = np.broadcast_to(np.float32(0.7), shape)
    for group in (1, 2):
        np.testing.assert_array_equal(
            transformed_filter(broadcast, (4, 4), group),
            transformed_filter(np.full(shape, 0.7, np.float32), (4, 4), group),
        )
