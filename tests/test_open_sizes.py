"""Models whose sizes are computed from open dimensions, compiled once, against ONNX Runtime at many sizes."""

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.test_computed_shapes import CHECKED, INDICES, SHAPE_OF_X, check, integers, model, node
from tilewright.base.errors import BadFeed, InvalidModel, UnsupportedModel
from tilewright.specialize import SpecializingModel
from tilewright.staged import StagedModel

IMAGE = {"x": ["b", 2, "h", "w"]}
IMAGES = [{"b": b, "h": h, "w": w} for b, h, w in ((1, 4, 6), (2, 7, 5), (1, 1, 9), (3, 8, 8))]
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def resized(constants: dict[str, np.ndarray], sizes: list[onnx.NodeProto], **attributes: object) -> onnx.ModelProto:
    given = ["x", "", "", "wanted"] if sizes or "wanted" in constants else ["x", "", "scales"]
    return model([*sizes, node("Resize", given, ["y"], **attributes)], IMAGE, ["y"], constants)


USUAL = [("nearest", "half_pixel"), ("linear", "half_pixel"), ("linear", "align_corners")]


@pytest.mark.parametrize(
    ("mode", "coordinates"),
    [
        way if way in USUAL else pytest.param(*way, marks=pytest.mark.slow)
        for way in product(["nearest", "linear", "cubic"], COORDINATES)
    ],
)
def test_resizing_to_sizes_that_the_other_input_has(mode: str, coordinates: str) -> None:
    """As a decoder does: the batch and the channels of x, and the height and width of z."""
    nodes = [
        node("Shape", ["x"], ["s"], end=2),
        node("Shape", ["z"], ["t"], start=2),
        node("Concat", ["s", "t"], ["wanted"], axis=0),
        node("Resize", ["x", "", "", "wanted"], ["y"], mode=mode, coordinate_transformation_mode=coordinates),
    ]
    proto = model(nodes, {**IMAGE, "z": ["b", 1, "i", "j"]}, ["y"], {})
    sizes = [{**image, "i": i, "j": j} for image, (i, j) in zip(IMAGES, ((9, 4), (7, 5), (1, 3), (5, 17)), strict=True)]
    check(proto, sizes, {})


@pytest.mark.parametrize("mode", ["nearest", pytest.param("linear", marks=pytest.mark.slow)])
def test_resizing_to_a_fixed_size_and_by_scales(mode: str) -> None:
    options = {"mode": mode, "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    fixed = [node("Shape", ["x"], ["s"], end=2), node("Concat", ["s", "size"], ["wanted"], axis=0)]
    check(resized({"size": integers(5, 3)}, fixed, **options), IMAGES, {})
    for scales in ((1, 1, 2, 2), (1, 1, 0.5, 1.5), (1, 1, 3, 1)):
        larger = [image for image in IMAGES if image["h"] > 1]
        check(resized({"scales": floats(*scales)}, [], **options), larger, {})


def test_only_the_batch_is_open() -> None:
    nodes = [node("Resize", ["x", "", "", "wanted"], ["y"], mode="linear")]
    shape = [node("Shape", ["x"], ["s"], end=2), node("Concat", ["s", "size"], ["wanted"], axis=0)]
    proto = model([*shape, *nodes], {"x": ["b", 2, 4, 6]}, ["y"], {"size": integers(7, 9)})
    check(proto, [{"b": 1}, {"b": 3}], {})


@pytest.mark.slow
@pytest.mark.parametrize(("attribute", "value"), [("antialias", 1), ("exclude_outside", 1)])
def test_filters_that_are_normalized(attribute: str, value: int) -> None:
    proto = resized({"scales": floats(1, 1, 0.5, 0.5)}, [], mode="cubic", **{attribute: value})
    proto.opset_import[0].version = 18
    check(proto, IMAGES[:2], {})


def test_what_a_resize_can_not_be() -> None:
    with pytest.raises(UnsupportedModel, match=r'is rounded; .* shapes=\{"x": \(1, 2, 128, 128\)\}'):
        tilewright.compile(resized({"scales": floats(1, 1, 0.7, 1)}, []), dynamic="symbolic")
    shape = [node("Shape", ["x"], ["s"], end=2), node("Concat", ["s", "size"], ["wanted"], axis=0)]
    with pytest.raises(UnsupportedModel, match=r"antialiasing from .* known at run time only; give it by shapes="):
        proto = resized({"size": integers(5, 3)}, shape, mode="linear", antialias=1)
        proto.opset_import[0].version = 18
        tilewright.compile(proto, dynamic="symbolic")
    compiled = tilewright.compile(resized({"size": integers(5, 3)}, shape), threads=1, settings=CHECKED)
    with pytest.raises(BadFeed, match="extent 'h - 1' is -1"):
        compiled(np.zeros((1, 2, 0, 3), np.float32))


def test_slices_from_minus_n() -> None:
    """The last n of what was there and is new; an n of 0 would mean all, so that no kernel takes it."""
    nodes = [
        *SHAPE_OF_X,
        node("Neg", ["n"], ["minus"]),
        node("Unsqueeze", ["minus", "axis0"], ["start"]),
        node("Concat", ["z", "x"], ["all"], axis=1),
        node("Slice", ["all", "start", "end", "axis1"], ["last"]),
        node("Add", ["last", "x"], ["y"]),
    ]
    constants = {**INDICES, "end": integers(2**62)}
    proto = model(nodes, {"x": ["b", "n"], "z": ["b", "m"]}, ["y"], constants)
    compiled = check(proto, [{"b": 1, "n": 2, "m": 7}, {"b": 0, "n": 5, "m": 5}, {"b": 2, "n": 6, "m": 0}], {})
    assert not isinstance(compiled, SpecializingModel)
    with pytest.raises(BadFeed, match="extent 'n' is 0, but the model was compiled for 1 or more"):
        compiled(np.zeros((1, 0), np.float32), np.zeros((1, 3), np.float32))


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_of_no_elements_none_is_an_extreme(op: str) -> None:
    """No index is made up for them; where there is nothing to choose for, there may be none to choose from."""
    proto = model([node(op, ["x"], ["y"], axis=1)], {"x": ["b", "n"]}, ["y"], {})
    compiled = check(proto, [{"b": 2, "n": 1}, {"b": 0, "n": 3}, {"b": 3, "n": 7}], {})
    with pytest.raises(BadFeed, match=r"extent 'n - 1' is -1, .*; give inputs of other sizes$"):
        compiled(np.zeros((2, 0), np.float32))


def test_a_bound_of_either_sign() -> None:
    nodes = [
        *SHAPE_OF_X,
        node("Sub", ["n", "five"], ["less"]),
        node("Unsqueeze", ["less", "axis0"], ["start"]),
        node("Slice", ["x", "start", "end", "axis1"], ["y"]),
        node("Slice", ["x", "axis0", "start", "axis1"], ["z"]),
    ]
    constants = {**INDICES, "five": np.array(5), "end": integers(2**62)}
    proto = model(nodes, {"x": ["b", "n"]}, ["y", "z"], constants)
    check(proto, [{"b": 1, "n": n} for n in (0, 1, 3, 4, 5, 6, 12)], {})


def test_products_are_divided_again() -> None:
    nodes = [
        *SHAPE_OF_X,
        node("Mul", ["b", "n"], ["all"]),
        node("Div", ["all", "b"], ["steps"]),
        node("Unsqueeze", ["steps", "axis0"], ["steps1"]),
        node("Unsqueeze", ["b", "axis0"], ["b1"]),
        node("Concat", ["b1", "steps1"], ["shape"], axis=0),
        node("Expand", ["one", "shape"], ["ones"]),
        node("Add", ["x", "ones"], ["y"]),
    ]
    proto = model(nodes, {"x": ["b", "n"]}, ["y"], {**INDICES, "one": floats(1)})
    compiled = check(proto, [{"b": 2, "n": 3}, {"b": 1, "n": 1}, {"b": 4, "n": 0}], {})
    assert [spec.shape for spec in compiled.outputs] == [("b", "n")]
    with pytest.raises(BadFeed, match="extent 'b' is 0, but the model was compiled for 1 or more"):
        compiled(np.zeros((0, 3), np.float32))


def test_a_shift_by_reshapes() -> None:
    """Relative positions as in Transformer-XL: extents that are equal only case by case."""
    nodes = [
        *SHAPE_OF_X,
        node("Unsqueeze", ["b", "axis0"], ["b1"]),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Mul", ["n1", "two"], ["twice"]),
        node("Sub", ["twice", "axis1"], ["odd"]),
        node("Slice", ["table", "axis0", "odd", "axis1"], ["places"]),
        node("MatMul", ["x", "places"], ["scores"]),
        node("Pad", ["scores", "pads"], ["padded"]),
        node("Concat", ["b1", "twice", "n1"], ["turned"], axis=0),
        node("Reshape", ["padded", "turned"], ["r"]),
        node("Slice", ["r", "axis1", "end", "axis1"], ["cut"]),
        node("Concat", ["b1", "n1", "odd"], ["back"], axis=0),
        node("Reshape", ["cut", "back"], ["s2"]),
        node("Slice", ["s2", "axis0", "n1", "axis2"], ["y"]),
    ]
    constants = {**INDICES, "two": integers(2), "pads": integers(0, 0, 1, 0, 0, 0), "end": integers(2**62)}
    table = np.random.default_rng(0).standard_normal((4, 63)).astype(np.float32)
    proto = model(nodes, {"x": ["b", "n", 4]}, ["y"], {**constants, "table": table, "axis2": integers(2)})
    assert not isinstance(check(proto, [{"b": b, "n": n} for b, n in ((1, 1), (2, 5), (3, 16))], {}), SpecializingModel)


def test_padding_to_whole_windows() -> None:
    nodes = [
        *SHAPE_OF_X,
        node("Neg", ["n"], ["minus"]),
        node("Mod", ["minus", "eight"], ["missing"]),
        node("Unsqueeze", ["missing", "axis0"], ["m1"]),
        node("Concat", ["zeros", "m1"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["p"]),
        node("Reshape", ["p", "windows"], ["w"]),
        node("ReduceMax", ["w"], ["y"], axes=[-1], keepdims=0),
    ]
    constants = {**INDICES, "eight": np.array(8), "zeros": integers(0, 0, 0), "windows": integers(0, -1, 8)}
    check(model(nodes, {"x": ["b", "n"]}, ["y", "p"], constants), [{"b": 2, "n": n} for n in (1, 8, 17)], {})


def test_padded_windows_of_patches_and_back() -> None:
    """As Swin: patches of 4, whose number is padded to whole windows of 7, and, of pairs of them, to an even one."""
    nodes = [
        node("MaxPool", ["x"], ["patches"], kernel_shape=[4], strides=[4]),
        *_padded("patches", "seven", "p"),
        node("Shape", ["p"], ["size"], start=2),
        node("Div", ["size", "seven"], ["count"]),
        node("Concat", ["count", "seven"], ["by_window"], axis=0),
        node("Reshape", ["p", "by_window"], ["w"]),
        node("ReduceMax", ["w"], ["most"], axes=[1]),
        node("Sub", ["w", "most"], ["d"]),
        node("Concat", ["ones", "size"], ["by_patch"], axis=0),
        node("Reshape", ["d", "by_patch"], ["back"]),
        *_padded("patches", "two", "even"),
        node("Shape", ["even"], ["pairs"], start=2),
        node("Div", ["pairs", "two"], ["half"]),
        node("Concat", ["ones", "half", "two"], ["by_pair"], axis=0),
        node("Reshape", ["even", "by_pair"], ["y"]),
    ]
    constants = {"seven": integers(7), "two": integers(2), "ones": integers(1, 1), "none": integers(0, 0, 0, 0, 0)}
    proto = model(nodes, {"x": [1, 1, "h"]}, ["back", "y"], constants)
    assert not isinstance(check(proto, [{"h": h} for h in (4, 29, 56, 90)], {}), SpecializingModel)


def _padded(name: str, multiple: str, result: str) -> list[onnx.NodeProto]:
    """`name` with as many zeros after it as whole multiples need."""
    return [
        node("Shape", [name], [f"{result}_size"], start=2),
        node("Mod", [f"{result}_size", multiple], [f"{result}_over"]),
        node("Sub", [multiple, f"{result}_over"], [f"{result}_left"]),
        node("Mod", [f"{result}_left", multiple], [f"{result}_missing"]),
        node("Concat", ["none", f"{result}_missing"], [f"{result}_pads"], axis=0),
        node("Pad", [name, f"{result}_pads"], [result]),
    ]


@pytest.mark.parametrize("k", [3, 40])
def test_the_best_of_an_open_dimension(k: int) -> None:
    nodes = [node("TopK", ["x", "k"], ["values", "places"], axis=1)]
    proto = model(nodes, {"x": ["b", "n", 2]}, ["values", "places"], {"k": integers(k)})
    compiled = check(proto, [{"b": 2, "n": k}, {"b": 1, "n": k + 1}, {"b": 2, "n": 100}], {})
    with pytest.raises(BadFeed, match=f"extent 'n - {k}' is -1"):
        compiled(np.zeros((1, k - 1, 2), np.float32))


def test_all_of_an_open_dimension_sorted() -> None:
    """How many are wanted depends on the shape: all, and at most five."""
    nodes = [
        *SHAPE_OF_X,
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("TopK", ["x", "n1"], ["all", "places"], largest=0),
        node("Min", ["n1", "five"], ["few"]),
        node("TopK", ["x", "few"], ["best", "rest"]),
    ]
    proto = model(nodes, {"x": ["b", "n"]}, ["all", "places", "best"], {**INDICES, "five": integers(5)})
    check(proto, [{"b": 2, "n": n} for n in (0, 1, 2, 5, 33, 64)], {})


def test_depth_to_space_of_any_size() -> None:
    proto = model([node("DepthToSpace", ["x"], ["y"], blocksize=2)], {"x": ["b", 8, "h", "w"]}, ["y"], {})
    check(proto, [{"b": 1, "h": 3, "w": 5}, {"b": 2, "h": 1, "w": 2}], {})


def test_blocks_of_any_size() -> None:
    proto = model([node("SpaceToDepth", ["x"], ["y"], blocksize=2)], {"x": ["b", "c", "h", "w"]}, ["y"], {})
    compiled = check(proto, [{"b": 1, "c": 3, "h": 4, "w": 6}, {"b": 2, "c": 1, "h": 2, "w": 0}], {})
    with pytest.raises(BadFeed, match=r"extent '.*h.*' is -1"):
        compiled(np.zeros((1, 1, 3, 2), np.float32))


@pytest.mark.parametrize("opset", [17, 18])
def test_equal_parts_of_an_open_dimension(opset: int) -> None:
    """Up to opset 17 the dimension must be a multiple of the parts, from 18 on the last part may be shorter."""
    options = {"num_outputs": 3} if opset == 18 else {}
    nodes = [node("Split", ["x"], ["p", "q", "r"], axis=1, **options), node("Sub", ["p", "q"], ["y"])]
    proto = model(nodes, {"x": ["b", "n"]}, ["y", "r"], {})
    proto.opset_import[0].version = opset
    compiled = check(proto, [{"b": 2, "n": n} for n in ((3, 6, 12) if opset == 17 else (3, 5, 12))], {})
    with pytest.raises(BadFeed, match="is -"):
        compiled(np.zeros((1, 4 if opset == 17 else 1), np.float32))


def test_parts_of_computed_lengths() -> None:
    """The parts of one input have the lengths of two others, which must make it up."""
    nodes = [
        node("Shape", ["u"], ["m"]),
        node("Shape", ["v"], ["n"]),
        node("Concat", ["m", "n"], ["lengths"], axis=0),
        node("Split", ["x", "lengths"], ["p", "q"], axis=0),
        node("Add", ["p", "u"], ["y"]),
        node("Add", ["q", "v"], ["z"]),
    ]
    proto = model(nodes, {"x": ["k"], "u": ["m"], "v": ["n"]}, ["y", "z"], {})
    compiled = check(proto, [{"k": 7, "m": 3, "n": 4}, {"k": 5, "m": 0, "n": 5}], {})
    with pytest.raises(BadFeed, match="is -1"):
        compiled(*(np.zeros(count, np.float32) for count in (6, 3, 4)))


def test_a_window_that_reaches_far() -> None:
    """Small sizes do not tell whether such a model can be compiled at all: here for each size, as it is cut in two."""
    nodes = [node("Conv", ["x", "w"], ["c"], strides=[100]), node("Reshape", ["c", "two_rows"], ["y"])]
    constants = {"w": np.ones((1, 1, 400), np.float32), "two_rows": integers(2, -1)}
    proto = model(nodes, {"x": [1, 1, "n"]}, ["y"], constants)
    compiled = tilewright.compile(proto, threads=1, settings=CHECKED)
    assert isinstance(compiled, SpecializingModel)
    assert compiled(np.ones((1, 1, 500), np.float32)).shape == (2, 1)


def test_a_product_after_a_window() -> None:
    """Products have a kernel for one row, at extents of 1: here no input is so small."""
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["t", "v"], ["y"]),
    ]
    constants = {"w": np.full((4, 4, 5), 0.5, np.float32), "v": np.full((4, 8), 0.25, np.float32)}
    proto = model(nodes, {"x": ["b", 4, "n"]}, ["y"], constants)
    assert not isinstance(check(proto, [{"b": 1, "n": 5}, {"b": 2, "n": 9}], {}), SpecializingModel)


def test_loops_are_unrolled() -> None:
    """A Scan over 5 steps of an open batch, and a Loop with a constant number of steps."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("s", "e", "s2", "o")]
    state, part, after, out = kinds
    body = helper.make_graph(
        [node("Mul", ["s", "w"], ["m"]), node("Add", ["m", "e"], ["s2"]), node("Relu", ["s2"], ["o"])],
        "body",
        [state, part],
        [after, out],
        [helper.make_tensor("w", TensorProto.FLOAT, [2], [0.5, -0.25])],
    )
    options = {"body": body, "num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [-1]}
    flow = helper.make_graph(
        [
            node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            node("Mul", ["v", "f"], ["v2"]),
            node("Less", ["i", "three"], ["go"]),
        ],
        "flow",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v2", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("f", TensorProto.FLOAT, []),
        ],
    )
    nodes = [
        node("Scan", ["h", "x"], ["last", "all"], scan_input_directions=[1], **options),
        node("Add", ["last", "one"], ["begin"]),
        node("Loop", ["many", "", "begin"], ["y", "counted"], body=flow),
    ]
    constants = {"one": floats(1), "many": np.array(9), "three": np.array(3)}
    proto = model(nodes, {"h": ["b", 2], "x": ["b", 5, 2]}, ["last", "all", "y", "counted"], constants)
    check(proto, [{"b": 1}, {"b": 3}], {})


def test_loops_that_can_not_be_unrolled_run_as_loops() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["o"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("s", "e")],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )

    def scan(steps: int | str) -> onnx.ModelProto:
        nodes = [node("Scan", ["h", "x"], ["y"], name="s", body=body, num_scan_inputs=1)]
        return model(nodes, {"h": [2], "x": [steps, 2]}, ["y"], {})

    for proto, steps in ((scan("n"), 3), (scan("n"), 0), (scan(100_000), 100_000)):
        compiled = tilewright.compile(proto, threads=1, settings=CHECKED)
        assert isinstance(compiled, StagedModel)
        x = np.ones((steps, 2), np.float32)
        if steps < 10:
            np.testing.assert_array_equal(compiled.run(None, {"h": np.zeros(2, np.float32), "x": x})[0], x.sum(0))


def unet() -> onnx.ModelProto:
    """The way up has a height of ``h // 4 * 2``, what comes from the left of ``h // 2``."""
    nodes = [
        node("AveragePool", ["x"], ["half"], kernel_shape=[2], strides=[2]),
        node("AveragePool", ["half"], ["quarter"], kernel_shape=[2], strides=[2]),
        node("Resize", ["quarter", "", "scales"], ["up"], mode="nearest"),
        node("Concat", ["up", "half"], ["both"], axis=1),
        node("Sub", ["up", "half"], ["y"]),
    ]
    return model(nodes, {"x": ["b", 2, "h"]}, ["both", "y"], {"scales": floats(1, 1, 2)})


def test_extents_that_must_be_equal() -> None:
    compiled = check(unet(), [{"b": 2, "h": 4}, {"b": 0, "h": 12}, {"b": 1, "h": 21}], {})
    with pytest.raises(BadFeed, match=r"extent '.*h // 4.*' is -1, but the model was compiled for 0 or more"):
        compiled(np.zeros((1, 2, 6), np.float32))


def test_an_image_in_blocks() -> None:
    """As PyTorch exports `pixel_unshuffle`: by the halves of its height and width, rounded down."""
    nodes = [
        node("Shape", ["x"], ["s"], end=2),
        node("Shape", ["x"], ["t"], start=2),
        node("Div", ["t", "two"], ["half"]),
        node("Split", ["half"], ["rows", "columns"], axis=0),
        node("Concat", ["s", "rows", "two", "columns", "two"], ["parts"], axis=0),
        node("Reshape", ["x", "parts"], ["blocks"]),
        node("ReduceMean", ["blocks"], ["y"], axes=[3, 5], keepdims=0),
    ]
    proto = model(nodes, IMAGE, ["y"], {"two": integers(2)})
    compiled = check(proto, [{"b": 1, "h": 4, "w": 6}, {"b": 3, "h": 2, "w": 2}], {})
    assert not isinstance(compiled, SpecializingModel)
    with pytest.raises(BadFeed, match="is -1"):
        compiled(np.zeros((1, 2, 4, 3), np.float32))


def test_patches_whose_number_is_rounded_up_as_a_float() -> None:
    """As PyTorch exports ``math.ceil(h / 2)``; here images are made of whole patches."""
    nodes = [
        node("Shape", ["x"], ["b"], end=1),
        node("Shape", ["x"], ["t"], start=2),
        node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
        node("Div", ["f", "side"], ["quotient"]),
        node("Ceil", ["quotient"], ["up"]),
        node("Cast", ["up"], ["count"], to=TensorProto.INT64),
        node("Split", ["count"], ["rows", "columns"], axis=0),
        node("Mul", ["b", "rows"], ["all_rows"]),
        node("Mul", ["all_rows", "two"], ["lines"]),
        node("Concat", ["lines", "three", "columns", "three"], ["parts"], axis=0),
        node("Reshape", ["x", "parts"], ["patches"]),
        node("ReduceMean", ["patches"], ["y"], axes=[1, 3], keepdims=0),
    ]
    constants = {"side": floats(3), "two": integers(2), "three": integers(3)}
    proto = model(nodes, IMAGE, ["y"], constants)
    compiled = check(proto, [{"b": 1, "h": 3, "w": 6}, {"b": 3, "h": 9, "w": 3}], {})
    assert not isinstance(compiled, SpecializingModel)
    with pytest.raises(BadFeed, match="is -"):
        compiled(np.zeros((1, 2, 6, 4), np.float32))


def test_extents_that_always_differ() -> None:
    nodes = [node("Concat", ["x", "x"], ["twice"], axis=0), node("Concat", ["twice", "x"], ["y"], axis=1, name="c")]
    with pytest.raises(InvalidModel, match=r"node c \(Concat\)"):
        tilewright.compile(model(nodes, {"x": ["n", 3]}, ["y"], {}), dynamic="symbolic")
