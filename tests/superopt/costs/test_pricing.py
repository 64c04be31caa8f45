"""Prices of kernels: what naive programs do not show, and how many cores share the work."""

from dataclasses import replace

import pytest

from tests.superopt.networks import Net
from tilewright.base.dtypes import i64
from tilewright.base.numerics import Math
from tilewright.compilation import Options
from tilewright.graph import Graph, Value, make_node
from tilewright.loops.lower import lower
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.superopt.costs.pricing import Rates, price
from tilewright.superoptimizer import costs_of
from tilewright.symbolic.expr import const
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder

TARGET = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M,cores=2")
ALONE = replace(TARGET, cores=1)


def test_a_transform_costs_what_it_computes_in_registers() -> None:
    """All sums that its naive program could choose are many times as many as those that it does choose."""
    x = placeholder(tuple(map(const, (1, 64, 56, 56))), name="x")
    options = {
        "tile": (4, 4),
        "taps": (3, 3),
        "strides": (1, 1),
        "dilations": (1, 1),
        "depth": 1,
        "pads": (1, 1),
        "outputs": (56, 56),
    }
    program = lower(require("WinogradInput").apply([x], options), inputs=[x], trusted=True)
    points, places, machine = 36 * 14 * 14 * 64, 64 * 56 * 56, ALONE.machine
    half = ALONE.l2_bytes / 2
    moved = half / machine.near_bytes + (4 * (points + places) - half) / machine.far_bytes
    expected = machine.call_cycles + points / 16 * machine.transform_cycles + moved
    assert price(program, ALONE) == pytest.approx(expected)


def test_a_transform_back_computes_fewer_values() -> None:
    """4 x 6 and 4 x 4 of each 6 x 6 points, whereas those of the data are 6 x 6 twice."""
    tiles = placeholder(tuple(map(const, (6, 6, 1, 7, 7, 64))), name="tiles")
    options = {"tile": (4, 4), "taps": (3, 3), "strides": (1, 1), "dilations": (1, 1), "outputs": (28, 28)}
    made = require("WinogradOutput").apply([tiles], options)
    program = lower(made, inputs=[tiles], trusted=True)
    points, places, machine = 36 * 7 * 7 * 64, 64 * 28 * 28, ALONE.machine
    computing = (24 + 16) / 72 * points / 16 * machine.transform_cycles
    half, size = ALONE.l2_bytes / 2, 4 * (points + places)
    moved = min(size, half) / machine.near_bytes + max(0, size - half) / machine.far_bytes
    assert price(program, ALONE) == pytest.approx(machine.call_cycles + computing + moved)


def test_a_step_reads_all_weights_again() -> None:
    """A recurrence of more steps costs as much more, though each of its programs reads the same bytes."""

    def cost(steps: int) -> float:
        net = Net()
        functions: dict[str, Attribute] = {
            "activations": ("Sigmoid", "Tanh", "Tanh"),
            "alphas": (0.0,) * 3,
            "betas": (0.0,) * 3,
        }
        x, r = net.x("x", steps, 1, 4 * 256), net.w("r", 4 * 256, 256)
        return _cost(net.graph(net("LSTM", x, r, name="y", **functions)))

    step = 4 * 4 * 256 * 256 / ALONE.machine.near_bytes
    assert cost(16) > 16 * step and cost(64) - cost(16) > 48 * step


def test_copies_to_another_layout_cost_more_than_others() -> None:
    net = Net()
    x = net.x("x", 128, 128)
    moved = net.graph(net("Relu", net("Transpose", x, perm=(1, 0))))
    assert _cost(moved) > 1.5 * _cost(_function("Relu", 128))


def test_weights_are_read_from_memory_if_they_fill_the_cache() -> None:
    net = Net()
    graph = net.graph(net("MatMul", net.x("x", 1, 512), net.w("w", 512, 512)))
    size = 4 * 512 * 512
    large, less, small = (_cost(graph, replace(ALONE, l2_bytes=int(l2 * size))) for l2 in (2.0, 0.9, 0.5))
    assert large < 0.8 * less < 0.8 * small
    assert small > 1.5 * large


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


def _row(columns: int) -> Graph:
    """One row by a matrix of 4 KiB for each column."""
    net = Net()
    return net.graph(net("MatMul", net.x("x", 1, 1024), net.w("w", 1024, columns)))


LEVELS = replace(ALONE, machine=replace(ALONE.machine, third_bytes=16.0, memory_bytes=2.0, third_share=16 << 20))


@pytest.mark.parametrize(("columns", "rate"), [(2048, 16.0), (4096, 2.0), (8192, 2.0)])
def test_weights_come_from_the_level_that_holds_all_of_them(columns: int, rate: float) -> None:
    """8, 16 and 32 MiB: of 32 MiB of the third cache, 16 are this program's."""
    streaming = LEVELS.machine.cold_start + 4 * 1024 * columns / rate
    assert streaming < _cost(_row(columns), LEVELS) < 1.6 * streaming


def test_values_pass_beside_many_weights() -> None:
    """What is written over has left the third cache, as the weights have."""
    few, many = Rates.of(4 << 20, LEVELS), Rates.of(64 << 20, LEVELS)
    x = placeholder(tuple(map(const, (2048, 2048))), name="x")
    program = lower(require("Relu").apply([x], {}), inputs=[x], trusted=True)
    moved = 2 * 4 * 2048**2 - LEVELS.l2_bytes / 2
    difference = price(program, LEVELS, rates=many) - price(program, LEVELS, rates=few)
    assert difference == pytest.approx(moved / 2.0 - moved / LEVELS.machine.far_bytes, rel=0.05)


def test_tiles_wait_for_weights_even_if_they_would_fit_the_second_cache() -> None:
    """Of a network of many weights, none is there: a few rows do not hide them, many do."""

    def ratio(rows: int) -> float:
        x, w = (placeholder(tuple(map(const, shape)), name=n) for n, shape in (("x", (rows, 256)), ("w", (256, 256))))
        program = lower(require("MatMul").apply([x, w], {}), inputs=[x, w], trusted=True)
        far, near = (price(program, LEVELS, ["w"], Rates.of(size, LEVELS)) for size in (64 << 20, 1))
        return far / near

    assert ratio(2) > 5
    assert ratio(2048) < 1.2


def test_steps_read_weights_beyond_the_second_cache_at_a_rate_of_their_own() -> None:
    net = Net()
    x, r = net.x("x", 16, 1, 4 * 512), net.w("r", 4 * 512, 512)
    functions: dict[str, Attribute] = {
        "activations": ("Sigmoid", "Tanh", "Tanh"),
        "alphas": (0.0,) * 3,
        "betas": (0.0,) * 3,
    }
    graph = net.graph(net("LSTM", x, r, name="y", **functions))
    slow, fast = (replace(ALONE, machine=replace(ALONE.machine, step_bytes=rate)) for rate in (2.0, 4.0))
    read = 16 * 4 * 4 * 512 * 512
    assert _cost(graph, slow) - _cost(graph, fast) == pytest.approx(read / 2.0 - read / 4.0)


@pytest.mark.parametrize("columns", [64, 512])
def test_a_normalization_of_rows_computes_in_lanes(columns: int) -> None:
    """Two sums, a difference, a scale, a product and a shift of each element, and two sums of lanes for each row."""
    rows, net, machine = 128, Net(), ALONE.machine
    x, scale, shift = net.x("x", rows, columns), net.w("g", columns), net.w("b", columns)
    cycles = _cost(net.graph(net("LayerNormalization", x, scale, shift, axis=-1)))
    elements, passed = 6 * rows * columns / 16 * machine.plain_cycles, 8 * rows * columns / machine.near_bytes
    assert elements < cycles < elements + passed + 50 * rows + machine.call_cycles


def test_short_rows_cost_more_than_their_elements() -> None:
    def cost(rows: int, columns: int) -> float:
        net = Net()
        return _cost(net.graph(net("Softmax", net.x("x", rows, columns), axis=-1)))

    assert cost(1024, 32) > 1.1 * cost(64, 512)


def test_a_product_that_is_added_costs_an_operation() -> None:
    """A node of several operations on each element, as a normalization of channels by known statistics is."""
    net, weights = Net(), ("g", "b", "m", "v")
    x = net.x("x", 1, 64, 32, 32)
    graph = net.graph(net("BatchNormalization", x, *(net.positive(name, 64) for name in weights)))
    costs = KernelCosts.of(graph, ALONE, Math.DEFAULT, {})
    assert costs.of_node(graph.nodes[0], weights) > 1.9 * 64 * 32 * 32 / 16 * ALONE.machine.plain_cycles


def test_of_a_table_only_rows_that_are_read_come_from_memory() -> None:
    net = Net()
    table, ids = net.w("table", 4096, 512), Value("ids", i64, (const(16),))
    node = make_node(require("Gather"), [table, ids], ["y"], {"axis": 0})
    graph = Graph("g", (ids,), node.outputs, (node,), net.constants)
    streaming = LEVELS.machine.cold_start + 16 * 4 * 512 / LEVELS.machine.third_bytes
    assert _cost(graph, LEVELS) == pytest.approx(LEVELS.machine.call_cycles + streaming)


def test_attention_in_one_kernel_costs_its_products() -> None:
    """A body of loops, of which the last part is smaller than the others."""
    heads, length, width = 4, 128, 32
    q, k, v = (placeholder(tuple(map(const, (1, heads, length, width))), name=name) for name in "qkv")
    made = require("BlockAttention").apply([q, k, v], {"are_rows": True})
    program = lower(made, inputs=[q, k, v], trusted=True)
    products = 2 * heads * length * length * width
    assert price(program, ALONE) > products / ALONE.fma_per_cycle / 16
