"""Models that compute shapes at run time, with run-time extents, against ONNX Runtime at many sizes."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tilewright.base.errors import BadFeed
from tilewright.base.settings import Settings

Array = NDArray[np.generic]
Extents = Mapping[str, int]
Shape = Sequence[int | str]

CHECKED = Settings(bounds_check=True, cache_dir=None)
node = helper.make_node


def integers(*values: int) -> Array:
    return np.array(values, np.int64)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    constants: Mapping[str, Array],
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(
    proto: onnx.ModelProto, sizes: Sequence[Extents], bounds: Extents, tolerance: float = 1e-4
) -> tilewright.CompiledModel:
    """Compiled once, with bounds checks, the model gives what ONNX Runtime does, at all sizes."""
    compiled = tilewright.compile(proto, bounds=bounds, threads=1, settings=CHECKED)
    for extents in sizes:
        feeds = random_feeds(proto, extents)
        for ours, theirs in zip(compiled.run(None, feeds), run_onnxruntime(proto, feeds), strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), extents
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=str(extents))
    return compiled


def random_feeds(proto: onnx.ModelProto, extents: Extents) -> dict[str, Array]:
    random = np.random.default_rng(sum(extents.values()))
    feeds: dict[str, Array] = {}
    for info in proto.graph.input:
        kind = info.type.tensor_type
        shape = [extents[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        is_float = kind.elem_type == TensorProto.FLOAT
        feeds[info.name] = (
            random.standard_normal(shape).astype(np.float32) if is_float else random.integers(0, 4, shape)
        )
    return feeds


SHAPE_OF_X = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "i0"], ["b"]), node("Gather", ["s", "i1"], ["n"])]
INDICES = {"i0": np.array(0), "i1": np.array(1), "axis0": integers(0), "axis1": integers(1)}


def test_factors_of_an_extent_cancel_where_one_is_inferred() -> None:
    """The mask of padding in PyTorch's encoder: ``[b * 4, 1, n]`` as ``[b, 4, -1, n]``."""
    nodes = [
        *SHAPE_OF_X,
        node("Unsqueeze", ["b", "axis0"], ["b1"]),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Mul", ["b1", "four"], ["rows"]),
        node("Concat", ["rows", "i_1", "n1"], ["one"], axis=0),
        node("Reshape", ["x", "one"], ["r"]),
        node("Concat", ["b1", "four", "rest", "n1"], ["other"], axis=0),
        node("Reshape", ["r", "other"], ["y"]),
    ]
    constants = {**INDICES, "four": integers(4), "i_1": integers(1), "rest": integers(-1)}
    check(model(nodes, {"x": ["b", "n", 4]}, ["y"], constants), [{"b": 2, "n": 3}, {"b": 1, "n": 5}], {})


def test_heads_are_split_and_merged() -> None:
    """Reshape to a shape that is put together from extents, and back: attention as exporters write it."""
    nodes = [
        *SHAPE_OF_X,
        node("Unsqueeze", ["b", "axis0"], ["b1"]),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Concat", ["b1", "n1", "heads", "rest"], ["split"], axis=0),
        node("Reshape", ["x", "split"], ["r"]),
        node("Transpose", ["r"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["r"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "q"], ["o"]),
        node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        node("Concat", ["b1", "n1", "whole"], ["merge"], axis=0),
        node("Reshape", ["t", "merge"], ["y"]),
    ]
    constants = {**INDICES, "heads": integers(4), "rest": integers(-1), "whole": integers(16)}
    proto = model(nodes, {"x": ["b", "n", 16]}, ["y"], constants)
    sizes = [{"b": b, "n": n} for b, n in ((1, 1), (2, 7), (3, 16), (1, 33), (5, 2))]
    for bounds in ({"b": 8, "n": 40}, {"n": 40}):
        check(proto, sizes, bounds)


def test_positions_by_range_and_by_a_slice_of_a_table() -> None:
    nodes = [
        *SHAPE_OF_X,
        node("Range", ["i0", "n", "i1"], ["places"]),
        node("Gather", ["table", "places"], ["by_range"]),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Slice", ["ids", "axis0", "n1", "axis1"], ["cut"]),
        node("Gather", ["table", "cut"], ["by_slice"]),
        node("Add", ["x", "by_range"], ["a"]),
        node("Add", ["a", "by_slice"], ["y"]),
    ]
    table = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    proto = model(nodes, {"x": ["b", "n", 8]}, ["y"], {**INDICES, "table": table, "ids": np.arange(16)[None]})
    check(proto, [{"b": b, "n": n} for b, n in ((0, 3), (1, 1), (2, 5), (3, 16), (2, 0))], {"b": 3})
    compiled = tilewright.compile(proto, bounds={"b": 3}, threads=1)
    with pytest.raises(BadFeed, match="extent 'n' is 17, but the model was compiled for 0 to 16"):
        compiled(np.zeros((1, 17, 8), np.float32))


def test_a_mask_is_expanded_as_exporters_do() -> None:
    """``torch``'s expand: a shape in which -1 would keep an extent, replaced by ones."""
    nodes = [
        *SHAPE_OF_X,
        node("Unsqueeze", ["b", "axis0"], ["b1"]),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Concat", ["b1", "i1v", "n1", "n1"], ["wanted"], axis=0),
        node("Shape", ["wanted"], ["rank"]),
        node("ConstantOfShape", ["rank"], ["ones"], value=numpy_helper.from_array(integers(1))),
        node("Mul", ["ones", "minus"], ["keep"]),
        node("Equal", ["wanted", "keep"], ["is_kept"]),
        node("Where", ["is_kept", "ones", "wanted"], ["target"]),
        node("Unsqueeze", ["x", "axes12"], ["wide"]),
        node("Expand", ["wide", "target"], ["mask"]),
        node("ConstantOfShape", ["target"], ["like"], value=numpy_helper.from_array(np.array([0.5], np.float32))),
        node("Sub", ["mask", "like"], ["y"]),
    ]
    constants = {**INDICES, "i1v": integers(1), "minus": np.array(-1), "axes12": integers(1, 2)}
    proto = model(nodes, {"x": ["b", "n"]}, ["y"], constants)
    check(proto, [{"b": b, "n": n} for b, n in ((1, 1), (2, 5), (3, 9), (0, 2))], {"b": 4, "n": 9})


def test_extents_as_data() -> None:
    """An extent in arithmetic on floats, as an output, and in 32 bits."""
    nodes = [
        *SHAPE_OF_X,
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("Sqrt", ["f"], ["root"]),
        node("Div", ["x", "root"], ["y"]),
        node("Cast", ["s"], ["narrow"], to=TensorProto.INT32),
        node("Slice", ["narrow", "axis1", "axis2"], ["last"]),
        node("Mul", ["last", "two"], ["doubled"]),
        node("Identity", ["n"], ["same"]),
        node("Size", ["x"], ["size"]),
        node("Greater", ["n", "b"], ["wide"]),
        node("Where", ["wide", "x", "root"], ["chosen"]),
    ]
    constants = {**INDICES, "axis2": integers(2), "two": np.array([2], np.int32)}
    proto = model(nodes, {"x": ["b", "n"]}, ["y", "doubled", "same", "size", "chosen", "s"], constants)
    check(proto, [{"b": b, "n": n} for b, n in ((1, 1), (2, 5), (6, 3))], {"b": 8, "n": 8})


def test_outputs_whose_extents_follow_from_several() -> None:
    nodes = [
        node("Concat", ["x", "x", "one"], ["longer"], axis=0),
        node("Slice", ["x", "from1"], ["shorter"]),
        node("Slice", ["x", "to0", "end", "axis", "step2"], ["half"]),
        node("Shape", ["x"], ["s"]),
        node("Div", ["s", "two"], ["s2"]),
        node("Slice", ["x", "s2", "end"], ["second_half"]),
        node("Tile", ["x", "s"], ["squared"]),
    ]
    constants = {
        "one": np.ones(1, np.float32),
        "from1": integers(1),
        "to0": integers(0),
        "end": integers(2**62),
        "axis": integers(0),
        "step2": integers(2),
        "two": integers(2),
    }
    nodes[1].input.extend(["end"])
    proto = model(nodes, {"x": ["n"]}, ["longer", "shorter", "half", "second_half", "squared"], constants)
    check(proto, [{"n": n} for n in (0, 1, 2, 7, 8)], {})
    outputs = tilewright.compile(proto, threads=1).outputs
    extents = [spec.shape[0] for spec in outputs]
    assert extents == ["n * 2 + 1", "max(n - 1, 0)", "(n + 1) // 2", "n - n // 2", "n * n"]


def test_a_window_that_does_not_fit_is_refused() -> None:
    """Where a convolution would make fewer than no elements, the feed is refused, with the extent that is negative."""
    nodes = [node("Conv", ["x", "w"], ["c"], name="c"), node("Relu", ["c"], ["y"])]
    proto = model(nodes, {"x": [1, 2, "h", 9]}, ["y"], {"w": np.ones((3, 2, 5, 5), np.float32)})
    check(proto, [{"h": h} for h in (5, 6, 11)], {"h": 16})
    compiled = tilewright.compile(proto, bounds={"h": 16}, threads=1)
    with pytest.raises(BadFeed, match=r"extent 'h - 4' is -1, .* compiled for 0 or more; give inputs of other"):
        compiled(np.zeros((1, 2, 3, 9), np.float32))


def test_a_shape_that_depends_on_data_is_checked_in_a_run() -> None:
    """Nothing is read after the number that the last node needs, and yet it is compared."""
    nodes = [node("ReduceMax", ["x"], ["r"], keepdims=1), node("Expand", ["x", "r"], ["y"], name="e")]
    compiled = tilewright.compile(model(nodes, {"x": ["n"]}, ["y"], {}, TensorProto.INT64), threads=1)
    np.testing.assert_array_equal(compiled(np.array([1, 3, 2])), [1, 3, 2])
    np.testing.assert_array_equal(compiled(np.array([1, 1])), [1, 1])
    with pytest.raises(BadFeed, match=r"is -2, but the model was compiled for 0 or more"):
        compiled(np.array([4, 0]))
