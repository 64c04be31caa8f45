"""Convolution and pooling, against ONNX Runtime: chosen cases, and parameters drawn by Hypothesis."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import single_node
from tests.ops.nodes import NodeCase, check, run_reference
from tests.profiles import examples
from tilewright.base.dtypes import f32
from tilewright.base.errors import InvalidModel, ResourceLimit
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph
from tilewright.ops.shapes import simplified
from tilewright.ops.windows import window
from tilewright.symbolic.expr import const
from tilewright.tensor.build import placeholder

random = np.random.default_rng(5)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-2, 2, shape).astype(np.float32)


CONVOLUTIONS = [
    NodeCase("Conv", [f(2, 3, 7, 8), f(4, 3, 3, 3)]),
    NodeCase("Conv", [f(2, 3, 7, 8), f(4, 3, 3, 3), f(4)], {"pads": [1, 1, 1, 1]}),
    NodeCase("Conv", [f(1, 3, 9, 8), f(4, 3, 3, 2), f(4)], {"pads": [0, 1, 2, 3], "strides": [2, 3]}),
    NodeCase("Conv", [f(1, 4, 9, 9), f(6, 2, 3, 3)], {"group": 2, "dilations": [2, 1], "pads": [2, 0, 2, 0]}),
    NodeCase("Conv", [f(1, 6, 9, 9), f(6, 1, 3, 3), f(6)], {"group": 6, "pads": [1, 1, 1, 1]}),
    NodeCase("Conv", [f(1, 3, 19, 14), f(2, 3, 3, 3)], {"strides": [4, 6], "dilations": [6, 4], "pads": [5, 3, 2, 7]}),
    NodeCase("Conv", [f(1, 3, 8, 9), f(2, 3, 1, 3)], {"strides": [3, 2], "dilations": [1, 2], "pads": [1, 2, 2, 0]}),
    NodeCase("Conv", [f(1, 3, 9, 9), f(6, 1, 3, 3)], {"group": 3}),
    NodeCase("Conv", [f(2, 3, 11), f(4, 3, 5), f(4)], {"pads": [2, 2], "strides": [2]}),
    NodeCase("Conv", [f(1, 2, 5, 6, 7), f(3, 2, 3, 2, 1), f(3)], {"pads": [1, 0, 0, 1, 1, 0]}),
    NodeCase("Conv", [f(1, 3, 5, 5), f(8, 3, 1, 1)]),
    NodeCase("Conv", [f(0, 3, 5, 5), f(8, 3, 3, 3), f(8)], {"pads": [1, 1, 1, 1]}),
    *(
        NodeCase("Conv", [f(1, 2, 8, 9), f(3, 2, 3, 4)], {"auto_pad": mode, "strides": [2, 2]})
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    NodeCase("Conv", [f(1, 2, 8, 9), f(3, 2, 3, 4)], {"auto_pad": "SAME_UPPER", "strides": [3, 1]}, opset=13),
]
TRANSPOSED = [
    NodeCase("ConvTranspose", [f(2, 3, 5, 6), f(3, 4, 3, 3)]),
    NodeCase("ConvTranspose", [f(2, 3, 5, 6), f(3, 4, 3, 3), f(4)], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    NodeCase("ConvTranspose", [f(1, 4, 5, 6), f(4, 3, 4, 3), f(6)], {"strides": [2, 3], "group": 2}),
    NodeCase("ConvTranspose", [f(1, 4, 5), f(4, 1, 2), f(4)], {"strides": [3], "group": 4, "output_padding": [2]}),
    NodeCase("ConvTranspose", [f(1, 2, 3, 4, 5), f(2, 3, 2, 3, 2)], {"strides": [2, 1, 3], "pads": [1, 2, 0, 0, 2, 1]}),
    NodeCase("ConvTranspose", [f(1, 2, 4, 5), f(2, 3, 3, 2)], {"strides": [2, 1], "dilations": [2, 3]}),
    NodeCase("ConvTranspose", [f(1, 2, 4, 5), f(2, 3, 3, 3)], {"strides": [2, 2], "dilations": [3, 3]}),
    NodeCase("ConvTranspose", [f(1, 2, 4, 5), f(2, 3, 1, 1)], {"strides": [2, 2]}),
    NodeCase("ConvTranspose", [f(1, 2, 4, 5), f(2, 3, 3, 3)], {"pads": [2, 2, 2, 2]}),
    *(
        NodeCase("ConvTranspose", [f(1, 2, 4, 5), f(2, 3, 3, 3)], {"strides": [2, 3], **attributes})
        for attributes in (
            {"auto_pad": "SAME_UPPER"},
            {"auto_pad": "SAME_LOWER"},
            {"auto_pad": "VALID"},
            {"output_shape": [8, 15]},
            {"output_shape": [8, 14], "auto_pad": "SAME_UPPER"},
            {"output_shape": [10, 16], "output_padding": [1, 2]},
        )
    ),
]
INDICES = [
    NodeCase("MaxPool", [f(2, 3, 8, 9)], {"kernel_shape": [3, 2], **attributes}, outputs=2)
    for attributes in (
        {"strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"storage_order": 1, "pads": [1, 1, 1, 1]},
        {"dilations": [2, 3], "ceil_mode": 1, "strides": [2, 2]},
    )
]
PLACES = np.array([0, 7, 11, 35, 40, 71]).reshape(1, 2, 3)
UNPOOL = {"kernel_shape": [3], "strides": [4]}
UNPOOLED = [
    NodeCase("MaxUnpool", [f(1, 2, 3), PLACES // 4], UNPOOL),
    NodeCase(
        "MaxUnpool", [f(1, 1, 2, 3), PLACES.reshape(1, 1, 2, 3) // 3], {"kernel_shape": [5, 5], "strides": [2, 2]}
    ),
    # Where an output shape is given, ONNX counts places in the smaller tensor, ONNX Runtime in the larger one.
    NodeCase("MaxUnpool", [f(1, 2, 3), PLACES // 4], UNPOOL, [np.array([1, 2, 14])], oracle=run_reference),
]
NORMS = [
    NodeCase("LpPool", [f(2, 3, 8, 9)], {"kernel_shape": [3, 2], "p": p, "pads": [1, 0, 1, 1], "strides": [2, 1]})
    for p in (1, 2, 3)
] + [NodeCase("GlobalLpPool", [f(2, 3, 4, 5)], {"p": p}) for p in (1, 2, 3)]
POOLS = [
    *(
        NodeCase(op, [f(2, 3, 8, 9)], {"kernel_shape": [3, 2], **attributes})
        for op in ("MaxPool", "AveragePool")
        for attributes in (
            {},
            {"strides": [2, 2], "pads": [1, 0, 1, 1]},
            {"strides": [2, 3], "ceil_mode": 1},
            {"strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
            {"dilations": [2, 3], "pads": [2, 1, 0, 1]},
            {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
            {"auto_pad": "SAME_LOWER", "strides": [1, 2]},
            {"auto_pad": "VALID", "strides": [2, 2]},
        )
    ),
    *(
        NodeCase("AveragePool", [f(2, 3, 8, 9)], {"kernel_shape": [3, 2], "count_include_pad": 1, **attributes})
        for attributes in (
            {"pads": [1, 0, 1, 1]},
            {"strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
            {"strides": [2, 2], "pads": [0, 0, 2, 1], "ceil_mode": 1},
        )
    ),
    *(
        NodeCase(
            op,
            [f(2, 3, 13, 14)],
            {"kernel_shape": [3, 2], "strides": [4, 3], "dilations": [2, 3], "pads": [1, 1, 2, 0], "ceil_mode": ceil},
        )
        for op in ("MaxPool", "AveragePool")
        for ceil in (0, 1)
    ),
    NodeCase("MaxPool", [f(1, 2, 9)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    NodeCase("AveragePool", [f(1, 2, 5, 6, 7)], {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 1, 0]}),
    NodeCase("MaxPool", [random.integers(0, 255, (1, 2, 6, 6)).astype(np.uint8)], {"kernel_shape": [3, 3]}),
    NodeCase("MaxPool", [f(0, 2, 6, 6)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    *(NodeCase(op, [f(2, 3, *dims)]) for op in ("GlobalAveragePool", "GlobalMaxPool") for dims in ((5,), (4, 5))),
    NodeCase("GlobalAveragePool", [f(2, 3, 2, 3, 4)]),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("case", [*CONVOLUTIONS, *TRANSPOSED, *POOLS, *INDICES, *UNPOOLED, *NORMS], ids=str)
def test_against_onnxruntime(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("strides", "dilations", "taps", "padded"),
    [
        ((1, 1), (2, 2), (3, 3), (23, 18)),
        ((2, 3), (3, 2), (3, 3), (23, 18)),
        ((4, 6), (6, 4), (3, 3), (12, 9)),
        ((2, 2), (6, 2), (1, 3), (12, 9)),
        ((2, 2), (6, 5), (1, 1), (12, 9)),
    ],
)
def test_positions_that_no_window_reads_are_not_padded(
    strides: tuple[int, int], dilations: tuple[int, int], taps: tuple[int, int], padded: tuple[int, int]
) -> None:
    x = placeholder((1, 3, 19, 14), f32, "x")
    sliding = window(x, tuple(map(const, taps)), strides, (2,) * 4, dilations)
    made, over = sliding.padded(x, const(0, f32), sliding.outputs(x.shape[2:]))
    assert tuple(int(str(extent)) for extent in made.shape[2:]) == padded
    assert not over.is_padded
    ends = over.positions([y - 1 for y in sliding.outputs(x.shape[2:])], [const(tap - 1) for tap in taps])
    assert all(int(str(simplified(end))) < extent for end, extent in zip(ends, padded, strict=True))


@pytest.mark.parametrize("place", range(5))
def test_a_window_with_nan_has_it_as_the_largest(place: int) -> None:
    """Wherever it is: ONNX Runtime keeps it in some places and drops it in others, ONNX's reference drops it."""
    x = f(1, 20, 5, 6)
    x[..., place, place] = np.nan
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    proto = single_node("MaxPool", {"x": x}, kernel_shape=[3, 3])
    (result,) = tilewright.compile(proto, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(result, windows.max(axis=(4, 5)))


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_largest_of_a_window_with_nan_or_only_infinities(outputs: int) -> None:
    x = np.array([[[np.nan, 1, 2, -np.inf, -np.inf, -np.inf]]], np.float32)
    proto = single_node("MaxPool", {"x": x}, outputs=outputs, kernel_shape=[3], pads=[1, 1])
    wanted = [[[np.nan, np.nan, 2, 2, -np.inf, -np.inf]]]
    np.testing.assert_array_equal(evaluate_graph(importer.load(proto), {"x": x})[0], wanted)
    np.testing.assert_array_equal(tilewright.compile(proto, threads=1).run(None, {"x": x})[0], wanted)


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """Spatial extents, and attributes of a window that fits into them."""
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    spatial = [draw(st.integers(r, r + 5)) for r in reach]
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if mode != "NOTSET":  # there ONNX Runtime refuses or ignores dilations, and strides beyond the kernel
        attributes |= {"dilations": [1] * rank, "strides": [min(s, k) for s, k in zip(strides, kernel, strict=True)]}
    return spatial, attributes | ({"pads": pads} if mode == "NOTSET" else {"auto_pad": mode})


FEW = examples(12, by_night=100)


@given(windows(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans())
@FEW
def test_drawn_convolutions(
    window: tuple[list[int], dict[str, Any]], group: int, channels: int, filters: int, biased: bool
) -> None:
    spatial, attributes = window
    x, weight = f(2, group * channels, *spatial), f(group * filters, channels, *attributes["kernel_shape"])
    bias = [f(group * filters)] if biased else []
    check(NodeCase("Conv", [x, weight, *bias], {**attributes, "group": group}))


@given(windows(), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.data())
@FEW
def test_drawn_transposed_convolutions(
    window: tuple[list[int], dict[str, Any]], group: int, channels: int, filters: int, data: st.DataObject
) -> None:
    spatial, attributes = window
    kernel, strides, dilations = (attributes[name] for name in ("kernel_shape", "strides", "dilations"))
    if "pads" in attributes:  # as many as leave an output; padding below the strides, as ONNX Runtime takes no other
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        attributes["pads"] = [data.draw(st.integers(0, (r - 1) // 2)) for r in reach * 2]
        beyond = [stride - 1 for stride in strides]
        attributes["output_padding"] = [data.draw(st.integers(0, most)) for most in beyond]
    x, weight = f(2, group * channels, *spatial), f(group * channels, filters, *kernel)
    check(NodeCase("ConvTranspose", [x, weight, f(group * filters)], {**attributes, "group": group}, tolerance=3e-5))


@given(windows(), st.sampled_from(["MaxPool", "AveragePool"]), st.booleans(), st.booleans())
@FEW
def test_drawn_pools(window: tuple[list[int], dict[str, Any]], op: str, ceil: bool, include: bool) -> None:
    spatial, attributes = window
    more = {"count_include_pad": int(include)} if op == "AveragePool" else {}
    check(NodeCase(op, [f(2, 3, *spatial)], {**attributes, **more, "ceil_mode": int(ceil)}))


BAD = [
    ({"strides": [0, 1]}, InvalidModel, r"node n \(Conv\): attribute strides is \[0, 1\]; .* at least 1"),
    ({"group": 0}, InvalidModel, r"node n \(Conv\): group is 0; it must be at least 1"),
    ({"group": 3}, InvalidModel, r"node n \(Conv\): .* has 2 channels"),
    ({"pads": [1 << 40, 0, 0, 0]}, ResourceLimit, r"node n \(Conv\): .*1099511627776.* no tensor is so large"),
    ({"pads": [1 << 33, 0, 0, 0], "strides": [1 << 33, 1]}, ResourceLimit, "its input with pads"),
    ({"pads": [-1, 0, 0, 0]}, InvalidModel, r"pads is \[-1, 0, 0, 0\]; each entry must be at least 0"),
    ({"pads": [1, 1]}, InvalidModel, r"pads is \[1, 1\]; it needs 4 entries"),
    ({"dilations": [9, 1]}, InvalidModel, "reaches over 19 elements of spatial dimension 0"),
    ({"kernel_shape": [2, 2]}, InvalidModel, r"kernel_shape is \[2, 2\], but the weight is"),
    ({"auto_pad": "SOME"}, InvalidModel, "auto_pad is SOME; it must be"),
]


@pytest.mark.parametrize(("attributes", "error", "message"), BAD, ids=[str(case[0]) for case in BAD])
def test_attributes_that_can_not_be(attributes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        importer.load(single_node("Conv", {"x": f(1, 2, 8, 8), "w": f(2, 2, 3, 3)}, **attributes))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "message"),
    [
        ("Conv", [(1, 2, 8, 8), (2, 2, 3)], {}, "window of 1 dimensions"),
        ("Conv", [(1, 2, 8), (2, 2, 3), (3,)], {}, r"bias .* must have the shape \[2\]"),
        ("Conv", [(2, 8), (2, 2)], {}, "window of 0 dimensions"),
        ("MaxPool", [(1, 2, 8)], {"kernel_shape": [3, 3]}, "window of 2 dimensions"),
        ("MaxPool", [(1, 2, 8)], {"kernel_shape": [0]}, r"kernel_shape is \[0\]"),
        ("AveragePool", [(1, 2, 8)], {"kernel_shape": [9]}, "reaches over 9 elements"),
        ("ConvTranspose", [(1, 2, 8, 8), (3, 2, 3, 3)], {}, "has 2 channels"),
        ("ConvTranspose", [(1, 3, 8), (3, 2, 3)], {"group": 2}, "can't be divided into 2 groups"),
        ("ConvTranspose", [(1, 3, 8), (3, 2, 3)], {"group": 0}, "group is 0"),
        ("ConvTranspose", [(1, 3, 8), (3, 2, 3)], {"pads": [9, 9]}, r"spatial extents \[-8\]; use smaller pads"),
        ("ConvTranspose", [(1, 3, 8), (3, 2, 3)], {"strides": [0]}, r"strides is \[0\]"),
        ("LpPool", [(1, 3, 8)], {"kernel_shape": [3], "p": 0}, "p is 0"),
        ("BatchNormalization", [(1, 2, 8), (3,), (2,), (2,), (2,)], {}, r"scale .* must have the shape \[2\]"),
        ("GlobalMaxPool", [(3,)], {}, "must have the shape"),
    ],
)
def test_shapes_that_do_not_fit(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    inputs = {f"x{position}": f(*shape) for position, shape in enumerate(shapes)}
    with pytest.raises(InvalidModel, match=rf"node n \({op}\): .*{message}"):
        importer.load(single_node(op, inputs, **attributes))
