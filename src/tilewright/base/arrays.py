"""Arrays of any element type, and random ones: the inputs of a model, or of a loop program, that nobody gives."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType

Array: TypeAlias = NDArray[np.generic]


def random_array(dtype: DType, shape: Sequence[int], generator: np.random.Generator) -> Array:
    """Normal floats; of all other types 0 and 1, as integers are often indices, lengths or masks.

    What is drawn does not depend on the width of ``dtype``: it is rounded to it.
    """
    drawn = generator.standard_normal(shape) if dtype.is_float else generator.integers(0, 2, shape)
    return np.asarray(drawn, dtype.numpy)
