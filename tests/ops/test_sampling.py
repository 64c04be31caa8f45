"""Sampling at places that are data, and integer convolutions, against ONNX Runtime or the reference evaluator."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import run_onnxruntime, single_node
from tests.ops.nodes import NodeCase, Oracle, check, run_reference
from tilewright.base.errors import InvalidModel
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read import importer

random = np.random.default_rng(8)


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> NDArray[np.float32]:
    return random.uniform(low, high, shape).astype(np.float32)


def i(dtype: type, *shape: int) -> NDArray[np.generic]:
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, dtype, endpoint=True)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


REGIONS = np.array([[0, 0, 5, 4], [1.5, 2.2, 3.1, 7.9], [-3, -3, 20, 20], [2, 2, 2, 2]], np.float32)
SAMPLED = [
    *(
        NodeCase(
            "GridSample",
            [f(2, 3, 5, 6), f(2, 4, 3, 2, low=-1.7, high=1.7)],
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
            opset=16,
            tolerance=1e-4,
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ),
    *(
        NodeCase("GridSample", [f(2, 2, 3, 4, 5), f(2, 2, 3, 2, 3)], {"mode": mode, "padding_mode": padding})
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
    ),
    # Beyond the ends there is what is there, also beside an infinity.
    *(
        NodeCase(
            "GridSample",
            [np.float32([[[[1, -np.inf, 3, -np.inf]]]]), np.float32([[[[x, 0] for x in (-5, -0.9, 0.9, 5)]]])],
            {"mode": mode, "padding_mode": "border", "align_corners": aligned},
        )
        for mode in ("linear", "nearest")
        for aligned in (0, 1)
    ),
    *(
        NodeCase(
            "RoiAlign",
            [f(2, 3, 8, 9), REGIONS, ints(0, 1, 1, 0)],
            {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.7, "mode": "avg", **more},
            opset=opset,
            tolerance=1e-4,
        )
        for more, opset in (
            ({}, 16),
            ({}, 10),
            ({"coordinate_transformation_mode": "output_half_pixel"}, 16),
        )
    ),
    NodeCase(
        "RoiAlign",
        [f(2, 3, 8, 9), REGIONS, ints(0, 1, 1, 0)],
        {"output_height": 3, "output_width": 2, "sampling_ratio": 3, "mode": "max"},
        opset=16,
        tolerance=1e-4,
        oracle=run_reference,
    ),
    *(
        NodeCase(
            "DeformConv",
            [f(1, 4, 5, 6), f(2, 4 // group, 2, 2), f(1, groups * 8, 4, 5), f(2), *mask],
            {"group": group, "offset_group": groups},
            opset=19,
            oracle=run_reference,
        )
        for group, groups, mask in ((1, 1, []), (2, 2, [f(1, 8, 4, 5)]))
    ),
    NodeCase(
        "DeformConv",
        [f(1, 2, 5, 6), f(3, 2, 3, 2), f(1, 12, 2, 3)],
        {"pads": [1, 0, 0, 1], "strides": [2, 2], "dilations": [1, 2]},
        opset=19,
        oracle=run_reference,
    ),
    NodeCase("Col2Im", [f(2, 3 * 6, 28)], {}, [ints(5, 9), ints(2, 3)], opset=18),
    NodeCase(
        "Col2Im",
        [f(1, 2 * 6, 12)],
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]},
        [ints(5, 7), ints(2, 3)],
        opset=18,
    ),
]
INTEGERS = [
    NodeCase("ConvInteger", [i(np.uint8, 1, 2, 5, 6), i(np.uint8, 3, 2, 3, 3)]),
    NodeCase(
        "ConvInteger",
        [i(np.uint8, 1, 2, 5, 6), i(np.int8, 3, 2, 3, 3)],
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        [np.array(7, np.uint8), np.array(-3, np.int8)],
    ),
    *(
        NodeCase(
            "QLinearConv",
            [i(dtype, 1, 4, 6, 5)],
            {"pads": [1, 1, 1, 1], "group": 2},
            [
                np.array(0.03, np.float32),
                np.array(5, dtype),
                i(weights, 6, 2, 3, 3),
                scales,
                np.zeros(scales.shape, weights),
                np.array(1.7, np.float32),
                np.array(11, dtype),
                random.integers(-900, 900, 6).astype(np.int32),
            ],
        )
        for dtype, weights, scales in (
            (np.uint8, np.int8, f(6, low=0.01, high=0.05)),
            (np.uint8, np.uint8, np.array(0.02, np.float32)),
            (np.int8, np.int8, f(6, low=0.01, high=0.05)),
        )
    ),
]


DEFORMED = [(1, 2, 4, 4), (2, 2, 3, 3)]


@pytest.mark.share(3)
@pytest.mark.parametrize("case", [*SAMPLED, *INTEGERS], ids=str)
def test_against_the_oracle(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("mode", "padding"),
    [
        ("nearest", "border"),
        ("linear", "reflection"),
        ("cubic", "zeros"),
        pytest.param("nearest", "reflection", marks=pytest.mark.slow),
        pytest.param("linear", "border", marks=pytest.mark.slow),
    ],
)
def test_no_place_leaves_the_grid(mode: str, padding: str) -> None:
    """NaN, infinities and places far outside: native code with bounds checks reads nothing outside."""
    places = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, 0.0, -1.0, 1.0], np.float32)
    grid = np.stack(np.meshgrid(places, places), -1)[None]
    proto = single_node(
        "GridSample", {"x": f(1, 1, 3, 4), "g": grid}, mode=mode, padding_mode=padding, outputs=1, opset=20
    )
    model = tilewright.compile(proto, settings=Settings(bounds_check=True))
    (result,) = model.run(None, {"x": f(1, 1, 3, 4), "g": grid})
    assert np.isfinite(np.asarray(result)[0, 0, 6:, 6:]).all()


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "error", "message"),
    [
        ("GridSample", [(1, 2, 4, 4), (1, 3, 3, 3)], {}, InvalidModel, r"must have the shape \[1, places..., 2\]"),
        (
            "GridSample",
            [(1, 2, 4, 4), (1, 3, 3, 2)],
            {"mode": "best"},
            InvalidModel,
            "GridSample: mode is 'best'; it can be nearest, linear, cubic",
        ),
        ("GridSample", [(1, 2, 0, 4), (1, 3, 3, 2)], {}, InvalidModel, "has no elements to sample"),
        (
            "DeformConv",
            [(1, 2, 4, 4), (2, 2, 3, 3), (1, 17, 2, 2)],
            {},
            InvalidModel,
            r"the offsets .* \[1, 18, 2, 2\]",
        ),
        (
            "DeformConv",
            [*DEFORMED, (1, 18, 2, 2)],
            {"offset_group": 3},
            InvalidModel,
            "3 offset groups",
        ),
        ("DeformConv", [*DEFORMED, (1, 18, 2, 2)], {"group": 0}, InvalidModel, "group is 0"),
    ],
)
def test_what_does_not_fit(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, object], error: type[Exception], message: str
) -> None:
    inputs = {f"x{position}": f(*shape) for position, shape in enumerate(shapes)}
    with pytest.raises(error, match=rf"node n \({op}\): .*{message}"):
        importer.load(single_node(op, inputs, **attributes))


@pytest.mark.parametrize(
    ("options", "oracle"),
    [
        ({}, run_onnxruntime),
        ({"coordinate_transformation_mode": "output_half_pixel"}, run_onnxruntime),
        ({"mode": "max"}, run_reference),
    ],
    ids=["half_pixel", "output_half_pixel", "max"],
)
def test_regions_have_as_many_samples_as_they_are_large(options: dict[str, str], oracle: Oracle) -> None:
    """In one model for any number of regions, of any sizes."""
    x, images = f(2, 3, 8, 9), ints(0, 1, 1, 0)
    sizes = {"output_height": 3, "output_width": 2, "spatial_scale": 0.9}
    proto = single_node("RoiAlign", {"x": x, "rois": REGIONS, "images": images}, opset=16, **sizes, **options)
    for info in proto.graph.input[1:]:
        info.type.tensor_type.shape.dim[0].dim_param = "regions"
    model = tilewright.compile(proto, settings=Settings(bounds_check=True))
    for chosen in ([0, 1, 2, 3], [3, 1], []):
        feeds = {"x": x, "rois": REGIONS[chosen], "images": images[chosen]}
        (found,) = model.run(None, feeds)
        (expected,) = oracle(proto, feeds) if chosen else [np.zeros((0, 3, 3, 2), np.float32)]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_regions_with_a_negative_number_of_samples_are_invalid() -> None:
    inputs = {"x": f(1, 2, 4, 4), "r": REGIONS, "b": ints(0, 0, 0, 0)}
    with pytest.raises(InvalidModel, match=r"sampling_ratio is -1; give 1 or more, or 0"):
        importer.load(single_node("RoiAlign", inputs, sampling_ratio=-1))


def test_columns_that_do_not_fit_the_image() -> None:
    constants = {"i": ints(5, 9), "b": ints(2, 3)}
    with pytest.raises(InvalidModel, match=r"must have the shape \[N, C \* 6, 28\] for an image of \[5, 9\]"):
        importer.load(single_node("Col2Im", {"x": f(2, 18, 24)}, constants))
