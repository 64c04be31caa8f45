"""A graph is split into parts that each see what they read."""

import onnx

from tests.offload.models import Writer
from tilewright.compilation import ALONE, Options
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph, verify
from tilewright.offload.accelerator import Accelerator, Placing
from tilewright.offload.partition import Split, split
from tilewright.passes.parts import parts
from tilewright.target.target import Target


def made(proto: onnx.ModelProto) -> Split:
    accelerator = Accelerator(placing=Placing.ALWAYS)
    return split(importer.load(proto, {}), accelerator, Options(Target.host(), threads=1), ALONE)


def two_ways() -> onnx.ModelProto:
    """A convolution in groups between two plain ones; a plain one beside it, whose result is added at the end."""
    net = Writer()
    x = net.input(1, 8, 6, 6)
    first = net.convolution(x, 8)
    deep = net.convolution(first, 16, group=8)
    beside = net.convolution(first, 8)
    last = net.convolution(deep, 8)
    return net.model(x, net.addition(last, beside))


def test_regions_are_as_large_as_the_order_allows() -> None:
    """What stands beside the convolution in groups is computed before it; what needs it, after it."""
    found = made(two_ways())
    assert [len(region.units) for region in found.regions.values()] == [2, 2]
    first, second = found.regions.values()
    assert len(first.outputs) == 2
    assert set(second.inputs) >= {first.outputs[1]} or set(second.inputs) >= {first.outputs[0]}
    assert [stays.operator for stays in found.stays] == ["Conv"]


def test_nodes_are_in_order_and_none_is_left_over() -> None:
    found = made(two_ways())
    verify(found.graph)
    operators = [node.op.name for node in found.graph.nodes]
    assert operators.count("Conv") == 1
    assert sum(name.startswith("accelerator") for name in operators) == 2
    assert "Add" not in operators


def test_a_weight_is_dequantized_where_it_is_read() -> None:
    """In the part of its convolution, where both become one operator on bytes."""
    found = parts(made(two_ways()).graph)
    (part,) = [step for step in found if isinstance(step, Graph) and any(n.op.name == "Conv" for n in step.nodes)]
    (convolution,) = [node for node in part.nodes if node.op.name == "Conv"]
    producers = part.producers()
    for operand in convolution.inputs:
        assert operand is not None
        assert producers[operand].op.name == "DequantizeLinear"
    assert len(part.inputs) == 1
