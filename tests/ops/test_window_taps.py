"""What windows read, tap by tap, as the interpreter runs it, against NumPy."""

import numpy as np
import pytest

from tilewright.base.dtypes import f32
from tilewright.base.errors import BadProgram
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.ops.operator import Attribute, require
from tilewright.tensor.build import placeholder

WINDOW: dict[str, Attribute] = {"kernel": (3, 2), "strides": (2, 1), "dilations": (1, 3), "pads": (1, 0, 0, 2)}


def test_taps_are_slices_of_padded_data() -> None:
    data = np.random.default_rng(0).standard_normal((2, 3, 7, 6)).astype(np.float32)
    program = lower(require("WindowTaps").apply([placeholder(data.shape, f32, "x")], WINDOW))
    (found,) = interpret(program, {"x": data}).values()
    padded = np.pad(data, ((0, 0), (0, 0), (1, 0), (0, 2)))
    assert found.shape == (2, 3, 3, 2, 3, 5)
    for y in range(3):
        for x in range(2):
            np.testing.assert_array_equal(found[:, :, y, x], padded[:, :, y : y + 5 : 2, 3 * x : 3 * x + 5])


def test_every_dimension_needs_an_entry() -> None:
    with pytest.raises(BadProgram, match="an entry for each of 1 spatial dimensions"):
        require("WindowTaps").apply([placeholder((1, 2, 9), f32, "x")], WINDOW)
