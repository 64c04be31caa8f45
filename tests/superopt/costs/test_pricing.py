"""Prices of kernels: what naive programs do not show, and how many cores share the work."""

from dataclasses import replace

import pytest

from tests.superopt.networks import Net
from tilewright.base.numerics import Math
from tilewright.compilation import Options
from tilewright.cost.kernels import kernel_cycles
from tilewright.graph import Graph
from tilewright.loops.lower import lower
from tilewright.ops.operator import require
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.superopt.costs.pricing import price
from tilewright.superoptimizer import costs_of
from tilewright.symbolic.expr import const
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=2")
ALONE = replace(TARGET, cores=1)


def test_a_transform_costs_what_it_computes_in_registers() -> None:
    """All sums that its naive program could choose are many times as many as those that it does choose."""
    x = placeholder(tuple(map(const, (1, 64, 56, 56))), name="x")
    options = {"tile": 4, "depth": 1, "pads": (1, 1), "outputs": (56, 56)}
    program = lower(require("WinogradInput").apply([x], options), inputs=[x], trusted=True)
    points = 36 * 14 * 14 * 64
    machine = ALONE.machine
    assert price(program, ALONE) == pytest.approx(machine.kernel_start + points / 16 * machine.transform_cycles)
    assert kernel_cycles(program, ALONE) > 4 * price(program, ALONE)


def _function(op: str, side: int) -> Graph:
    net = Net()
    return net.graph(net(op, net.x("x", side, side)))


def _cost(graph: Graph, target: Target = ALONE) -> float:
    return KernelCosts.of(graph, target, Math.DEFAULT, {}).of_graph(graph)


def test_functions_cost_more_than_comparisons() -> None:
    assert _cost(_function("Sigmoid", 128)) > 2 * _cost(_function("Relu", 128))


def test_a_node_costs_its_arithmetic() -> None:
    relu, sigmoid = (_function(op, 128) for op in ("Relu", "Sigmoid"))
    costs = KernelCosts.of(relu, ALONE, Math.DEFAULT, {})
    cheap, dear, largest = (costs.of_node(graph.nodes[0], ()) for graph in (relu, sigmoid, _function("Sigmoid", 256)))
    assert 0 < cheap < dear
    assert largest == pytest.approx(4 * dear)


def test_the_function_beside_a_product_counts() -> None:
    def product(op: str) -> Graph:
        net = Net()
        return net.graph(net(op, net("MatMul", net.x("x", 64, 8), net.w("w", 8, 64))))

    assert _cost(product("Sigmoid")) > _cost(product("Relu"))


def test_costs_are_those_on_the_threads_of_the_run() -> None:
    graph = _function("Sigmoid", 1024)
    one, two, more = (costs_of(graph, Options(TARGET, threads)).of_graph(graph) for threads in (1, 2, 64))
    assert one > 1.5 * two
    assert two == more == costs_of(graph, Options(TARGET, None)).of_graph(graph)
