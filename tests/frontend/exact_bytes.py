"""Numbers of 8 bits whose products ONNX Runtime computes exactly on this processor."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.frontend.models import run_onnxruntime, single_node

Array = NDArray[np.generic]


@cache
def saturates() -> bool:
    """Whether ONNX Runtime adds two products of unsigned by signed bytes in 16 bits (``vpmaddubsw``), so that sums of
    large ones are wrong: on x86 without VNNI."""
    feeds: dict[str, Array] = {"a": np.full((4, 32), 255, np.uint8), "b": np.full((32, 16), 127, np.int8)}
    (found,) = run_onnxruntime(single_node("MatMulInteger", feeds), feeds)
    return bool((found != 32 * 255 * 127).any())


def exact_bytes(weight: Array) -> Array:
    """``weight``; where sums saturate, halves of signed bytes: then they don't."""
    return weight // np.int8(2) if weight.dtype == np.int8 and saturates() else weight
