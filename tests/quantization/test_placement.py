"""Which values are quantized, and who reads them so."""

import itertools

import numpy as np
import onnx
from onnx import helper

from tests.frontend.models import model
from tests.quantization.models import attention, convolutions, normal, perceptron
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph
from tilewright.passes.normalize import normalize
from tilewright.quantization.layers import find_layers
from tilewright.quantization.placement import Placement, place


def graph_of(proto: onnx.ModelProto) -> Graph:
    return normalize(importer.load(proto))


def placed(graph: Graph) -> Placement:
    return place(graph, find_layers(graph).found)


def readers(placement: Placement) -> set[tuple[str, int]]:
    return {(result.name, position) for result, position in placement.readers}


def test_sums_of_sums_are_quantized_if_all_of_their_terms_can_be() -> None:
    """``late`` adds a value that is not quantized: it and the sum before it stay float, which no layer reads."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("Conv", ["p", "w"], ["a"]),
        helper.make_node("Add", ["a", "p"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Concat", ["r", "a"], ["both"], axis=1),
        helper.make_node("AveragePool", ["both"], ["mean"], kernel_shape=[2, 2]),
        helper.make_node("Conv", ["mean", "v"], ["b"]),
        helper.make_node("Sin", ["x"], ["wave"]),
        helper.make_node("Add", ["wave", "x"], ["early"]),
        helper.make_node("Add", ["early", "b0"], ["late"]),
        helper.make_node("Conv", ["late", "w"], ["c"]),
    ]
    constants = {"w": normal(1, 3, 3, 1, 1), "v": normal(2, 3, 6, 1, 1), "b0": normal(3, 1, 3, 4, 4)}
    found = placed(graph_of(model(nodes, {"x": np.ones((1, 3, 4, 4), np.float32)}, ["b", "c"], constants)))
    assert {value.name for value in found.scaled_as} == {"x", "p", "a", "r", "both", "mean", "late"}
    shared = {value.name: root.name for value, root in found.scaled_as.items() if value != root}
    assert shared == {"p": "x"}
    sums = {("s", 0), ("s", 1), ("both", 0), ("both", 1), ("mean", 0)}
    assert readers(found) == {("p", 0), ("a", 0), ("b", 0), ("c", 0)} | sums


def test_the_placement_of_some_layers_is_a_part_of_that_of_all() -> None:
    for make in (convolutions, perceptron, attention):
        graph = graph_of(make())
        layers, whole = find_layers(graph).found, placed(graph)
        for some in itertools.chain(itertools.combinations(layers, 1), itertools.combinations(layers, 2)):
            part = place(graph, some)
            assert part.readers <= whole.readers
            assert part.scaled_as.keys() <= whole.scaled_as.keys()


def test_why_sums_of_products_stay_float() -> None:
    x = np.ones((2, 4), np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["scaled"], name="scaled", alpha=2.0),
        helper.make_node("Gemm", ["x", "scaled"], ["own"], name="own", transB=1),
        helper.make_node("Einsum", ["x", "w"], ["sum"], name="sum", equation="ij,jk->k"),
        helper.make_node("MatMul", ["x", "v"], ["vector"], name="vector"),
    ]
    constants = {"w": normal(1, 4, 4), "v": normal(2, 4)}
    found = find_layers(graph_of(model(nodes, {"x": x}, ["own", "sum", "vector"], constants)))
    assert found.found == ()
    folded = model([helper.make_node("MatMul", ["w", "w"], ["y"])], {"x": x}, ["y"], {"w": normal(1, 40, 40)})
    assert find_layers(importer.load(folded)).refused[0].reason == "its data are constants"
    assert {one.name.split()[1]: one.reason for one in found.refused} == {
        "scaled": "it transposes its data, or scales its results",
        "own": "its weight is computed at run time",
        "sum": "of sums of products, only Conv, Gemm, MatMul are quantized",
        "vector": "it multiplies a vector",
    }
