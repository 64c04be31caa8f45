"""Resize, Upsample and AffineGrid, against ONNX Runtime or ONNX's reference evaluator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.frontend.models import single_node
from tests.ops.nodes import NodeCase, check, run_reference
from tests.profiles import examples
from tilewright.base.errors import InvalidModel, ResourceLimit, UnsupportedModel
from tilewright.frontend.onnx.read import importer

random = np.random.default_rng(7)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-2, 2, shape).astype(np.float32)


def floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


X = f(2, 3, 5, 6)
DOUBLE, MIXED, SIZES = floats(1, 1, 2, 2), floats(1, 1, 1.5, 0.6), ints(2, 3, 7, 4)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric")
CASES = [
    *(
        NodeCase("Resize", [X], {"mode": mode, "coordinate_transformation_mode": c}, [None, scales], opset=19)
        for mode in ("nearest", "linear", "cubic")
        for c in COORDINATES
        for scales in (DOUBLE, MIXED)
    ),
    *(
        NodeCase("Resize", [X], {"mode": mode, "coordinate_transformation_mode": c}, [None, None, SIZES])
        for mode in ("nearest", "linear", "cubic")
        for c in (*COORDINATES, "align_corners")
    ),
    *(
        NodeCase("Resize", [X], {"nearest_mode": mode, "coordinate_transformation_mode": c}, [None, scales])
        for mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        for c in ("half_pixel", "asymmetric")
        for scales in (DOUBLE, MIXED, floats(1, 1, 0.5, 3))
    ),
    NodeCase("Resize", [X], {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, [None, DOUBLE]),
    *(
        NodeCase("Resize", [X], {"mode": mode, "antialias": 1}, [None, scales], oracle=run_reference)
        for mode in ("linear", "cubic")
        for scales in (floats(1, 1, 0.6, 0.5), floats(1, 1, 2, 0.3))
    ),
    *(
        NodeCase(
            "Resize",
            [X],
            {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0},
            [floats(0, 0, 0.2, -0.1, 1, 1, 0.9, 1.2), None, SIZES],
        )
        for mode in ("nearest", "linear", "cubic")
    ),
    *(
        NodeCase("Resize", [X], {"axes": [3, 2], "keep_aspect_ratio_policy": policy}, [None, None, ints(9, 12)])
        for policy in ("stretch", "not_larger", "not_smaller")
    ),
    NodeCase("Resize", [X], {"axes": [-1], "mode": "linear"}, [None, floats(2)]),
    NodeCase("Resize", [f(4, 5, 6)], {"mode": "linear"}, [None, floats(2, 1.5, 0.5)]),
    NodeCase("Resize", [(X * 50).astype(np.int32)], {}, [None, DOUBLE]),
    NodeCase("Resize", [X], {}, [None, floats(1, 1, 1, 1)]),
    *(NodeCase("Resize", [X], {"mode": m}, [s], opset=10) for m in ("nearest", "linear") for s in (DOUBLE, MIXED)),
    *(NodeCase("Upsample", [X], {"mode": mode}, [DOUBLE], opset=9) for mode in ("nearest", "linear")),
    *(NodeCase("Upsample", [X], {"mode": m, "scales": [1.0, 1.0, 2.0, 3.0]}, opset=7) for m in ("nearest", "linear")),
    *(
        NodeCase("AffineGrid", [f(2, rank, rank + 1)], {"align_corners": corners}, [ints(2, 3, *range(4, 4 + rank))])
        for rank in (2, 3)
        for corners in (0, 1)
    ),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_the_oracle(case: NodeCase) -> None:
    check(case)


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 13),
    st.integers(1, 13),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from([*COORDINATES, "align_corners"]),
)
@examples(25, by_night=150)
def test_drawn_sizes(height: int, width: int, rows: int, columns: int, mode: str, coordinates: str) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    check(NodeCase("Resize", [f(1, 2, height, width)], attributes, [None, None, ints(1, 2, rows, columns)]))


def test_a_doubled_grid_is_no_kernel_of_its_own() -> None:
    """Nearest with a whole factor only names elements anew, so that consumers read through it."""
    graph = importer.load(single_node("Resize", {"x": X}, {"s": DOUBLE}, ["x", "", "s"], mode="nearest"))
    assert [node.op.name for node in graph.nodes] == ["Repeat", "Repeat"]


def resize(constants: list[NDArray[np.generic] | None], **attributes: object) -> None:
    names = ["x", *("" if array is None else f"c{p}" for p, array in enumerate(constants))]
    given = {f"c{p}": array for p, array in enumerate(constants) if array is not None}
    importer.load(single_node("Resize", {"x": X}, given, names, **attributes))


@pytest.mark.parametrize(
    ("constants", "attributes", "error", "message"),
    [
        ([None, floats(1, 1, 0, 2)], {}, InvalidModel, "scales is .* 4 positive numbers are needed"),
        ([None, floats(2, 2)], {}, InvalidModel, "4 positive numbers"),
        ([None, floats(1, 1, 1, np.nan)], {}, InvalidModel, "4 positive numbers"),
        ([None, floats(1, 1, 1, 1e9)], {}, ResourceLimit, "dimension 3 would have 6000000000 elements"),
        ([None, None, ints(2, 3, 4)], {}, InvalidModel, r"sizes is \[2, 3, 4\]; 4 entries"),
        ([None, None, ints(2, 3, 4, -1)], {}, InvalidModel, "not negative"),
        ([None, DOUBLE, SIZES], {}, InvalidModel, "either scales or sizes"),
        ([None, None], {}, InvalidModel, "either scales or sizes"),
        ([None, DOUBLE], {"mode": "best"}, InvalidModel, "mode is best; it must be one of nearest, linear, cubic"),
        ([None, MIXED], {"coordinate_transformation_mode": "align_corners"}, UnsupportedModel, "give sizes"),
        ([None, MIXED], {"coordinate_transformation_mode": "tf_crop_and_resize"}, UnsupportedModel, "give sizes"),
        ([None, None, SIZES], {"keep_aspect_ratio_policy": "big"}, InvalidModel, "keep_aspect_ratio_policy is big"),
    ],
)
def test_what_can_not_be(
    constants: list[NDArray[np.generic] | None],
    attributes: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=rf"node n \(Resize\): .*{message}"):
        resize(constants, **attributes)
