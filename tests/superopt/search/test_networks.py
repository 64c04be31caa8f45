"""What TASO found in networks is found here, where it pays, and computes the same."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

import pytest

from tests.closeness import assert_near
from tests.frontend.models import run_onnxruntime
from tests.superopt.networks import Net
from tilewright.base.superopt import Superopt
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Graph, Node, Value, evaluate_graph
from tilewright.ops import FusionKind
from tilewright.passes.normalize import normalize
from tilewright.passes.rules import index_of, matches
from tilewright.superopt.costs.provider import cost_by_nodes
from tilewright.superopt.search.optimization import EFFORTS, Search, built_in_rules
from tilewright.superopt.search.result import Optimized
from tilewright.superopt.validate.validation import random_feeds, validate

TILE = 16
"""Channels are computed so many at once."""


@dataclass(frozen=True)
class Accelerator:
    """A machine on which starting a kernel takes as long as much work does. (Microseconds, made up.)

    What moves elements or computes one from one is part of the kernel beside it, and costs what it reads and writes.
    """

    start: float = 5.0
    per_byte: float = 1e-5
    per_product: float = 1e-5

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        values = [value for value in (*node.inputs, *node.outputs) if value is not None]
        moved = 0.0 if node.op.kind is FusionKind.VIEW else sum(map(_elements, values)) * 4 * self.per_byte
        if node.op.kind is FusionKind.CONTRACTION:
            return self.start + moved + _products(node) * self.per_product
        return moved + (self.start if node.op.kind is FusionKind.REDUCTION else 0.0)

    def of_graph(self, graph: Graph) -> float:
        return cost_by_nodes(graph, self)


def _shape(value: Value | None) -> tuple[int, ...]:
    assert value is not None
    return tuple(int(str(extent)) for extent in value.shape)


def _elements(value: Value) -> int:
    return prod(_shape(value))


def _products(node: Node) -> int:
    """Products of a convolution or of matrices; channels on both sides fill tiles, except where there is one each."""
    weight, result = _shape(node.inputs[1]), _shape(node.outputs[0])
    if node.op.name != "Conv":
        return prod(result) * weight[-2]
    groups = int(str(dict(node.attributes).get("group", 1)))
    filters, depth = weight[0] // groups, weight[1]
    if filters * depth > 1:
        filters, depth = (-(-extent // TILE) * TILE for extent in (filters, depth))
    return prod(result[2:]) * prod(weight[2:]) * groups * filters * depth


def test_queries_keys_and_values() -> None:
    """Three products become one in each layer."""
    found = _optimized(_encoder(layers=2, width=16, heads=2, length=6))
    before, after = (_counts(graph)["MatMul"] for graph in (found.before, found.after))
    assert before - after == 2 * 2
    wide = [node for node in found.after.nodes if node.op.name == "MatMul" and _shape(node.outputs[0])[-1] == 48]
    assert len(wide) == 2


@pytest.mark.parametrize(("groups", "per_group", "left"), [(8, 4, 2), (4, 16, 4), (2, 4, 1)])
def test_groups_that_fill_no_tile_are_joined(groups: int, per_group: int, left: int) -> None:
    """Until they fill one."""
    found = _optimized(_residual_blocks(2, groups, per_group))
    kept = [
        dict(n.attributes)["group"] for n in found.after.nodes if n.op.name == "Conv" and _shape(n.inputs[1])[2] == 3
    ]
    assert kept == [left] * 2


def test_depthwise_convolutions_stay() -> None:
    """They are many in some networks, and have kernels of their own."""
    index = index_of(_residual_blocks(2, 16, 1))
    rules = [rule for rule in built_in_rules() if rule.name.startswith("groups-in-pairs")]
    assert len(rules) == 6
    assert not any(any(matches(rule, index)) for rule in rules)


def test_a_smaller_filter_is_enlarged_and_joined() -> None:
    """The example in TASO's description of itself: 1 x 1 and 3 x 3 beside each other."""
    found = _optimized(_block_of_two_sizes())
    assert _counts(found.before)["Conv"] == 3
    assert _counts(found.after)["Conv"] == 2
    assert _rules(found) == {"enlarged-convolution-beside-another"}


def test_a_filter_is_enlarged_in_one_direction_and_only_around_its_centre() -> None:
    net = Net()
    x = net.x("x", 1, 4, 7, 7)
    row = net("Conv", x, net.w("a", 4, 4, 1, 3), net.w("b", 4), pads=(0, 1, 0, 1), dilations=(1, 1), name="y0")
    whole = net("Conv", x, net.w("c", 4, 4, 3, 3), net.w("d", 4), pads=(1, 1, 1, 1), dilations=(1, 1), name="y1")
    other = net("Conv", x, net.w("e", 4, 4, 3, 3), net.w("f", 4), pads=(2, 1, 0, 1), dilations=(1, 1), name="y2")
    found = _optimized(net.graph(row, whole, other))
    assert _counts(found.after)["Conv"] == 2
    assert _rules(found) == {"enlarged-convolution-beside-another-with-bias"}


def test_an_average_becomes_part_of_a_convolution() -> None:
    """In a cell as NASNet's: an average is a depthwise convolution, and the sum of two such is one.

    So are convolutions of points of which the sum is asked for. An average beside nothing of its kind stays.
    """
    found = _optimized(_cell(channels=4))
    assert _counts(found.before) == Counter({"Conv": 9, "Add": 4, "AveragePool": 2, "Relu": 2, "Concat": 1})
    assert _counts(found.after) == Counter({"Conv": 8, "Add": 2, "AveragePool": 1, "Relu": 2, "Concat": 2})
    assert {"average-as-convolution", "sum-of-filters-with-bias"} <= _rules(found)


def test_parallel_convolutions_become_one() -> None:
    """Of 3 x 3, of 1 x 1, and the identity: a block as RepVGG's trained form."""
    net = Net()
    x = net.x("x", 1, 4, 6, 6)
    large = net("Conv", x, net.w("a", 4, 4, 3, 3), net.w("b", 4), pads=(1, 1, 1, 1), dilations=(1, 1))
    small = net("Conv", x, net.w("c", 4, 4, 1, 1), net.w("d", 4), pads=(0, 0, 0, 0), dilations=(1, 1))
    found = _optimized(net.graph(net("Relu", net("Add", large, small), name="y")))
    assert _counts(found.after) == Counter({"Conv": 1, "Relu": 1})


@pytest.mark.parametrize(("channels", "filters", "strides"), [(16, 4, (1, 1)), (16, 16, (2, 2))])
def test_averages_stand_where_they_are_cheaper(channels: int, filters: int, strides: tuple[int, int]) -> None:
    """After what makes channels fewer, before what reads fewer places."""
    after, before = filters < channels, strides == (2, 2)
    net = Net()
    x = net.x("x", 1, channels, 8, 8)
    pool = {"kernel_shape": (2, 2), "strides": strides}

    def points(value: Value) -> Value:
        weight = net.w("w", filters, channels, 1, 1)
        return net("Conv", value, weight, pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1))

    made = net("AveragePool", points(x), **pool) if before else points(net("AveragePool", x, **pool))
    found = _optimized(net.graph(net("Relu", made, name="y")))
    names = [node.op.name for node in found.after.nodes if node.op.name != "Relu"]
    assert names == (["Conv", "AveragePool"] if after else ["AveragePool", "Conv"])


@pytest.mark.parametrize(("pads", "strides"), [((1, 1, 1, 1), (1, 1)), ((2, 0, 1, 1), (2, 1)), ((0, 0, 0, 0), (1, 1))])
def test_points_with_a_bias_go_into_padded_filters(pads: tuple[int, ...], strides: tuple[int, int]) -> None:
    """Padding has no bias: what it makes at the border is an image that is added."""
    net = Net()
    x = net.x("x", 2, 4, 7, 6)
    points = _conv(net, x, "a", 8, 1)
    y = net("Conv", points, net.w("b", 4, 8, 3, 3), net.w("c", 4), pads=pads, strides=strides, dilations=(1, 1))
    found = _optimized(net.graph(net("Relu", y, name="y")))
    assert _counts(found.after) == Counter({"Conv": 1, "Relu": 1} | ({"Add": 1} if any(pads) else {}))


def test_a_shift_before_padded_filters_is_an_image() -> None:
    net = Net()
    x = net.x("x", 2, 4, 7, 6)
    normal = net("Add", net("Mul", x, net.w("s", 4, 1, 1)), net.w("t", 4, 1, 1))
    found = _optimized(net.graph(_conv(net, normal, "a", 4, 3, has_bias=False)))
    assert _counts(found.after) == Counter({"Conv": 1, "Add": 1})


@pytest.mark.parametrize("parts", [3, 4, 5])
def test_parts_that_are_joined_are_one(parts: int) -> None:
    net = Net()
    x = net.x("x", 2, 12, 3 * parts)
    cuts = (net("Slice", x, axes=(2,), starts=(3 * n,), ends=(3 * n + 3,)) for n in range(parts))
    joined = net("Concat", *cuts, axis=2)
    found = _optimized(net.graph(net("Softmax", joined, axis=-1, name="y")))
    assert _counts(found.after) == Counter({"Softmax": 1})


def test_gates_of_a_recurrent_cell_are_joined() -> None:
    """Sixteen products in each step become no more than two, or less: those of the input need not wait."""
    found = _optimized(_recurrent(steps=2, width=4))
    assert _counts(found.before)["MatMul"] == 2 * 16
    assert _counts(found.after)["MatMul"] <= 2 * 2


# Networks


def _encoder(layers: int, width: int, heads: int, length: int) -> Graph:
    """Layers as BERT's."""
    net = Net()
    x = net.x("x", 1, length, width)
    for layer in range(layers):
        x = _layer(net, x, f"{layer}", heads)
    return net.graph(x)


def _layer(net: Net, x: Value, name: str, heads: int) -> Value:
    _, length, width = _shape(x)

    def dense(value: Value, part: str, filters: int) -> Value:
        weight = net.w(f"{name}.{part}", _shape(value)[-1], filters)
        return net("Add", net("MatMul", value, weight), net.w(f"{name}.{part}.bias", filters))

    def head(value: Value, perm: tuple[int, ...]) -> Value:
        return net("Transpose", net("Reshape", value, shape=(1, length, heads, width // heads)), perm=perm)

    query, key, value = (dense(x, part, width) for part in ("q", "k", "v"))
    scores = net("MatMul", head(query, (0, 2, 1, 3)), head(key, (0, 2, 3, 1)))
    weights = net("Softmax", net("Div", scores, net.number(2.0)), axis=-1)
    seen = net("Transpose", net("MatMul", weights, head(value, (0, 2, 1, 3))), perm=(0, 2, 1, 3))
    attended = dense(net("Reshape", seen, shape=(1, length, width)), "o", width)
    x = _normalized(net, net("Add", x, attended), f"{name}.first")
    inner = net("Gelu", dense(x, "in", 2 * width))
    return _normalized(net, net("Add", x, dense(inner, "out", width)), f"{name}.second")


def _normalized(net: Net, x: Value, name: str) -> Value:
    width = _shape(x)[-1]
    return net("LayerNormalization", x, net.positive(f"{name}.scale", width), net.w(f"{name}.bias", width), axis=-1)


def _residual_blocks(blocks: int, groups: int, per_group: int) -> Graph:
    """Blocks as ResNeXt's."""
    net, width = Net(), groups * per_group
    x = net.x("x", 1, 8, 6, 6)
    for block in range(blocks):
        inner = net("Relu", _conv(net, x, f"{block}.in", width, 1))
        inner = net("Relu", _conv(net, inner, f"{block}.middle", width, 3, groups))
        x = net("Relu", net("Add", x, _conv(net, inner, f"{block}.out", 8, 1)))
    return net.graph(x)


def _conv(net: Net, x: Value, name: str, filters: int, kernel: int, group: int = 1, *, has_bias: bool = True) -> Value:
    weight = net.w(name, filters, _shape(x)[1] // group, kernel, kernel)
    bias = [net.w(f"{name}.bias", filters)] if has_bias else []
    return net("Conv", x, weight, *bias, pads=(kernel // 2,) * 4, dilations=(1, 1), strides=(1, 1), group=group)


def _block_of_two_sizes() -> Graph:
    net = Net()
    x = net.x("x", 1, 8, 6, 6)
    left = net("Relu", _conv(net, x, "a", 8, 3, has_bias=False))
    left = _conv(net, left, "b", 8, 3, has_bias=False)
    right = net("Relu", _conv(net, x, "c", 8, 1, has_bias=False))
    return net.graph(net("Relu", net("Add", left, right)))


def _cell(channels: int) -> Graph:
    """Sums as in NASNet's normal cell: of separable convolutions, averages and what comes in."""
    net = Net()
    x, y = (net("Relu", _conv(net, net.x(name, 1, 6, 6, 6), f"{name}.in", channels, 1)) for name in ("x", "y"))

    def separable(value: Value, name: str, kernel: int) -> Value:
        each = _conv(net, value, f"{name}.each", channels, kernel, channels, has_bias=False)
        return _conv(net, each, f"{name}.mixed", channels, 1)

    def average(value: Value) -> Value:
        window = {"kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1)}
        return net("AveragePool", value, ceil_mode=False, count_include_pad=True, **window)

    sums = [
        net("Add", separable(x, "a", 3), x),
        net("Add", average(x), _conv(net, x, "b", channels, 3, channels)),
        net("Add", average(y), x),
        net("Add", separable(y, "c", 5), separable(y, "d", 3)),
    ]
    return net.graph(net("Concat", *sums, axis=1))


def _recurrent(steps: int, width: int) -> Graph:
    """The cell of Zoph and Le, "Neural Architecture Search with Reinforcement Learning" (ICLR 2017), as TASO has it."""
    net = Net()
    state = net.x("state", 1, width)
    for step in range(steps):
        state = _cell_step(net, net.x(f"x{step}", 1, width), state)
    return net.graph(state)


def _cell_step(net: Net, x: Value, state: Value) -> Value:
    width = _shape(x)[-1]

    def gate(number: int, activation: str) -> Value:
        products = (net("MatMul", v, net.w(f"{kind}{number}", width, width)) for v, kind in ((x, "w"), (state, "u")))
        return net(activation, net("Relu", net("Add", *products)))

    first = net("Add", gate(0, "Relu"), gate(3, "Sigmoid"))
    second = net("Add", gate(1, "Sigmoid"), gate(2, "Tanh"))
    third = net("Mul", gate(4, "Sigmoid"), gate(5, "Tanh"))
    fourth = net("Mul", gate(6, "Sigmoid"), gate(7, "Relu"))
    left = net("Add", net("Tanh", first), net("Tanh", second))
    return net("Tanh", net("Mul", left, net("Mul", net("Tanh", third), net("Tanh", fourth))))


# The search, and what it is held to


def _optimized(graph: Graph) -> Optimized:
    """The best that a quick search finds; it ends by its counts, and is held against what it began with."""
    graph = normalize(graph)
    search = Search(built_in_rules(), replace(EFFORTS[Superopt.FAST], gain=0.0), clock=lambda: 0.0)
    found = search.optimize(graph, Accelerator())
    assert all(one.cost_after <= one.cost_before for one in found)
    best = found[0]
    assert not best.steps or best.cost_after == pytest.approx(Accelerator().of_graph(best.after))
    assert validate(graph, best.after).is_complete
    feeds = random_feeds(graph, 0)
    folded = normalize(best.after)
    theirs = run_onnxruntime(exporter.export(graph), feeds)
    for their, our in zip(theirs, evaluate_graph(folded, feeds), strict=True):
        assert_near(our, their, 1e-5)
    return Optimized(best.before, folded, best.steps, best.cost_before, best.cost_after)


def _counts(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes)


def _rules(found: Optimized) -> set[str]:
    return {step.rule.name for step in found.steps}
