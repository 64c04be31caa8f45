"""What an attribute must be one of: every choice is known, and others are refused with the list of them."""

import pytest

from tilewright.base.dtypes import f32, i64, u32
from tilewright.base.errors import BadProgram
from tilewright.ops.operator import require
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Tensor

X, U = placeholder((2, 4), f32, "x"), placeholder((2, 4), u32, "u")
PLACES = placeholder((2, 1), i64, "places")
IMAGES, GRID = placeholder((1, 1, 3, 3), f32, "images"), placeholder((1, 2, 2, 2), f32, "grid")
CHOICES: list[tuple[str, list[Tensor], dict[str, object], str, str]] = [
    ("Pad", [X], {"before": (1, 1), "after": (0, 0)}, "mode", "constant, edge, reflect, wrap"),
    ("GridSample", [IMAGES, GRID], {}, "mode", "nearest, linear, cubic"),
    ("GridSample", [IMAGES, GRID], {}, "padding_mode", "zeros, border, reflection"),
    ("ScatterND", [X, PLACES, X], {}, "reduction", "none, add, mul, max, min"),
    ("ScatterElements", [X, PLACES, placeholder((2, 1), f32, "new")], {}, "reduction", "none, add, mul, max, min"),
    ("TensorScatter", [X, X], {"axis": 1}, "mode", "linear, circular"),
    ("BitShift", [U, U], {}, "direction", "LEFT, RIGHT"),
    ("Gelu", [X], {}, "approximate", "none, tanh"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "name", "known"), CHOICES)
def test_choices(op: str, inputs: list[Tensor], attributes: dict[str, object], name: str, known: str) -> None:
    for choice in known.split(", "):
        require(op).apply(inputs, {**attributes, name: choice})
    with pytest.raises(BadProgram, match=f"{op}: .*{name} is 'other'; it can be {known}"):
        require(op).apply(inputs, {**attributes, name: "other"})
